"""The reference against the second oracle: two texts of one specification, written apart.

Exhaustive walks on pools of one to three pages with every small argument, legal or not; and long
seeded runs of the harness's own commands, some with one number changed. Compared after each call:
answer, whole snapshot, sizes and the reference's audit. `spec/core.md` §2-4b.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import reference
from properties.choices import Choices, Seeded
from properties.commands import Command
from properties.seeded import Picker
from properties.systems import SYSTEMS
from reference import oracle
from reference.examples import SizeConfig

Call = tuple[str, dict[str, Any]]
# The oracle has one form each: singular ones are plural ones with one segment.
PLURAL = {"free_segment": "free_segments", "free_full_segment": "free_full_segments"}
OPERATIONS = (
    "alloc", "alloc_extend", "alloc_decode", "free", "free_page_ids", "free_segments",
    "free_full_segments", "free_group_begin", "free_group_end", "merge_and_sort_free", "clear",
    "resize",
)  # fmt: skip


def answer_of(target: Any, call: Call) -> oracle.Answer:
    """What the reference says, in the oracle's form."""
    method, kwargs = call
    try:
        value = getattr(target, method)(**kwargs)
    except reference.Refused as refusal:
        return refusal.kind
    return None if value is None else tuple(value)


def agree(target: Any, state: oracle.State, call: Call) -> tuple[oracle.State, oracle.Answer]:
    """One call on both; the oracle's next state and answer, once all is equal."""
    method, kwargs = call
    state, expected = getattr(oracle, method)(state, **kwargs)
    found = answer_of(target, call)
    assert found == expected, call
    assert target.snapshot() == oracle.snapshot(state), call
    assert target.available_size() == (len(state.free) + len(state.staged)) * state.page_size
    assert target.get_all_free_pages() == [*state.free, *state.staged]
    assert target.audit() == [], call
    return state, expected


def pair(size: int, page_size: int | None, need_sort: bool) -> tuple[Any, oracle.State]:
    """A reference and an oracle of one config; no page size means the token allocator."""
    if page_size is None:
        made = reference.TokenToKVPoolAllocator(size, need_sort=need_sort)
        return made, oracle.token(size, need_sort)
    paged = reference.PagedTokenToKVPoolAllocator(size, page_size, need_sort=need_sort)
    return paged, oracle.paged(size, page_size, need_sort)


# ---- every call with small arguments --------------------


def every_call(num_pages: int, size: int) -> Iterator[Call]:
    """All operations with all small arguments, of pages of `size` slots."""
    slots, pages = range(-1, (num_pages + 1) * size + 1), range(-1, num_pages + 2)
    for name in ("clear", "free_group_begin", "free_group_end", "merge_and_sort_free"):
        yield name, {}
    for tokens in (-1, num_pages * size, num_pages * size + size, 2**31 - size):
        yield "resize", {"config": SizeConfig(tokens)}
    for tokens in range(-1, (num_pages + 1) * size + 1):
        yield "alloc", {"need_size": tokens}
    for ids in up_to_two(slots):
        yield "free", {"free_index": ids}
    for ids in up_to_two(pages):
        yield "free_page_ids", {"page_ids": ids}
    for segments in every_segments(num_pages, size):
        yield "free_segments", {"segments": segments}
        yield "free_full_segments", {"segments": segments}
    yield from every_growth(slots, size)


def up_to_two(ids: Sequence[int]) -> Iterator[list[int]]:
    for count in range(3):
        yield from map(list, itertools.product(ids, repeat=count))


def every_segments(num_pages: int, size: int) -> Iterator[list[tuple[list[int], int]]]:
    runs = [list(range(page * size, page * size + n)) for page in range(num_pages + 1)
            for n in range(size + 1)]  # fmt: skip
    runs += [[size + 1], [size, size], list(range(size, 3 * size))]
    for run, start in itertools.product(runs, (-size, 0, 1, size)):
        yield [(run, start)]
    for first, second in itertools.product(runs[: size * num_pages + 1], repeat=2):
        for starts in ((0, size), (0, 0), (size, 0)):
            yield [(first, starts[0]), (second, starts[1])]


def every_growth(slots: Sequence[int], size: int) -> Iterator[Call]:
    lens = range(-1, 2 * size + 1)
    yield "alloc_extend", extend_of([], [], [])
    yield "alloc_decode", decode_of([], [])
    for seq, last in itertools.product(lens, slots):
        yield "alloc_decode", decode_of([seq], [last])
        for prefix in lens:
            yield "alloc_extend", extend_of([prefix], [seq], [last])
    both = [-1, *range(size, max(slots))]
    for prefixes in itertools.product(range(size + 1), repeat=2):
        for lasts in itertools.product(both, repeat=2):
            yield "alloc_decode", decode_of([n + 1 for n in prefixes], [*lasts])
            seqs = [prefixes[0] + size, prefixes[1] + 1]
            yield "alloc_extend", extend_of([*prefixes], seqs, [*lasts])


def extend_of(prefix: list[int], seq: list[int], last: list[int]) -> dict[str, Any]:
    return {
        "prefix_lens": prefix, "prefix_lens_cpu": prefix, "seq_lens": seq, "seq_lens_cpu": seq,
        "last_loc": last, "extend_num_tokens": sum(seq) - sum(prefix),
    }  # fmt: skip


