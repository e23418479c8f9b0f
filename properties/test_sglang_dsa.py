"""SGLang 0.5.23's own pool of sparse latent attention: the same bytes as ours, page for page."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from impl import DSATokenToKVPool
from impl.storage.packed import calculate_mla_kv_cache_dim
from properties.subjects import Factory
from properties.subjects.sglang_dsa import LAYERS, PAGE_SIZE, RANK, ROPE, SKIPPED, SglangDSA

pytestmark = pytest.mark.of_subject("sglang")

SIZE = 3 * PAGE_SIZE
FP8 = torch.float8_e4m3fn
#: slots of the first page, the second one and the last, one among them the last
SLOTS = torch.tensor([64, 70, 130, 200, 255])
#: numbers that an fp8 type has; in a tile whose largest is 448 nothing is rounded, which the
#: interpreter does otherwise than a GPU: a carry to the next power of two is lost there
EXACT = torch.tensor([448.0, -448.0, 0.0, 1.0, -1.5, 240.0, 2.0**-6, 104.0, -0.25, 36.0])


def numbers(width: int, seed: int) -> torch.Tensor:
    """Rows bfloat16 [n, 1, width] of exact numbers, the largest one among each 128."""
    chosen = torch.randint(
        len(EXACT), (len(SLOTS), 1, width), generator=torch.Generator().manual_seed(seed)
    )
    chosen[..., ::TILE] = 0
    return EXACT[chosen].bfloat16()


TILE = 128


class Both:
    """The same calls on SGLang's pool and on ours."""

    def __init__(self, *, packed: bool) -> None:
        dtype = FP8 if packed else torch.bfloat16
        width = calculate_mla_kv_cache_dim(RANK, ROPE, dtype, is_dsa=packed)
        self.theirs = SglangDSA(SIZE, dtype, width)
        self.ours = DSATokenToKVPool(
            SIZE, PAGE_SIZE, dtype, RANK, ROPE, LAYERS,
            kv_cache_dim=width, skip_topk_layers=SKIPPED, device="cpu",
        )  # fmt: skip

    def call(self, method: str, layer: int | None, *args: torch.Tensor) -> tuple[Any, Any]:
        """Theirs on copies: it may write to what it is given."""
        theirs = self.theirs.call(method, layer, *(each.clone() for each in args))
        place = [] if layer is None else [layer]
        return theirs, getattr(self.ours, method)(*place, *args)

    def require_same(self) -> None:
        """Rows and index pages hold the same bytes, outside of the first page."""
        for one, other in zip(self.theirs.pool.kv_buffer, self.ours.kv_buffer, strict=True):
            assert one.shape == other.shape
            assert torch.equal(bytes_of(one)[PAGE_SIZE:], bytes_of(other)[PAGE_SIZE:])
        theirs = self.theirs.pool.index_k_with_scale_buffer
        for one, other in zip(theirs, self.ours.index_k_with_scale_buffer, strict=True):
            assert one.shape == other.shape
            assert torch.equal(one[1:], other[1:])

    def write(self) -> None:
        """Latents in every layer, index keys where there are some."""
        for layer in range(LAYERS):
            self.call("set_mla_kv_buffer", layer, SLOTS, numbers(RANK, layer), numbers(ROPE, 9))
        keys = torch.arange(len(SLOTS) * TILE).reshape(-1, TILE).remainder(120).to(torch.uint8)
        scales = torch.arange(1.0, 1 + len(SLOTS))[:, None]
        self.call("set_index_k_scale_buffer", 0, SLOTS, keys.view(FP8), scales)


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """A buffer as bytes."""
    return tensor.view(torch.uint8)


@pytest.fixture(params=[False, True], ids=["plain", "packed"])
def both(sglang: Factory, request: pytest.FixtureRequest) -> Both:
    """Pools of either kind of row, written to."""
    made = Both(packed=request.param)
    made.write()
    return made


def test_writes(both: Both) -> None:
    """Rows, packed ones with their scales, and index pages; the size that is reported."""
    both.require_same()
    assert bytes_of(both.ours.kv_buffer[1])[SLOTS].any(-1).all()
    assert both.ours.index_k_with_scale_buffer[0][1:].any()
    assert both.theirs.pool.get_kv_size_bytes() == both.ours.get_kv_size_bytes()


def test_whole_rows(sglang: Factory) -> None:
    """Rows that aren't packed are written whole too."""
    made = Both(packed=False)
    rows = numbers(RANK + ROPE, 3)
    made.theirs.call("set_kv_buffer", 1, SLOTS, rows, None)
    made.ours.set_kv_buffer(1, SLOTS, rows)
    made.require_same()


def test_moves(both: Both) -> None:
    """Rows, keys and scales go together, to slots of other pages and round among their own."""
    for target, source in (([71, 64, 129], [64, 200, 255]), ([70, 130], [130, 70])):
        both.call("move_kv_cache", None, torch.tensor(target), torch.tensor(source))
        both.require_same()


def test_round_trip(both: Both) -> None:
    """Whole pages come back under other pages."""
    page, other = torch.arange(PAGE_SIZE, 2 * PAGE_SIZE), torch.arange(128, 192)
    copy = both.theirs.call("get_cpu_copy", None, page)
    both.theirs.call("load_cpu_copy", None, copy, other)
    both.ours.load_cpu_copy(both.ours.get_cpu_copy(page), other)
    both.require_same()
    assert bytes_of(both.ours.kv_buffer[0])[[128, 134]].any(-1).all()


def test_reads(both: Both) -> None:
    """Latents and rotary parts of slots where rows are plain, index keys of a request's pages."""
    if not both.ours.is_packed:
        theirs, ours = both.call("get_mla_kv_buffer", 0, SLOTS)
        assert all(map(torch.equal, theirs, ours))
    lens, pages = torch.tensor([70]), torch.tensor([[2, 1]])
    theirs = both.theirs.call("get_index_k_scale_buffer", 0, lens, pages, 70, 70)
    ours = both.ours.get_index_k_scale_buffer(0, lens, pages, 70)
    for one, other in zip(theirs, ours, strict=True):
        assert torch.equal(bytes_of(one).reshape(70, -1), other)
