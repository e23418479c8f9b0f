"""What `impl` says when it refuses, and what it still refuses with `validate=False`.

Spec: `spec/core.md` §4, §4b; DESIGN, "impl: how every class behaves".
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from impl import PoolError
from impl.errors import MAX_IDS_SHOWN, BadLastLoc, TooMany, Unsupported
from properties.seeded import Plan, run_steps
from properties.subjects import load
from properties.systems import SYSTEMS
from properties.test_impl import POOLS, Maker, ids, paged, rows, token

Act = Callable[[Any], Any]


def two_pages() -> Any:
    """Pages 1..3 of 48 slots are out, page 1 has come back, pages 4..8 were never issued."""
    pool = paged(8)
    pool.alloc(3 * 48)
    pool.free(ids(48))
    return pool


def extend(pool: Any, prefix: int, seq: int, last: int, **changes: Any) -> Any:
    args: dict[str, Any] = {
        "prefix_lens": ids(prefix), "prefix_lens_cpu": ids(prefix), "seq_lens": ids(seq),
        "seq_lens_cpu": ids(seq), "last_loc": ids(last), "extend_num_tokens": seq - prefix,
    }  # fmt: skip
    return pool.alloc_extend(**{**args, **changes})


@pytest.mark.parametrize(
    ("act", "kind", "words"),
    [
        (lambda p: p.alloc(-48), "NegativeSize", ["-48", "at least 0"]),
        (lambda p: p.alloc(50), "NotPageMultiple", ["50", "48"]),
        (lambda p: p.alloc("48"), "WrongDtype", ["str", "int"]),
        (lambda p: p.free(ids(96, 10_000)), "OutOfRange", ["10000", "[1]", "1..8"]),
        (lambda p: p.free(ids(-1)), "OutOfRange", ["-1", "1..8"]),
        (lambda p: p.free(ids(47)), "Reserved", ["47", "page 0"]),
        (lambda p: p.free(ids(200)), "NotOwned", ["200", "page 4", "issued since"]),
        (lambda p: p.free(ids(96, 50)), "DoubleFree", ["[1]", "50", "page 1", "free"]),
        (lambda p: p.free_page_ids(ids(2, 1)), "DoubleFree", ["[1]", "page 1", "free"]),
        (lambda p: p.free_page_ids(ids(3, 3)), "Duplicate", ["[1]", "page 3", "0"]),
        (lambda p: p.free_page_ids(ids(2, 3, 4)), "TooMany", ["3", "2", "out"]),
        (lambda p: p.free_segment(ids(97), start_pos=1), "Misaligned", ["1", "48"]),
        (lambda p: p.free_segment(ids(97), start_pos=-48), "NegativeSize", ["-48"]),
        (lambda p: p.free_segment(ids(96, 98), start_pos=0), "NotConsecutive", ["98", "97"]),
        (
            lambda p: p.free_segments([(ids(96), 0), (ids(144), 0)]),
            "OverlappingSegments",
            ["segment 1", "0", "ascending"],
        ),
        (
            lambda p: p.free_full_segments([(ids(96), 0), (ids(144, 97), 48)]),
            "Duplicate",
            ["free_full_segments: [2] slot 97 (page 2) belongs to segment 0 already"],
        ),
        (lambda p: p.free([48]), "WrongDtype", ["free_index", "list", "tensor"]),
        (lambda p: p.free(torch.ones(2)), "WrongDtype", ["float32", "int32", "int64"]),
        (lambda p: p.free(ids(96).view(1, 1)), "WrongShape", ["(1, 1)", "one dimension"]),
        (lambda p: p.free(ids(96).to("meta")), "WrongDevice", ["meta", "cpu"]),
        (lambda p: extend(p, 2, 1, 97), "BadLengths", ["prefix 2", "seq 1"]),
        (lambda p: extend(p, 0, 5, -1, extend_num_tokens=6), "BadLengths", ["6", "5"]),
        (lambda p: extend(p, 0, 5, -1, num_new_pages=0), "BadLengths", ["0", "1"]),
        (lambda p: extend(p, 0, 5, -1, seq_lens=ids(6)), "BadLengths", ["(0, 6)", "(0, 5)"]),
        (lambda p: extend(p, 2, 5, 99), "BadLastLoc", ["99", "2"]),
        (lambda p: extend(p, 2, 5, 49), "BadLastLoc", ["49", "page 1", "free"]),
        (lambda p: p.alloc_decode(ids(0), ids(0), ids(-1)), "BadLengths", ["seq 0", "1"]),
        # what is wrong with host lengths comes before what is wrong with a tensor beside them
        (lambda p: p.alloc_decode(ids(0).float(), ids(0), ids(-1)), "BadLengths", ["seq 0"]),
        (lambda p: p.alloc_decode(ids(1), ids(0), ids(-1)[None]), "BadLengths", ["seq 0"]),
        (lambda p: p.resize(SimpleNamespace(max_total_num_tokens=96)), "StillOwned", ["2"]),
        (lambda p: p.free_group_end(), "GroupNotOpen", ["no group", "Begin"]),
    ],
)
def test_message(act: Act, kind: str, words: list[str]) -> None:
    """A refusal is of its kind, names the ids and where they stood, and says what is expected."""
    pool = two_pages()
    before = pool.snapshot()
    with pytest.raises(PoolError) as caught:
        act(pool)
    assert type(caught.value).__name__ == kind
    message = str(caught.value)
    assert [word for word in words if word not in message] == [], message
    assert message.endswith(".")
    assert not message.endswith("..")
    assert pool.snapshot() == before


def batch(pool: Any, prefix: torch.Tensor, seq: torch.Tensor) -> Any:
    tokens = int((seq - prefix).sum())
    return pool.alloc_extend(prefix, prefix, seq, seq, -torch.ones_like(seq), tokens)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (
            lambda p: p.alloc_decode(ids(5, 0, 1), ids(5, 0, 1), ids(-1, -1, -1)),
            "alloc_decode: [1] seq 0. Lengths count the new token: at least 1.",
        ),
        (
            lambda p: batch(p, ids(3, 2, -1, 0, 0), ids(3, 1, 4, 0, 2)),
            "alloc_extend: [1] prefix 2, seq 1; [2] prefix -1, seq 4."
            " A prefix lies between 0 and its seq.",
        ),
        (
            lambda p: p.alloc_decode(*[ids(*[0] * MAX_IDS_SHOWN)] * 2, ids(*[-1] * MAX_IDS_SHOWN)),
            f"alloc_decode: {'; '.join(f'[{i}] seq 0' for i in range(MAX_IDS_SHOWN))}."
            " Lengths count the new token: at least 1.",
        ),
        (
            lambda p: p.alloc_decode(ids(1, 2), ids(1), ids(-1)),
            "seq_lens, last_loc, seq_lens_cpu have [2, 1, 1] entries."
            " Give one entry per request in each.",
        ),
    ],
)
def test_whole_message(act: Act, message: str) -> None:
    """Of a batch the requests at fault are named, by their places, and no others."""
    with pytest.raises(PoolError) as caught:
        act(two_pages())
    assert str(caught.value) == message


def test_long_messages_stay_short() -> None:
    """A call with a thousand bad ids names some of them and how many there are."""
    pool = paged(2000, 1)
    pool.alloc(1500)
    with pytest.raises(PoolError, match="992 more") as caught:
        pool.free_page_ids(torch.arange(5000, 6000))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(("seq", "kind"), [(6, "RowNotHeld"), (7, "OutOfRange")])
def test_a_row_has_room_up_to_its_width(seq: int, kind: str) -> None:
    """A length that just fits isn't what is wrong with a batch."""
    none, most = ids(0), ids(seq)
    with pytest.raises(PoolError) as caught:
        paged().alloc_extend_rows(rows(4, 6), ids(4), ids(4), none, none, most, most, seq)
    assert type(caught.value).__name__ == kind


