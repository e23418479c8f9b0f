"""The row calls of the reference against the second oracle: long seeded runs, right and spoiled.

Compared after each call: answer, whole snapshot, both tables and the audit. `spec/core.md` §5a.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest

import reference
from properties.choices import Seeded
from reference import oracle
from reference.examples import SizeConfig

WIDTH, NUM_ROWS, NUM_TABLES = 11, 4, 2
Call = tuple[str, dict[str, Any]]
PLAIN = {
    "alloc": oracle.alloc,
    "free": oracle.free,
    "free_page_ids": oracle.free_page_ids,
    "free_group_begin": oracle.free_group_begin,
    "free_group_end": oracle.free_group_end,
    "merge_and_sort_free": oracle.merge_and_sort_free,
    "clear": oracle.clear,
    "resize": oracle.resize,
}
ROW_CALLS = {
    "alloc_extend_rows": oracle.alloc_extend_rows,
    "alloc_decode_rows": oracle.alloc_decode_rows,
    "free_rows_segment": oracle.free_rows_segment,
}
POOL = {"alloc_rows": oracle.alloc_rows, "free_rows": oracle.free_rows}


class Both:
    """The reference and the oracle of one config, with two tables each."""

    def __init__(self, choices: Seeded) -> None:
        size, page_size = choices.integer(0, 20), choices.integer(1, 4)
        need_sort = choices.boolean()
        self.page_size = page_size
        self.target = reference.PagedTokenToKVPoolAllocator(size, page_size, need_sort=need_sort)
        self.tables = [reference.ReqToTokenPool(NUM_ROWS, WIDTH) for _ in range(NUM_TABLES)]
        tables = (oracle.table(NUM_ROWS, WIDTH),) * NUM_TABLES
        self.house = oracle.House(oracle.paged(size, page_size, need_sort), tables)

    def agree(self, call: Call) -> oracle.Answer:
        """One call on both; the answer, once all is equal."""
        expected = self.expect(call)
        found = self.attempt(call)
        assert found == expected, call
        assert self.target.snapshot() == oracle.snapshot(self.house.state), call
        for table, twin in zip(self.tables, self.house.tables, strict=True):
            assert tuple(map(tuple, table.req_to_token)) == twin.lines, call
            assert table.snapshot()["generations"] == list(twin.rows.generations)
        assert self.target.audit() == [], call
        return expected

    def expect(self, call: Call) -> oracle.Answer:
        method, kwargs = call
        house = self.house
        answer: oracle.Answer
        if method in PLAIN:
            state, answer = PLAIN[method](house.state, **kwargs)  # type: ignore[operator]
            self.house = house._replace(state=state)
        elif method in ROW_CALLS:
            self.house, answer = ROW_CALLS[method](house, **kwargs)  # type: ignore[operator]
        elif method == "write":
            self.house, answer = oracle.write(house, **kwargs), None
        else:
            at = kwargs["table"]
            given = {key: value for key, value in kwargs.items() if key != "table"}
            rows, answer = POOL[method](house.tables[at].rows, **given)  # type: ignore[operator]
            tables = list(house.tables)
            tables[at] = tables[at]._replace(rows=rows)
            self.house = house._replace(tables=tuple(tables))
        return answer

    def attempt(self, call: Call) -> oracle.Answer:
        method, kwargs = call
        made = copy.deepcopy(kwargs)
        target: Any = self.target
        if method == "write":
            line = self.tables[made["number"]].req_to_token[made["row"]]
            line[made["start"] : made["start"] + len(made["values"])] = made["values"]
            return None
        if method in POOL:
            target = self.tables[made.pop("table")]
        elif made.get("table") is not None:
            made["table"] = self.tables[made["table"]]
        try:
            value = getattr(target, method)(**made)
        except reference.Refused as refusal:
            return refusal.kind
        return None if value is None else tuple(value)


class Walk:
    """A seeded run; `lens` is how far each row of the first table is filled."""

    def __init__(self, seed: int) -> None:
        self.choices = Seeded(f"oracle row calls/{seed}")
        self.both = Both(self.choices)
        self.lens = [0] * (NUM_ROWS + 1)
        self.seen: Counter[tuple[str, str]] = Counter()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            call = self.draw()
            self.note(call, self.both.agree(call))

    def note(self, call: Call, answer: oracle.Answer) -> None:
        kind = answer if isinstance(answer, str) else "None" if answer is None else "served"
        self.seen[call[0], kind] += 1
        if isinstance(answer, tuple) and call[0] in ROW_CALLS:
            for row, seq in zip(call[1]["rows_cpu"], call[1]["seq_lens_cpu"], strict=True):
                self.lens[row] = seq

    def draw(self) -> Call:
        choices, state = self.choices, self.both.house.state
        draw = choices.integer(0, 19)
        if draw < 8:
            return self.spoiled(self.growth())
        if draw < 12:
            return self.segment()
        if draw == 12:
            return "free", {"free_index": [p * state.page_size for p in self.owned()]}
        if draw == 13:
            return "alloc", {"need_size": state.page_size * choices.integer(0, 2)}
        if draw == 14:
            end = "end" if state.group else "begin"
            return f"free_group_{end}", {}
        if draw == 15:
            return self.write()
        if draw == 16:
            return "merge_and_sort_free", {}
        if draw == 17 and choices.integer(0, 3) == 0:
            if choices.boolean() and not state.owned and not state.group:
                return "resize", {"config": SizeConfig(choices.integer(0, 20))}
            return "clear", {}
        at = choices.integer(0, NUM_TABLES - 1, (0, 0))
        if draw == 18:
            held = sorted(self.both.house.tables[at].rows.held)
            return "free_rows", {"table": at, "indices": choices.subset(held, 0, 1)}
        return "alloc_rows", {"table": at, "need_size": choices.integer(0, 2)}

    def owned(self) -> list[int]:
        return self.choices.subset(sorted(self.both.house.state.owned), 0, 2)

    def growth(self) -> Call:
        choices = self.choices
        at = choices.integer(0, 9, (0, 0)) // 9
        rows = choices.subset(sorted(self.both.house.tables[at].rows.held), 0, 3)
        rows = rows[::-1] if choices.boolean() else rows
        prefix = [
            self.lens[row] if choices.integer(0, 4) else choices.integer(0, WIDTH) for row in rows
        ]
        if choices.boolean():
            seq = [min(n + 1, WIDTH) for n in prefix]
            lens = {"seq_lens": seq, "seq_lens_cpu": list(seq)}
            return "alloc_decode_rows", {"table": at, "rows": rows, "rows_cpu": list(rows), **lens}
        seq = [choices.integer(n, max(n, WIDTH)) for n in prefix]
        args = {
            "table": at, "rows": rows, "rows_cpu": list(rows), "prefix_lens": prefix,
            "prefix_lens_cpu": list(prefix), "seq_lens": seq, "seq_lens_cpu": list(seq),
            "extend_num_tokens": sum(seq) - sum(prefix),
        }  # fmt: skip
        return "alloc_extend_rows", args

    def spoiled(self, call: Call) -> Call:
        """Sometimes with one number of a list, or of a list and its host copy, changed."""
        method, kwargs = call
        if self.choices.integer(0, 2) or not kwargs["rows"]:
            return call
        lists = [key for key, value in kwargs.items() if isinstance(value, list)]
        key = self.choices.pick(lists)
        at, step = self.choices.integer(0, len(kwargs[key]) - 1), self.choices.pick((-2, -1, 1, 2))
        names = [key] if self.choices.boolean() else [key.removesuffix("_cpu")]
        names += [f"{names[0]}_cpu"] if names[0] != key or self.choices.boolean() else []
        made = copy.deepcopy(kwargs)
        for name in (name for name in dict.fromkeys(names) if name in made):
            made[name][at] += step
        if self.choices.boolean() and "extend_num_tokens" in made:
            made["extend_num_tokens"] = sum(made["seq_lens_cpu"]) - sum(made["prefix_lens_cpu"])
        if self.choices.integer(0, 9) == 0:
            made[key] = made[key][1:]
        return method, made

    def segment(self) -> Call:
        choices, size = self.choices, self.both.page_size
        rows = self.both.house.tables[0].rows
        row = choices.integer(0, NUM_ROWS + 1, tuple(rows.held) or (1,))
        generation = rows.generations[row] if row <= NUM_ROWS else 1
        stale = choices.integer(0, 7) == 0
        filled = self.lens[row] if row <= NUM_ROWS else 1
        start = choices.integer(0, max(0, (filled - 1) // size)) * size
        start += choices.integer(0, 9) // 9
        end = choices.integer(start - 1, WIDTH + 1, (filled, filled))
        args: dict[str, Any] = {"handle": (row, generation - stale), "start": start, "end": end}
        if choices.boolean():
            args["table"] = choices.integer(0, 9) // 9
        return "free_rows_segment", args

    def write(self) -> Call:
        """Entries that are another row's, or anything: what a prefix hit or a mistake leaves."""
        choices = self.choices
        row, other = choices.integer(1, NUM_ROWS), choices.integer(0, NUM_ROWS)
        count = choices.integer(0, self.lens[other])
        values = list(self.both.house.tables[0].lines[other][:count])
        if values and choices.integer(0, 5) == 0:
            values[-1] += choices.integer(-4, 4)
        self.lens[row] = count
        return "write", {"number": 0, "row": row, "start": 0, "values": values}


