"""Metamorphic properties of the paged allocator: two ways to the same end that must agree.

No reference is asked: one run of `impl` is held against another of a changed trace or pool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from properties.choices import FromHypothesis
from properties.commands import ALLOCATING, Call, Command
from properties.renaming import structure
from properties.subjects.impl import make
from properties.systems import growth, releases, slots
from properties.systems.paged import PagedConfig
from properties.systems.slot_model import SlotModel

pytestmark = pytest.mark.system("paged")

# Longer traces fill the pools anyway; 64-slot pages only cost time here.
MOST_COMMANDS = 24
LIMITS = {"page_size": (1, 2, 3, 4, 16), "num_pages": (2, 3, 5, 8, 13)}
FREES: tuple[type[Command], ...] = (
    releases.Free, releases.FreeFull, releases.FreePageIds, releases.FreeSegment,
    releases.FreeSegments, releases.FreeFullSegment, releases.FreeFullSegments, growth.Trim,
)  # fmt: skip
GROWTH: tuple[type[Command], ...] = (growth.Extend, growth.Extend, growth.Decode, slots.Alloc)
GROUPS: tuple[type[Command], ...] = (slots.GroupBegin, slots.GroupEnd, growth.FreeParked)
UNGROUPED = (*GROWTH, *GROWTH, *FREES, slots.Merge)

Trace = tuple[PagedConfig, list[Command]]


class Run:
    """One pool of `impl`, driven by commands alone; `narrow` makes every tensor int32."""

    def __init__(self, config: PagedConfig, *, narrow: bool = False, **options: Any) -> None:
        self.config = config
        self.dtype = "int32" if narrow else "int64"
        self.subject = make("paged", config, **options)
        self.model = SlotModel(config, self.subject.target, paged=True)
        self.model.calls = self.subject.calls

    def call(self, method: str, **args: Any) -> Any:
        value = self.subject.call(Call(method, args, self.dtype))
        self.model.state = self.state()
        return value

    def do(self, command: Command) -> Any:
        """The command's result; None when short, or where the command means nothing here."""
        model = self.model
        if not command.applies(model):
            return None
        made = command.call(model, model.side)
        value = self.subject.call(made._replace(dtype=self.dtype))
        if value is not None or made.method not in ALLOCATING:
            assert command.settle(model, model.side, value) == []
        model.state = self.state()
        return value

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.subject.target.snapshot()
        return found

    def shape(self) -> Any:
        """What doesn't depend on order: rows up to a renaming, what is available, the group."""
        rows = structure(self.model.side.rows, self.config.page_size)
        return rows, self.subject.target.available_size(), self.model.group

    def available(self) -> list[int]:
        return sorted(self.subject.target.get_all_free_pages().tolist())


@st.composite
def traces(draw: Callable[[Any], Any], kinds: Sequence[type[Command]]) -> Trace:
    """A config, and commands of these kinds that apply one after the other."""
    choices = FromHypothesis(draw)
    config = PagedConfig.draw(choices, LIMITS)
    run, commands = Run(config), []
    for _ in range(choices.integer(1, MOST_COMMANDS)):
        kind = choices.pick(kinds)
        if kind.enabled(run.model):
            command = kind.draw(choices, run.model)
            if command.applies(run.model):
                commands.append(command)
                run.do(command)
    return config, commands


def rerun(trace: Trace, **options: Any) -> Run:
    """The trace on a pool of its own."""
    config, commands = trace
    run = Run(config, **options)
    for command in commands:
        run.do(command)
    return run


@given(traces(UNGROUPED))
def test_groups_only_defer(trace: Trace) -> None:
    """Frees in a group leave, once it ends, what they leave without one, up to order."""
    config, commands = trace
    plain, grouped = Run(config), Run(config)
    for command in commands:
        frees = isinstance(command, FREES)
        if grouped.model.group and not frees:
            grouped.do(slots.GroupEnd())
            assert grouped.shape() == plain.shape()
        elif frees and not grouped.model.group:
            grouped.do(slots.GroupBegin())
        assert (plain.do(command) is None) == (grouped.do(command) is None)
    if grouped.model.group:
        grouped.do(slots.GroupEnd())
    assert grouped.shape() == plain.shape()


@given(traces((*UNGROUPED, *GROUPS)))
def test_sorting_only_reorders(trace: Trace) -> None:
    """With and without `need_sort` the same calls are served and rows are built alike."""
    config, commands = trace
    runs = [Run(replace(config, need_sort=need_sort)) for need_sort in (False, True)]
    for command in commands:
        served = [run.do(command) is not None for run in runs]
        assert served[0] == served[1]
        assert runs[0].shape() == runs[1].shape()