def test_requests_beyond_those_that_are_named() -> None:
    """Of a batch one more than the limit is counted too."""
    lens, last = (ids(*[each] * (MAX_IDS_SHOWN + 1)) for each in (0, -1))
    with pytest.raises(PoolError, match="seq 0; and 1 more"):
        paged().alloc_decode(lens, lens, last)


@pytest.mark.parametrize(
    ("more", "words"), [(0, "since the last clear. Free"), (1, "; and 1 more. Free")]
)
def test_the_last_that_is_named(more: int, words: str) -> None:
    """All are named up to the limit, and one more is counted."""
    with pytest.raises(PoolError) as caught:
        two_pages().free(ids(*range(200, 200 + MAX_IDS_SHOWN + more)))
    assert words in str(caught.value)
    assert ("more" in str(caught.value)) == (more > 0)


@pytest.mark.parametrize(("page_size", "what"), [(1, "ids"), (2, "pages")])
def test_what_is_too_many(page_size: int, what: str) -> None:
    """More than are out are called pages, or ids where a page is one slot."""
    with pytest.raises(TooMany, match=f"1 {what}"):
        paged(4, page_size).free_page_ids(ids(1))


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        (lambda p: p.alloc(-1), "NegativeSize"),
        (lambda p: p.alloc(1.0), "WrongDtype"),
        (lambda p: p.free(torch.ones(1)), "WrongDtype"),
        (lambda p: p.free(ids(96).view(1, 1)), "WrongShape"),
        (lambda p: p.free(ids(96).to("meta")), "WrongDevice"),
        (lambda p: p.free_segment(ids(97), start_pos=1), "Misaligned"),
        (lambda p: p.free_segment(ids(97), start_pos=-48), "NegativeSize"),
        (lambda p: p.free_full_segments([(ids(96), 0), (ids(144), 0)]), "OverlappingSegments"),
        (lambda p: extend(p, 2, 1, 97), "BadLengths"),
        (lambda p: extend(p, 0, 5, -1, extend_num_tokens=6), "BadLengths"),
        (lambda p: extend(p, 0, 5, -1, num_new_pages=7), "BadLengths"),
        (lambda p: extend(p, 0, 5, -1, last_loc=ids()), "BadLengths"),
        (lambda p: p.free_page_ids(ids(1, 2, 3, 4)), "TooMany"),
        (lambda p: p.free(ids(48, 96, 144, 192)), "TooMany"),
        (lambda p: p.free_full_segment(ids(48, 96, 144, 192), start_pos=0), "TooMany"),
        (lambda p: p.free_segment(torch.arange(48, 193), start_pos=0), "TooMany"),
        (lambda p: p.free_group_end(), "GroupNotOpen"),
        (lambda p: p.resize(SimpleNamespace(max_total_num_tokens=48)), "StillOwned"),
    ],
)
def test_immediate_faults_without_validation(act: Act, kind: str) -> None:
    """`validate=False` still refuses whatever host data decide, and nothing has changed."""
    pool = paged(8, validate=False)
    pool.alloc(3 * 48)
    before = pool.snapshot()
    with pytest.raises(PoolError) as caught:
        act(pool)
    assert type(caught.value).__name__ == kind
    assert pool.snapshot() == before


