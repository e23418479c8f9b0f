"""Host copies through an allocator: it knows whose the slots are, and looks before the pool acts.

Spec: `spec/core.md` §4a, §4b; `spec/interleave_hisparse_host_prefix.md` §4.8.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from impl import (
    MHATokenToKVPool,
    PagedTokenToKVPoolAllocator,
    PoolError,
    SWAKVPool,
    SWATokenToKVPoolAllocator,
    TokenToKVPoolAllocator,
)
from impl.errors import DoubleFree, WrongDtype, WrongShape
from properties.subjects.impl import default_device
from properties.test_backends import require

DEVICE = default_device()
GEOMETRY: dict[str, Any] = {"dtype": torch.float32, "head_num": 1, "head_dim": 2, "device": DEVICE}


class Kept:
    """An allocator of eight pages and its pool, some of whose pages are out."""

    def __init__(self, kind: str, backend: str, **options: Any) -> None:
        options |= {"device": DEVICE, "backend": backend, "need_sort": True}
        self.size = 1 if kind == "token" else 4
        self.slots = 8 * self.size
        if kind == "pair":
            self.pool: Any = SWAKVPool(
                self.slots, self.slots, self.size, swa_attention_layer_ids=[1],
                full_attention_layer_ids=[0], **GEOMETRY,
            )  # fmt: skip
            self.allocator: Any = SWATokenToKVPoolAllocator(
                self.slots, self.slots, self.size, kvcache=self.pool, **options
            )
        else:
            self.pool = MHATokenToKVPool(self.slots, self.size, layer_num=2, **GEOMETRY)
            kinds = {"token": TokenToKVPoolAllocator, "paged": PagedTokenToKVPoolAllocator}
            sizes = (self.slots,) if kind == "token" else (self.slots, self.size)
            self.allocator = kinds[kind](*sizes, kvcache=self.pool, **options)
        #: pages 1 to 4, of which page 2 was freed and page 3 is parked by an open group
        self.take(4)
        self.allocator.free(self.page(2))
        self.allocator.free_group_begin()
        self.allocator.free(self.page(3))
        self.allocator.check()

    def take(self, pages: int) -> torch.Tensor:
        if not isinstance(self.pool, SWAKVPool):
            taken: torch.Tensor = self.allocator.alloc(pages * self.size)
            return taken
        tokens = torch.tensor([pages * self.size])
        none = torch.zeros(1, dtype=torch.int64)
        slots: torch.Tensor = self.allocator.alloc_extend(
            none.to(DEVICE), none, tokens.to(DEVICE), tokens, (none - 1).to(DEVICE), int(tokens)
        )
        return slots

    def page(self, *pages: int) -> torch.Tensor:
        """The last slot of each of these pages."""
        return torch.tensor(pages, dtype=torch.int64, device=DEVICE) * self.size + self.size - 1

    def state(self) -> Any:
        return self.allocator.snapshot(), self.pool.snapshot()


def kept(kind: str, backend: str, **options: Any) -> Kept:
    require(backend)
    return Kept(kind, backend, **options)


KINDS = pytest.mark.parametrize("kind", ["token", "paged", "pair"])
BACKENDS = pytest.mark.parametrize("backend", ["torch", "triton"])
CALLS = pytest.mark.parametrize("call", ["get_cpu_copy", "load_cpu_copy"])
#: pages that a copy names, the fault's kind, and what is said of it
DEAD = [
    ((1, 9), "OutOfRange", r"\[1\] slot \d+: its page is outside the pool\. Copy slots that"),
    ((-1, 4), "OutOfRange", r"\[0\] slot -\d: its page is outside the pool"),
    ((1, 0), "Reserved", r"\[1\] slot \d: its page is reserved\. Drop padding"),
    ((1, 4, 5), "NotOwned", r"\[2\] slot \d+: its page is not issued since the last clear\. Copy "),
    ((1, 2), "NotOwned", r"\[1\] slot \d+: its page is freed and staged"),
    ((3, 1), "NotOwned", r"\[0\] slot \d+: its page is parked by a slot free of the open group"),
    ((2, 3, 0, 9), "OutOfRange", r"\[3\] slot \d+: its page is outside the pool\."),
]  # fmt: skip


@KINDS
@BACKENDS
@CALLS
@pytest.mark.parametrize(("pages", "error", "words"), DEAD)
def test_a_copy_of_slots_that_nobody_owns(
    kind: str, backend: str, call: str, pages: tuple[int, ...], error: str, words: str
) -> None:
    """It is refused by kind, names the slot, and neither the allocator nor a byte has changed."""
    made = kept(kind, backend)
    copy = made.allocator.get_cpu_copy(made.page(1, 4, *(1 for _ in pages[2:])))
    before = made.state()
    given = [copy] if call == "load_cpu_copy" else []
    with pytest.raises(PoolError, match=words) as caught:
        getattr(made.allocator, call)(*given, made.page(*pages))
    assert type(caught.value).__name__ == error
    assert str(caught.value).startswith(f"{call}: ")
    made.allocator.check()
    assert made.state() == before


@KINDS
@BACKENDS
def test_a_slot_is_loaded_once(kind: str, backend: str) -> None:
    """A backup may name a slot twice; a load that does is refused, and writes nothing."""
    made = kept(kind, backend)
    twice = made.page(4, 1, 4)
    copy = made.allocator.get_cpu_copy(twice)
    before = made.state()
    with pytest.raises(PoolError, match=r"load_cpu_copy: \[2\] slot \d+ was named at 0 already\."):
        made.allocator.load_cpu_copy(copy, twice)
    assert made.state() == before


@KINDS
@BACKENDS
def test_what_is_owned_is_copied(kind: str, backend: str) -> None:
    """Slots go to the host and come back under others, int32 too; so does no slot at all."""
    made = kept(kind, backend)
    layer, rows = 0, torch.arange(2.0, device=DEVICE).view(1, 1, 2) + 1
    made.pool.set_kv_buffer(layer, made.page(1), rows, rows + 7)
    copy = made.allocator.get_cpu_copy(made.page(1).to(torch.int32))
    made.allocator.load_cpu_copy(copy, made.page(4).to(torch.int32))
    key, value = made.pool.get_kv_buffer(layer)
    assert torch.equal(key[made.page(4)], rows)
    assert torch.equal(value[made.page(4)], rows + 7)
    before = made.state()
    made.allocator.load_cpu_copy(made.allocator.get_cpu_copy(made.page()), made.page())
    assert made.state() == before


@KINDS
@CALLS
@pytest.mark.parametrize(
    ("slots", "error"), [([4], WrongDtype), (torch.tensor([4.0]), WrongDtype),
                         (torch.tensor([[4]]), WrongShape)],
)  # fmt: skip
def test_what_no_slots_are(kind: str, call: str, slots: Any, error: type[PoolError]) -> None:
    """Slots of another type or shape are refused, without checks of values too."""
    made = kept(kind, "torch", validate=False)
    before = made.state()
    given = slots.to(DEVICE) if isinstance(slots, torch.Tensor) else slots
    with pytest.raises(error, match="indices must"):
        getattr(made.allocator, call)(*[[]] * (call == "load_cpu_copy"), given)
    assert made.state() == before


@KINDS
def test_copies_without_checks_of_values(kind: str) -> None:
    """`validate=False`: whose the slots are is the caller's business."""
    made = kept(kind, "torch", validate=False)
    copy = made.allocator.get_cpu_copy(made.page(2, 5))
    made.allocator.load_cpu_copy(copy, made.page(3, 6))
    assert made.allocator.audit() == []


