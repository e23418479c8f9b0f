"""Extend and decode kernels: slots and faults are the reference's, and nothing else is written."""

from __future__ import annotations

import random

import pytest
import torch

from impl.kernels.device.extend import SCRATCH_ROWS
from properties.kernels.guards import Guards
from properties.kernels.rig import DEVICE, Five, Rig, Told

PAGE_SIZES = (1, 2, 3, 4, 16, 48, 100)
INTS = (torch.int32, torch.int64)
# Last slots that fit nothing, or only by accident.
ODD_SLOTS = (-1, 0, -5, 2**31 - 1, -(2**31), 1, 3)


class Batch:
    """Lengths and last slots as they are given, right or wrong."""

    def __init__(self, requests: list[tuple[list[int], int, int]]) -> None:
        self.prefix = [prefix for _, prefix, _ in requests]
        self.seq = [prefix + more for _, prefix, more in requests]
        self.last = [slots[prefix - 1] if prefix else -1 for slots, prefix, _ in requests]
        self.device_prefix, self.device_seq = list(self.prefix), list(self.seq)

    def told(self, rig: Rig, *, decodes: bool) -> Told:
        """What a record has to say of it."""

        def of(kind: str, at: int) -> Five:
            if kind == "BadLengths":
                seq = self.device_seq[at]
                prefix = seq - 1 if decodes else self.device_prefix[at]
                return prefix, self.prefix[at], seq, self.seq[at], 0
            first = 0
            if kind == "Duplicate":
                lengths = zip(self.prefix, self.seq, strict=True)
                grows = [prefix % rig.page_size > 0 and seq > prefix for prefix, seq in lengths]
                pages = [last // rig.page_size for last in self.last]
                same = zip(grows, pages, strict=True)
                first = list(same).index((True, pages[at]))
            return rig.page_told(self.last[at], first)

        return of

    def spoil(self, rng: random.Random, page_size: int, decodes: bool) -> None:
        """One or two things wrong with it, most of the time."""
        for _ in range(rng.randint(1, 2)):
            at = rng.randrange(len(self.seq))
            kind = rng.randrange(5)
            if kind == 0 and not decodes:
                self.device_prefix[at] += rng.choice((-1, 1, page_size))
            elif kind == 1:
                self.device_seq[at] += rng.choice((-1, 1, 2**20))
            elif kind == 2:
                self.last[at] = rng.choice(ODD_SLOTS)
            elif kind == 3:
                self.last[at] += rng.choice((-1, 1, page_size, -page_size, 50 * page_size))
            else:
                self.last[at] = self.last[rng.randrange(len(self.last))]


def extend(rig: Rig, batch: Batch, rng: random.Random, fused_tokens: int) -> list[int] | None:
    """Launch and compare; None where capacity is short or the batch is refused."""
    total = sum(batch.seq) - sum(batch.prefix)
    size = rig.page_size
    need = sum(-(-s // size) + -p // size for p, s in zip(batch.prefix, batch.seq, strict=True))

    def launch(guards: Guards, seq: int) -> torch.Tensor:
        n = len(batch.seq)
        out = guards.empty("out", total)
        rig.device.extend.place(
            rig.pages,
            rig.ids,
            rig.head,
            out,
            prefix_lens=guards.line("prefix_lens", batch.device_prefix, dtypes[0]),
            seq_lens=guards.line("seq_lens", batch.device_seq, dtypes[1]),
            last_loc=guards.line("last_loc", batch.last, dtypes[2]),
            host=guards.line("host", batch.prefix + batch.seq).view(2, n),
            sums=guards.empty("sums", SCRATCH_ROWS * n),
            seq=seq,
            fused_tokens=fused_tokens,
        )
        return out

    def want() -> list[int] | None:
        return rig.model.alloc_extend(
            batch.device_prefix, batch.prefix, batch.device_seq, batch.seq, batch.last, total
        )

    if not rig.fits(need, total // size + len(batch.seq) + 1):
        assert want() is None
        return None
    dtypes = [rng.choice(INTS) for _ in range(3)]
    slots = rig.call(want, launch, "sums", told=batch.told(rig, decodes=False))
    if slots is not None:
        rig.head += need
    rig.require_equal()
    return slots


def decode(rig: Rig, batch: Batch, rng: random.Random, fused_tokens: int) -> list[int] | None:
    """The same for one token each."""
    need = sum(prefix % rig.page_size == 0 for prefix in batch.prefix)

    def launch(guards: Guards, seq: int) -> torch.Tensor:
        n = len(batch.seq)
        out = guards.empty("out", n)
        rig.device.extend.place(
            rig.pages,
            rig.ids,
            rig.head,
            out,
            seq_lens=guards.line("seq_lens", batch.device_seq, dtypes[0]),
            last_loc=guards.line("last_loc", batch.last, dtypes[1]),
            host=guards.line("host", batch.seq).view(1, n),
            sums=guards.empty("sums", SCRATCH_ROWS * n),
            seq=seq,
            fused_tokens=fused_tokens,
        )
        return out

    def want() -> list[int] | None:
        return rig.model.alloc_decode(batch.device_seq, batch.seq, batch.last)

    if not rig.fits(need, len(batch.seq)):
        assert want() is None
        return None
    dtypes = [rng.choice(INTS) for _ in range(2)]
    slots = rig.call(want, launch, "sums", told=batch.told(rig, decodes=True))
    if slots is not None:
        rig.head += need
    rig.require_equal()
    return slots


def free_some(rig: Rig, requests: list[list[int]], rng: random.Random) -> None:
    """Give pages back without a kernel, so that the free list gets out of order."""
    rng.shuffle(requests)
    slots = [slot for _ in range(len(requests) // 2) for slot in requests.pop()]
    kept = {slot // rig.page_size for request in requests for slot in request}
    pages = sorted({slot // rig.page_size for slot in slots} - kept)
    rig.model.free_page_ids(pages)
    rig.head -= len(pages)
    rig.ids[rig.head : rig.head + len(pages)] = torch.tensor(pages, dtype=torch.int64).to(DEVICE)
    rig.pages.states[torch.tensor(pages, dtype=torch.int64).to(DEVICE)] = 3


@pytest.mark.parametrize("seed", range(7))
def test_slots_and_faults_are_those_of_the_reference(seed: int) -> None:
    """Random batches, two in five of them spoiled; every eighth step gives pages back."""
    rng = random.Random(f"extend {seed}")
    page_size = PAGE_SIZES[seed % len(PAGE_SIZES)]
    rig = Rig(rng.randint(20, 60), page_size)
    requests: list[list[int]] = []
    refused = served = 0
    for step in range(36):
        if step % 8 == 7:
            free_some(rig, requests, rng)
            continue
        decodes = rng.random() < 0.4
        chosen = rng.sample(requests, rng.randint(0, min(len(requests), 6)))
        chosen += [[] for _ in range(rng.randint(0, 2))]
        rng.shuffle(chosen)
        parts = []
        for slots in chosen:
            # Dropping rejected tokens within the last page is legal.
            drop = (
                rng.randint(0, (len(slots) - 1) % page_size) if rng.random() < 0.2 and slots else 0
            )
            more = 1 if decodes else rng.choice((0, 1, 2, page_size, rng.randint(0, 3 * page_size)))
            parts.append((slots, len(slots) - drop, more))
        batch = Batch(parts)
        if parts and rng.random() < 0.4:
            batch.spoil(rng, page_size, decodes)
        run = decode if decodes else extend
        found = run(rig, batch, rng, rng.choice((0, 1 << 12)))
        if found is None:
            refused += 1
            continue
        served += 1
        at = 0
        for slots, prefix, more in parts:
            del slots[prefix:]
            slots += found[at : at + more]
            at += more
            if slots and not any(slots is each for each in requests):
                requests.append(slots)
    assert refused > 2
    assert served > 8