@given(traces((*UNGROUPED, *GROUPS, slots.Clear)))
def test_validation_changes_no_result(trace: Trace) -> None:
    """With and without `validate` legal calls give the same slots and leave the same state."""
    config, commands = trace
    checked, unchecked = Run(config), Run(config, validate=False)
    for command in commands:
        assert checked.do(command) == unchecked.do(command)
        assert checked.state() == unchecked.state()


@given(traces((*UNGROUPED, *GROUPS, slots.Clear)))
def test_int32_is_int64(trace: Trace) -> None:
    """int32 arguments give the slots and leave the state that int64 ones do."""
    config, commands = trace
    wide, narrow = Run(config), Run(config, narrow=True)
    for command in commands:
        assert wide.do(command) == narrow.do(command)
        assert wide.state() == narrow.state()


@given(traces(UNGROUPED), st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_chunks_add_up(trace: Trace, chunks: list[int]) -> None:
    """An extend in chunks builds the rows that one extend builds, if it is served at all."""
    whole, parts = rerun(trace), rerun(trace)
    names = [*list(whole.model.side.rows)[:1], whole.model.next_name]
    tokens = sum(chunks)
    growing = tuple((name, tokens) for name in names)
    if whole.do(growth.Extend(growing, False, False)) is not None:
        for chunk in chunks:
            requests = tuple((name, chunk) for name in names)
            assert parts.do(growth.Extend(requests, False, False)) is not None
        assert parts.shape() == whole.shape()


@given(st.integers(1, 17), st.lists(st.integers(1, 20), min_size=1, max_size=8))
def test_chunks_of_a_single_request(page_size: int, chunks: list[int]) -> None:
    """With one request and no other use, chunks get the very slots that one extend gets."""
    pages = -(-sum(chunks) // page_size)
    config = PagedConfig(page_size=page_size, num_pages=pages, spare=0, need_sort=False)
    whole, parts = Run(config), Run(config)
    whole.do(growth.Extend(((0, sum(chunks)),), False, False))
    for chunk in chunks:
        parts.do(growth.Extend(((0, chunk),), False, False))
    assert parts.model.side.rows == whole.model.side.rows
    assert parts.state() == whole.state()


@given(traces(UNGROUPED), st.sampled_from(("free", "free_full", "free_page_ids")))
def test_a_free_of_two_is_two_frees(trace: Trace, method: str) -> None:
    """Freeing what two requests hold in one call releases what two calls release."""
    together, apart = rerun(trace), rerun(trace)
    page_size, rows = together.config.page_size, list(together.model.side.rows.values())[:2]
    by_pages = method == "free_page_ids"
    parts = [list(dict.fromkeys(s // page_size for s in row.slots)) for row in rows]
    ids = parts if by_pages else [row.slots for row in rows]
    name = "page_ids" if by_pages else "free_index"
    together.call(method, **{name: [each for part in ids for each in part]})
    for part in ids:
        apart.call(method, **{name: part})
    assert together.available() == apart.available()
    assert together.state()["holders"] == apart.state()["holders"]


@given(traces(UNGROUPED), st.integers(0, 4))
def test_alloc_then_free_is_nothing(trace: Trace, pages: int) -> None:
    """What is allocated and freed again leaves the same pages available and owned."""
    run = rerun(trace)
    before, owned = run.available(), run.state()["holders"]
    taken = run.call("alloc", need_size=pages * run.config.page_size)
    if taken is not None:
        run.call("free", free_index=taken)
    assert run.available() == before
    assert run.state()["holders"] == owned


@given(traces(UNGROUPED), st.booleans())
def test_siblings_agree(trace: Trace, grouped: bool) -> None:
    """All ways to free a request release the same pages, in a group or not."""
    first = rerun(trace)
    rows, page_size = list(first.model.side.rows.values()), first.config.page_size
    if not rows:
        return
    ids, start = rows[-1].slots, rows[-1].start
    pages = list(dict.fromkeys(slot // page_size for slot in ids))
    ways: dict[str, dict[str, Any]] = {
        "free": {"free_index": ids},
        "free_full": {"free_index": ids},
        "free_page_ids": {"page_ids": pages},
        "free_segment": {"free_index": ids, "start_pos": start},
        "free_segments": {"segments": [(ids, start)]},
        "free_full_segment": {"free_index": ids, "start_pos": start},
        "free_full_segments": {"segments": [(ids, start)]},
    }
    due = sorted([*first.available(), *pages])
    for method, args in ways.items():
        run = rerun(trace)
        if grouped:
            run.call("free_group_begin")
        run.call(method, **args)
        if grouped:
            assert run.available() == first.available()
            run.call("free_group_end")
        assert run.available() == due
        assert not set(pages).intersection(run.state()["holders"])