@pytest.mark.parametrize(
    "act",
    [
        lambda p, table: extend(p, 2, 5, 99),
        lambda p, table: extend(p, 0, 5, -1, seq_lens=ids(6)),
        lambda p, table: p.alloc_decode(ids(3), ids(3), ids(99)),
        lambda p, table: p.alloc_decode(ids(4), ids(3), ids(97)),
        lambda p, table: p.alloc_extend_rows(
            table, ids(4), ids(4), *[ids(2)] * 2, *[ids(5)] * 2, 3
        ),
        lambda p, table: p.alloc_decode_rows(table, ids(4), ids(4), ids(3), ids(3)),
        lambda p, table: p.free_segment(ids(96, 98), start_pos=0),
        lambda p, table: p.free(ids(48)),
        lambda p, table: p.free_page_ids(ids(1)),
        lambda p, table: p.free_rows_segment(table.handle(4), 0, 1, table=table),
    ],
)
def test_values_are_validated_or_not(act: Callable[[Any, Any], Any]) -> None:
    """What is refused for its values is let pass with `validate=False`."""
    for validate in (True, False):
        pool, table = paged(8, validate=validate), rows()
        table.alloc_rows(1)
        pool.alloc(3 * 48)
        pool.free(ids(48))
        if validate:
            with pytest.raises(PoolError):
                act(pool, table)
        else:
            act(pool, table)


def test_an_entry_that_was_never_written_is_named() -> None:
    """The place in the table that a decode found empty is that of the token before."""
    pool, table = paged(8), rows()
    table.alloc_rows(1)
    with pytest.raises(BadLastLoc, match=r"entry \(4, 1\) is 0: it was never written"):
        pool.alloc_decode_rows(table, ids(4), ids(4), ids(3), ids(3))


@POOLS
@pytest.mark.parametrize("need_sort", [False, True])
def test_unvalidated_frees_never_overrun(make: Maker, need_sort: bool) -> None:
    """Without validation a page freed again and again ends in TooMany, never past the lists."""
    pool = make(validate=False, need_sort=need_sort)
    size = pool.page_size
    slots = pool.alloc(3 * size)
    for _ in range(3):
        pool.free(slots[:size])
    for again in (pool.free, pool.free_full):
        with pytest.raises(TooMany):
            again(slots[:size])
    with pytest.raises(TooMany):
        pool.free_segment(slots[:size], start_pos=0)
    with pytest.raises(TooMany):
        pool.free_page_ids(slots[:1] // size)
    assert pool.available_size() == 8 * size
    assert len(pool.get_all_free_pages()) == 8
    pool.clear()
    assert pool.audit() == []


@POOLS
def test_validation_changes_no_legal_call(make: Maker) -> None:
    """Legal calls give the same slots and lists with and without validation."""
    pools = [make(validate=flag, need_sort=True) for flag in (True, False)]
    for pool in pools:
        slots = pool.alloc(5 * pool.page_size)
        with pool.free_group():
            pool.free(slots[: pool.page_size])
            pool.free_page_ids(slots[-1:] // pool.page_size)
        pool.alloc(4 * pool.page_size)
    assert pools[0].snapshot() == pools[1].snapshot()


def test_token_allocator_has_no_growth() -> None:
    """The token allocator refuses extend and decode as Unsupported, and says what to use."""
    with pytest.raises(Unsupported, match="alloc\\("):
        extend(token(), 0, 1, -1)
    with pytest.raises(Unsupported, match="alloc\\("):
        token().alloc_decode(ids(1), ids(1), ids(-1))
    with pytest.raises(PoolError, match="row 9"):
        rows().free_rows([9])


@pytest.mark.parametrize("system", ["rows", "token", "paged", "paged_rows"])
def test_nothing_holds_on_to_a_refusal(system: str) -> None:
    """An error is gone when its caller is done with it, and what was passed goes with it."""
    plan = Plan(system=SYSTEMS[system], factory=load("impl:torch"), seed=1)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        tally, finding = run_steps(plan, 400)
        gc.collect()
        held = [error for error in gc.garbage if isinstance(error, PoolError)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert finding is None
    assert sum(n for (_, kind), n in tally.outcomes.items() if kind == "refused") > 20
    assert held == []
