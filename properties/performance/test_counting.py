"""The counter counts: every forbidden read is reported by its name, and what is allowed isn't."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from properties.performance.counting import BOOLEAN_INDEXING, UNSIZED_REPEAT, Counting
from properties.performance.sample_kernel import copied
from properties.subjects.impl import default_device

DEVICE = torch.device(default_device())
Read = Callable[[torch.Tensor, torch.Tensor], object]

# Name reported, and what does it to ids [4] and a mask [4] of a device.
FORBIDDEN: tuple[tuple[str, Read], ...] = (
    ("item", lambda ids, mask: ids[0].item()),
    ("tolist", lambda ids, mask: ids.tolist()),
    ("numpy", lambda ids, mask: ids.numpy() if not ids.is_cuda else ids.cpu()),
    ("cpu", lambda ids, mask: ids.cpu()),
    ("cpu", lambda ids, mask: ids.to("cpu")),
    ("_local_scalar_dense", lambda ids, mask: bool(mask.any())),
    ("_local_scalar_dense", lambda ids, mask: int(ids.sum())),
    ("_local_scalar_dense", lambda ids, mask: range(ids[1])),
    ("_local_scalar_dense", lambda ids, mask: 3 in ids),
    ("equal", lambda ids, mask: torch.equal(ids, ids + 1)),
    ("nonzero", lambda ids, mask: ids.nonzero()),
    ("nonzero", lambda ids, mask: torch.where(mask)),
    ("_unique2", lambda ids, mask: torch.unique(ids)),
    ("unique_consecutive", lambda ids, mask: torch.unique_consecutive(ids)),
    ("masked_select", lambda ids, mask: ids.masked_select(mask)),
    (BOOLEAN_INDEXING, lambda ids, mask: ids[mask]),
    (BOOLEAN_INDEXING, lambda ids, mask: ids.__setitem__(mask, ids[:2] + 5)),
    (UNSIZED_REPEAT, lambda ids, mask: torch.repeat_interleave(ids, ids)),
    (UNSIZED_REPEAT, lambda ids, mask: ids.repeat_interleave(ids)),
)
if DEVICE.type == "cpu":
    # On a GPU these fail of themselves.
    FORBIDDEN += (("__array__", lambda ids, mask: np.asarray(ids)),)

ALLOWED: tuple[Read, ...] = (
    lambda ids, mask: ids.sort().values + 1,
    lambda ids, mask: torch.where(mask, ids, -ids),
    lambda ids, mask: ids[ids - ids],
    lambda ids, mask: ids.masked_fill(mask, 3),
    lambda ids, mask: torch.repeat_interleave(ids, ids, output_size=6),
    lambda ids, mask: (ids.shape, ids.dtype, ids.device, len(ids), ids.numel()),
    lambda ids, mask: torch.empty(4, dtype=torch.int64).copy_(ids, non_blocking=True),
)


@pytest.fixture
def counting() -> Iterator[Counting]:
    """A counter that runs."""
    with Counting() as made:
        yield made


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and a mask of the device, of which two are set."""
    ids = torch.tensor([1, 2, 3, 0], device=DEVICE)
    return ids, torch.tensor([True, False, True, False], device=DEVICE)


@pytest.mark.parametrize(("name", "read"), FORBIDDEN)
def test_forbidden_read_is_named(counting: Counting, name: str, read: Read) -> None:
    """A read that waits for the device is reported once, by its name."""
    ids, mask = tensors()
    with counting.window() as count:
        read(ids, mask)
    assert count.reads == [name]


@pytest.mark.parametrize("read", ALLOWED)
def test_allowed_is_silent(counting: Counting, read: Read) -> None:
    """What stays on the device is no read."""
    ids, mask = tensors()
    with counting.window() as count:
        read(ids, mask)
    assert count.reads == []


def test_host_tensors_may_be_read(counting: Counting) -> None:
    """Host copies, and what is computed from them alone, are the host's."""
    host = torch.tensor([1, 2, 3])
    with counting.window() as count:
        (host + 1).tolist()
        host[host > 1].numpy()
        host[0].item()
    assert count.reads == []


def test_sent_tensor_is_the_devices(counting: Counting) -> None:
    """What was sent may not be read, its host copy may."""
    host = torch.tensor([1, 2, 3])
    with counting.window() as count:
        sent = host.to(DEVICE, non_blocking=True)
        assert count.operations.total() == 1
        host.tolist()
        assert count.reads == []
        sent.tolist()
    assert count.reads == ["tolist"]


def test_record_sent_back_may_be_read(counting: Counting) -> None:
    """A copy to the host that nothing waits for is the host's to read later."""
    ids, _ = tensors()
    record = torch.zeros(4, dtype=torch.int64)
    with counting.window() as count:
        record.copy_(ids, non_blocking=True)
        record.tolist()
    assert count.reads == []


@pytest.mark.parametrize("name", ["fill_", "copy_"])
def test_marks_follow_values(counting: Counting, name: str) -> None:
    """What was computed from a device's tensor, or overwritten by one, is the device's too."""
    ids, _ = tensors()
    target = torch.zeros(4, dtype=torch.int64)
    if name == "copy_":
        target.copy_(ids)
    else:
        target = ids.new_empty(4).fill_(3)
    with counting.window() as count:
        target[1:].tolist()
    assert count.reads == ["tolist"]


def test_named_tensor_is_the_devices() -> None:
    """A tensor made before counts as the device's once it is named."""
    ids = torch.tensor([1, 2], device=DEVICE)
    with Counting() as counting:
        counting.mark(ids)
        with counting.window() as count:
            ids.tolist()
    assert count.reads == ["tolist"]


def test_operations_and_elements(counting: Counting) -> None:
    """Operations count by name and by their largest tensor; views don't, nor what isn't indexed."""
    pool, (ids, _) = torch.zeros(1000, device=DEVICE), tensors()
    with counting.window() as count:
        pool[3:7].view(2, 2)
        assert not count.operations
        pool.index_select(0, ids)
        assert count.elements == 4
        torch.cat((pool, pool))
    assert dict(count.operations) == {"index_select": 1, "cat": 1}
    assert count.elements == 2004


def test_windows_are_separate(counting: Counting) -> None:
    """A window has nothing of what came before it."""
    ids, _ = tensors()
    ids.tolist()
    with counting.window() as count:
        pass
    assert count.reads == []
    assert counting.count.reads == ["tolist"]


def test_launches_and_programs(counting: Counting) -> None:
    """A launch counts once, with its program instances and the addresses that they touch."""
    ids, _ = tensors()
    target = torch.zeros(6, dtype=torch.int64, device=DEVICE)
    with counting.window() as count:
        copied[(3,)](ids, target, 2)
    assert target.tolist() == [1, 2, 2, 3, 3, 0]
    assert (count.launches, count.reads) == (["_copied"], [])
    assert not count.operations
    # each loads two addresses and stores to two
    assert (count.programs, count.accesses) == (3, {"_copied": 12})