def decode_of(seq: list[int], last: list[int]) -> dict[str, Any]:
    return {"seq_lens": seq, "seq_lens_cpu": seq, "last_loc": last}


@pytest.mark.parametrize("need_sort", [False, True], ids=["front", "sorted"])
@pytest.mark.parametrize(
    ("num_pages", "page_size", "most_states"),
    # As many states as take about half a second.
    [(2, None, 30), (3, None, 24), (2, 1, 20), (1, 2, 16), (2, 2, 12), (1, 3, 8)],
)
def test_every_small_call(
    num_pages: int, page_size: int | None, most_states: int, need_sort: bool
) -> None:
    """In each of many states, every call with small arguments has one answer."""
    width, choices = page_size or 1, Seeded(f"states/{num_pages}/{page_size}")
    calls = list(every_call(num_pages, width))
    todo = [pair(num_pages * width + width - 1, page_size, need_sort)]
    known, seen = {todo[0][1]}, set()
    for number in range(most_states):
        # By turns the oldest, and any: the oldest are near the start and much alike.
        target, state = todo.pop(choices.integer(0, len(todo) - 1) if number % 2 else 0)
        fork = copy.deepcopy(target)
        for call in calls:
            after, answer = agree(fork, state, call)
            seen.add(kind_of(answer))
            if after != state:
                if after not in known and len(after.slot_pile) <= 1:
                    known.add(after)
                    todo.append((fork, after))
                fork = copy.deepcopy(target)
    assert calls == list(every_call(num_pages, width)), "an argument was written to"
    wanted = {"served", "None", "TooMany", "GroupOpen", "GroupNotOpen", "StillOwned", "Misaligned"}
    if num_pages > 1:
        wanted |= {"DoubleFree", "Duplicate", "NotOwned", "Reserved", "OutOfRange"}
    assert wanted - {"Misaligned" if width == 1 else ""} <= seen


# ---- long runs --------------------


def spoiled(choices: Choices, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments with one of their numbers changed by a little."""
    made = copy.deepcopy(kwargs)
    lists = [value for value in made.values() if isinstance(value, list) and value]
    if not lists:
        return made
    chosen = choices.pick(lists)
    at = choices.integer(0, len(chosen) - 1)
    step = choices.pick((-2, -1, 1, 2))
    if isinstance(chosen[at], tuple):
        ids, start = chosen[at]
        chosen[at] = ([each + step * (i == 0) for i, each in enumerate(ids)], start)
    else:
        chosen[at] += step
    return made


def oracle_call(command: Command, model: Any) -> Call | None:
    """A command as a call that the oracle has; None where it is about types, or has no form."""
    call: Any = command.call(model, model.side)
    if call is None or call.distortion is not None:
        return None
    method, kwargs = call.method, dict(call.args)
    if method == "free_full":
        method = "free"
    if method in PLURAL:
        method, kwargs = PLURAL[method], {"segments": [(kwargs["free_index"], kwargs["start_pos"])]}
    return (method, kwargs) if method in OPERATIONS else None


def long_run(name: str, seed: int, steps: int, seen: Counter[tuple[str, str]]) -> None:
    """Commands of the harness on reference and oracle; a spoiled twin is judged on copies."""
    system, choices = SYSTEMS[name], Seeded(f"oracle/{name}/{seed}")
    config = system.config.draw(choices, {})
    page_size = config.page_size if name == "paged" else None
    target, state = pair(config.size, page_size, config.need_sort)
    model = system.model(config, target)
    model.calls = frozenset(dir(target))
    picker = Picker(system.commands)
    for _ in range(steps):
        command = picker.draw(choices, model)
        call = None if command is None else oracle_call(command, model)
        if command is None or call is None:
            continue
        if choices.integer(0, 3) == 0:
            twin = call[0], spoiled(choices, call[1])
            _, answer = agree(copy.deepcopy(target), state, twin)
            seen[call[0], kind_of(answer)] += 1
        state, answer = agree(target, state, call)
        seen[call[0], kind_of(answer)] += 1
        if not isinstance(answer, str) and not (answer is None and call[0].startswith("alloc")):
            value = list(answer) if isinstance(answer, tuple) else answer
            assert command.settle(model, model.side, value) == []
        model.state = target.snapshot()


def kind_of(answer: oracle.Answer) -> str:
    return answer if isinstance(answer, str) else "None" if answer is None else "served"


@pytest.mark.parametrize("name", ["token", "paged"])
def test_long_runs(name: str) -> None:
    """Runs of a hundred commands, and their spoiled twins, have one answer each."""
    seen: Counter[tuple[str, str]] = Counter()
    for seed in range(40):
        long_run(name, seed, 100, seen)
    methods = OPERATIONS if name == "paged" else set(OPERATIONS) - {"alloc_extend", "alloc_decode"}
    assert {method for method, kind in seen if kind in ("served", "None")} >= set(methods)
    kinds = {kind for _, kind in seen}
    assert {"served", "None", "TooMany", "DoubleFree", "Duplicate", "OutOfRange"} <= kinds
    if name == "paged":
        assert {"BadLengths", "BadLastLoc", "NotConsecutive", "Misaligned"} <= kinds
