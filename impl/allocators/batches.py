"""What the host alone knows about an extend or decode: argument checks, counts, the plan.

Spec: `spec/core.md` §4 (misuse of extend and decode), §4b.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from impl import checks
from impl.errors import MAX_IDS_SHOWN, BadLengths, PoolError
from impl.kernels import decode, extend
from impl.kernels.arrays import HostArray, host_array

EXTEND_DEVICE = ("prefix_lens", "seq_lens", "last_loc")
EXTEND_HOST = ("prefix_lens_cpu", "seq_lens_cpu")
DECODE_DEVICE = ("seq_lens", "last_loc")
DECODE_HOST = ("seq_lens_cpu",)

Errors = list[PoolError | None]


def plan_extend(
    on_device: Sequence[torch.Tensor],
    on_host: Sequence[torch.Tensor],
    extend_num_tokens: Any,
    num_new_pages: Any,
    device: torch.device,
    page_size: int,
) -> tuple[extend.ExtendPlan, list[HostArray]]:
    """Plan and host lengths of an extend whose host data holds together. O(n)."""
    errors: Errors = []
    if not well_formed(on_device, on_host, device):
        errors = argument_errors(EXTEND_DEVICE, on_device, EXTEND_HOST, on_host, device)
    tokens = int_or_none(extend_num_tokens, "extend_num_tokens", errors)
    pages = None
    if num_new_pages is not None:
        pages = int_or_none(num_new_pages, "num_new_pages", errors)
    batch, hosts = None, []
    if not errors or usable(on_host):
        hosts = [host_array(each) for each in on_host]
        batch = extend.plan(hosts[0], hosts[1], page_size)
        errors += extend_errors("alloc_extend", batch, on_host, tokens, pages)
    if errors:
        checks.raise_first(errors)
    assert batch is not None, "a batch without a plan has an error"
    return batch, hosts


def plan_decode(
    on_device: Sequence[torch.Tensor],
    on_host: torch.Tensor,
    device: torch.device,
    page_size: int,
) -> tuple[decode.DecodePlan, HostArray]:
    """Plan and host lengths of a decode whose host data holds together. O(n)."""
    errors: Errors = []
    if not well_formed(on_device, (on_host,), device):
        errors = argument_errors(DECODE_DEVICE, on_device, DECODE_HOST, (on_host,), device)
    batch = None
    if not errors or usable((on_host,)):
        host = host_array(on_host)
        batch = decode.plan(host, page_size)
        if batch is None:
            errors.append(seq_error("alloc_decode", on_host))
    if errors:
        checks.raise_first(errors)
    assert batch is not None, "a batch without a plan has an error"
    return batch, host


def well_formed(on_device: Sequence[Any], on_host: Sequence[Any], device: torch.device) -> bool:
    """Whether all are id tensors where they belong, of one length."""
    shape = getattr(on_device[0], "shape", None)
    for tensors, where in ((on_device, device), (on_host, checks.CPU)):
        for tensor in tensors:
            if not checks.is_ids(tensor, where) or tensor.shape != shape:
                return False
    return True


def argument_errors(
    device_names: Sequence[str],
    on_device: Sequence[Any],
    host_names: Sequence[str],
    on_host: Sequence[Any],
    device: torch.device,
) -> Errors:
    """What types, devices, shapes and numbers of entries give away."""
    everything = (*on_device, *on_host)
    errors: Errors = []
    for names, tensors, where in (
        (device_names, on_device, device),
        (host_names, on_host, checks.CPU),
    ):
        for name, tensor in zip(names, tensors, strict=True):
            errors.append(checks.ids_fault(tensor, name, where))
    lengths = [
        tensor.shape[0] for tensor in everything
        if isinstance(tensor, torch.Tensor) and tensor.dim() == 1
    ]  # fmt: skip
    if len(set(lengths)) > 1:
        errors.append(
            BadLengths(
                f"{', '.join((*device_names, *host_names))} have {lengths} entries. "
                "Give one entry per request in each."
            )
        )
    return errors


def usable(on_host: Sequence[Any]) -> bool:
    """Whether a plan can be computed although another argument is refused."""
    return all(checks.is_ids(tensor, checks.CPU) for tensor in on_host) and (
        len({tensor.shape[0] for tensor in on_host}) == 1
    )


def int_or_none(value: Any, name: str, errors: Errors) -> int | None:
    try:
        return checks.host_int(value, name)
    except PoolError as error:
        errors.append(error)
        return None


def extend_errors(
    call: str,
    batch: extend.ExtendPlan | None,
    on_host: Sequence[torch.Tensor],
    tokens: int | None,
    pages: int | None,
) -> Errors:
    """Lengths (prefix, seq) that can't be, or counts that they don't add up to."""
    if batch is None:
        pairs = enumerate(zip(on_host[0].tolist(), on_host[1].tolist(), strict=True))
        found = _shown((i, f"prefix {p}, seq {s}") for i, (p, s) in pairs if not 0 <= p <= s)
        return [BadLengths(f"{call}: {found}. A prefix lies between 0 and its seq.")]
    if tokens is not None and tokens != batch.num_tokens:
        return [
            BadLengths(
                f"{call}: extend_num_tokens is {tokens}, the lengths add up to "
                f"{batch.num_tokens} new tokens. Pass their sum."
            )
        ]
    if pages is not None and pages != batch.num_pages:
        return [
            BadLengths(
                f"{call}: num_new_pages is {pages}, the lengths need {batch.num_pages} pages. "
                "Pass the exact count or None."
            )
        ]
    return []


def seq_error(call: str, on_host: torch.Tensor) -> BadLengths:
    """The error of a decode that has a length below 1."""
    found = _shown((i, f"seq {seq}") for i, seq in enumerate(on_host.tolist()) if seq < 1)
    return BadLengths(f"{call}: {found}. Lengths count the new token: at least 1.")


def _shown(items: Any) -> str:
    """The first few (index, found) of `items` in words."""
    listed = list(items)
    text = "; ".join(f"[{index}] {found}" for index, found in listed[:MAX_IDS_SHOWN])
    more = len(listed) - MAX_IDS_SHOWN
    return text + (f"; and {more} more" if more > 0 else "")