def test_a_window_that_went_back() -> None:
    """A slot without its window is still its owner's: it is copied, on the full side alone."""
    made = kept("pair", "torch")
    copy = made.allocator.get_cpu_copy(made.page(1, 4))
    made.allocator.free_swa(made.page(4))
    made.allocator.load_cpu_copy(copy, made.page(4, 1))
    assert made.allocator.get_cpu_copy(made.page(4, 1)).swa_mask.tolist() == [False, True]


@CALLS
@pytest.mark.parametrize("kind", ["token", "paged"])
def test_a_copy_waits_for_what_was_deferred(kind: str, call: str) -> None:
    """A fault that is under way is raised at the copy, which then hasn't reached the pool."""
    made = kept(kind, "triton")
    copy = made.allocator.get_cpu_copy(made.page(1))
    made.allocator.free_group_end()
    before = made.state()
    mailbox = made.allocator._book.deferral.mailbox
    if hasattr(mailbox, "delay"):
        mailbox.delay = 100
    made.allocator.free_page_ids(torch.tensor([2], device=DEVICE))
    given = [copy] if call == "load_cpu_copy" else []
    with pytest.raises(DoubleFree, match="free_page_ids"):
        getattr(made.allocator, call)(*given, made.page(1))
    made.allocator.recover()
    assert made.state() == before