def test_long_runs() -> None:
    """Runs of 150 calls, right and wrong ones, have one answer each."""
    seen: Counter[tuple[str, str]] = Counter()
    for seed in range(120):
        walk = Walk(seed)
        walk.run(150)
        seen += walk.seen
    grown = {"served", "None", "BadLengths", "BadLastLoc", "OutOfRange", "Reserved", "Duplicate",
             "RowNotHeld", "Unsupported"}  # fmt: skip
    released = {"None", "NegativeSize", "Misaligned", "NotConsecutive", "OutOfRange", "Reserved",
                "NotOwned", "DoubleFree", "Duplicate", "TooMany", "StaleHandle",
                "Unsupported"}  # fmt: skip
    for method in ROW_CALLS:
        wanted = released if method == "free_rows_segment" else grown
        assert wanted - {kind for name, kind in seen if name == method} == set(), method


@pytest.mark.parametrize("method", ROW_CALLS)
def test_the_token_allocator_has_none(method: str) -> None:
    """Row calls are refused where pages are slots (§5a)."""
    target, table = reference.TokenToKVPoolAllocator(4), reference.ReqToTokenPool(1, 4)
    calls: dict[str, dict[str, Any]] = {
        "alloc_extend_rows": {
            "rows": [], "rows_cpu": [], "prefix_lens": [], "prefix_lens_cpu": [], "seq_lens": [],
            "seq_lens_cpu": [], "extend_num_tokens": 0,
        },
        "alloc_decode_rows": {"rows": [], "rows_cpu": [], "seq_lens": [], "seq_lens_cpu": []},
        "free_rows_segment": {"handle": (1, 1), "start": 0, "end": 0},
    }  # fmt: skip
    with pytest.raises(reference.Refused) as refusal:
        getattr(target, method)(table=table, **calls[method])
    assert refusal.value.kind == "Unsupported"
    house = oracle.House(oracle.token(4), (oracle.table(1, 4),))
    assert ROW_CALLS[method](house, table=0, **calls[method])[1] == "Unsupported"  # type: ignore[operator]
