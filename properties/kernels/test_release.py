"""Take, release and merge kernels: order, faults and the rest of the state are the reference's."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
import torch

from impl.allocators.states import FREE, PARKED_PAGES, PARKED_SLOTS, STAGED
from impl.kernels.device.release import Target
from properties.kernels.guards import Guards
from properties.kernels.rig import Five, Rig, Told, run_expects

PAGE_SIZES = (1, 2, 3, 4, 48)
INTS = (torch.int32, torch.int64)


class Frees:
    """A rig that is driven by random takes and frees, in groups or not."""

    def __init__(self, seed: int, *, need_sort: bool) -> None:
        self.rng = random.Random(f"release {seed} {need_sort}")
        self.page_size = PAGE_SIZES[seed % len(PAGE_SIZES)]
        self.rig = Rig(self.rng.randint(8, 30), self.page_size, need_sort=need_sort)
        self.need_sort = need_sort
        self.num_parked = {PARKED_PAGES: 0, PARKED_SLOTS: 0}
        self.piles = {
            state: self.rig.books.empty(f"pile {state}", self.rig.num_pages)
            for state in self.num_parked
        }
        self.outcomes = {"served": 0, "refused": 0}

    def target(self, num_given: int, parked: int) -> Target:
        """Where pages go now; `parked` is the state in a group."""
        if self.rig.model.group_open:
            return Target(self.piles[parked], self.num_parked[parked], parked)
        if self.need_sort:
            return Target(self.rig.staged, self.rig.num_staged, STAGED)
        return Target(self.rig.ids, self.rig.head - num_given, FREE, reverse=True)

    def given(self, num_given: int, parked: int) -> None:
        """The host's counts after it."""
        if self.rig.model.group_open:
            self.num_parked[parked] += num_given
        elif self.need_sort:
            self.rig.num_staged += num_given
        else:
            self.rig.head -= num_given

    def run(
        self,
        want: Callable[[], None],
        launch: Callable[[Guards, int], torch.Tensor | None],
        num_given: int,
        told: Told,
    ) -> None:
        """One free of known size, compared."""

        def served() -> list[int]:
            want()
            return []

        done = self.rig.call(served, launch, told=told)
        if done is not None:
            self.given(num_given, PARKED_PAGES)
        self.outcomes["served" if done is not None else "refused"] += 1
        self.rig.require_equal()

    def take(self) -> None:
        """Some pages, or None."""
        num_pages = self.rng.randint(0, self.rig.num_pages)
        size = num_pages * self.page_size
        if not self.rig.fits(num_pages, num_pages):
            assert self.rig.model.alloc(size) is None
            return

        def launch(guards: Guards, seq: int) -> torch.Tensor:
            out = guards.empty("out", size)
            self.rig.device.take.take(self.rig.pages, self.rig.ids, self.rig.head, out)
            return out

        assert self.rig.call(lambda: self.rig.model.alloc(size), launch) is not None
        self.rig.head += num_pages
        self.rig.require_equal()

    def odd(self, page: int) -> int:
        """Another page, wrong more often than not."""
        beyond = self.rig.num_pages + 1
        return self.rng.choice((0, -1, beyond, beyond + 7, -(2**20), page, 1, beyond - 1))

    def some_pages(self) -> list[int]:
        """Pages that are out, some of them spoiled, no more than are out."""
        owned = sorted(self.rig.model.owned_pages)
        pages = self.rng.sample(owned, self.rng.randint(0, len(owned)))
        for _ in range(self.rng.choice((0, 1, 2))):
            if pages:
                at = self.rng.randrange(len(pages))
                pages[at] = self.rng.choice((self.odd(pages[at]), self.rng.choice(pages)))
        return pages

    def free_ids(self) -> None:
        """Exactly these pages."""
        pages = self.some_pages()
        dtype = self.rng.choice(INTS)

        def launch(guards: Guards, seq: int) -> None:
            target = self.target(len(pages), PARKED_PAGES)
            ids = guards.line("page_ids", pages, dtype)
            self.rig.device.release.release_ids(self.rig.pages, ids, target, seq=seq)

        def told(kind: str, at: int) -> Five:
            first = pages.index(pages[at]) if kind == "Duplicate" else 0
            return self.rig.page_told(pages[at], first, is_id=True)

        self.run(lambda: self.rig.model.free_page_ids(pages), launch, len(pages), told)

    def cut(self, pages: list[int]) -> list[tuple[list[int], int]]:
        """Whole and last half-filled pages in segments, with their starts."""
        size = self.page_size
        parts = []
        start = 0
        while pages:
            here = pages[: self.rng.randint(1, len(pages))]
            del pages[: len(here)]
            slots = [page * size + offset for page in here for offset in range(size)]
            slots = slots[: len(slots) - self.rng.randrange(size)]
            parts.append((slots, start * size))
            start += len(here) + self.rng.randrange(2)
        if parts and self.rng.random() < 0.2:
            slots = self.rng.choice(parts)[0]
            slots[self.rng.randrange(len(slots))] += self.rng.choice((1, -1, size))
        return parts

    def free_segments(self) -> None:
        """Every slot verified, later segments in front."""
        size = self.page_size
        parts = self.cut(self.some_pages())
        flat = [slot for slots, _ in parts for slot in slots]
        ends = list(itertools.accumulate((len(slots) for slots, _ in parts), initial=0))
        per = [-(-len(slots) // size) for slots, _ in parts]
        page_ends = list(itertools.accumulate(per, initial=0))
        if page_ends[-1] > len(self.rig.model.owned_pages):
            return
        dtype = self.rng.choice(INTS)

        def launch(guards: Guards, seq: int) -> None:
            bounds = None
            if len(parts) > 1:
                bounds = guards.line("bounds", ends + page_ends).view(2, len(ends))
            self.rig.device.release.release_segments(
                self.rig.pages,
                guards.line("slots", flat, dtype),
                self.target(page_ends[-1], PARKED_PAGES),
                bounds=bounds,
                num_given=page_ends[-1],
                seq=seq,
            )

        def told(kind: str, at: int) -> Five:
            start = max(end for end in ends[:-1] if end <= at)
            extra = 0
            if kind == "NotConsecutive":
                extra = run_expects(flat, start, at, size)
            elif kind == "Duplicate":
                firsts = [i for a, b in itertools.pairwise(ends) for i in range(a, b, size)]
                extra = next(i for i in firsts if flat[i] // size == flat[at] // size)
            return self.rig.page_told(flat[at], extra)

        self.run(lambda: self.rig.model.free_segments(parts), launch, page_ends[-1], told)

    def some_slots(self) -> list[int]:
        """Slots of pages that are out or parked by slots, several of a page, some spoiled."""
        model, size = self.rig.model, self.page_size
        known = sorted(model.owned_pages | model.slot_parked_pages)
        pages = self.rng.choices(known, k=self.rng.randint(0, len(known) + 2)) if known else []
        for _ in range(self.rng.choice((0, 1, 2))):
            if pages:
                at = self.rng.randrange(len(pages))
                pages[at] = self.odd(pages[at])
        return [page * size + self.rng.randrange(size) for page in pages]

    def free_slots(self, *, segmented: bool) -> None:
        """The distinct pages, ascending; of full segments one after the other."""
        slots = self.some_slots()
        parts: list[tuple[list[int], int]] = []
        while slots:
            cut = self.rng.randint(1, len(slots)) if segmented else len(slots)
            parts.append((slots[:cut], len(parts) * 1000 * self.page_size))
            slots = slots[cut:]
        if segmented and self.rng.random() < 0.7:
            parts = self.disjoint(parts)
        flat = [slot for each, _ in parts for slot in each]
        if not flat:
            return
        starts = list(itertools.accumulate((len(each) for each, _ in parts), initial=0))[:-1]
        num_out = len(self.rig.model.owned_pages)
        dtype = self.rng.choice(INTS)
        front = not (self.rig.model.group_open or self.need_sort)
        slots_device = self.rig.device.slots

        def launch(guards: Guards, seq: int) -> torch.Tensor:
            values, order = torch.tensor(flat, dtype=dtype).sort()
            more = {}
            if len(parts) > 1:
                first = guards.line("starts", starts)
                keys = guards.empty("keys", len(flat))
                slots_device.segment_keys(
                    keys, guards.line("slots", flat, dtype), first, num_segments=len(parts),
                    reverse=front,
                )  # fmt: skip
                sorted_keys = guards.line("sorted_keys", keys.sort().values)
                more = {"keys": sorted_keys, "starts": first, "num_segments": len(parts)}
            count = guards.empty("out", 1)
            slots_device.release_sorted(
                self.rig.pages,
                guards.line("values", values, dtype),
                guards.line("order", order),
                self.target(0, PARKED_SLOTS),
                count,
                num_out=num_out,
                seq=seq,
                **more,
            )
            return count

        def want() -> list[int]:
            if segmented:
                self.rig.model.free_full_segments(parts)
            else:
                self.rig.model.free(flat)
            return [num_out - len(self.rig.model.owned_pages)]

        def told(kind: str, at: int) -> Five:
            size = self.page_size
            if kind == "TooMany":
                parked = self.rig.model.slot_parked_pages
                return len({slot // size for slot in flat} - parked), 0, 0, 0, num_out
            first = 0
            if kind == "Duplicate":
                named = next(i for i, slot in enumerate(flat) if slot // size == flat[at] // size)
                first = sum(start <= named for start in starts) - 1
            return self.rig.page_told(flat[at], first)

        done = self.rig.call(want, launch, "keys", told=told)
        if done is not None:
            self.given(done[0], PARKED_SLOTS)
        self.outcomes["served" if done is not None else "refused"] += 1
        self.rig.require_equal()

    def disjoint(self, parts: list[tuple[list[int], int]]) -> list[tuple[list[int], int]]:
        """Each page in the first of the segments that name it."""
        seen: set[int] = set()
        kept = []
        for slots, start in parts:
            rest = [slot for slot in slots if slot // self.page_size not in seen]
            seen.update(slot // self.page_size for slot in rest)
            if rest:
                kept.append((rest, start))
        return kept

    def merge(self) -> None:
        """Staged pages sorted in, if there are any."""
        self.rig.model.merge_and_sort_free()
        if self.rig.num_staged:
            self.rig.books.remember()
            self.rig.merge()
            self.rig.books.require("ids", "states")
        self.rig.require_equal()

    def group(self) -> None:
        """Open one, or end it and release both piles."""
        model = self.rig.model
        if not model.group_open:
            model.free_group_begin()
            return
        model.free_group_end()
        slots = self.piles[PARKED_SLOTS][: self.num_parked[PARKED_SLOTS]].sort().values
        ids = self.piles[PARKED_PAGES][: self.num_parked[PARKED_PAGES]]
        for pages in (slots, ids):
            self.rig.device.release.release_ids(
                self.rig.pages, pages, self.target(len(pages), 0), seq=self.rig.seq, validate=False
            )
            self.given(len(pages), 0)
        self.num_parked = dict.fromkeys(self.num_parked, 0)
        self.rig.require_equal()


@pytest.mark.parametrize("need_sort", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_frees_are_those_of_the_reference(seed: int, need_sort: bool) -> None:
    """Random takes, frees of every kind, groups and merges; a third of the frees is spoiled."""
    frees = Frees(seed, need_sort=need_sort)
    for _ in range(50):
        step = frees.rng.choice(
            (
                frees.take,
                frees.take,
                frees.free_ids,
                frees.free_segments,
                lambda: frees.free_slots(segmented=False),
                lambda: frees.free_slots(segmented=True),
                frees.group,
                frees.merge,
            )
        )
        step()
    assert frees.outcomes["served"] > 5
    assert frees.outcomes["refused"] > 0
