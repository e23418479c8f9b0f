"""Rows of hybrid models and their slots: what each argument of each method may not be.

Wrong types, wrong numbers of axes, values just outside, places of a batch behind the first. Spec:
`spec/pools_states_sizing.md` §2, §4; `spec/core.md` §4b.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch

from properties.hybrid_scene import LAZY, SIZE, UNTRACKED, Scene
from properties.refused import Case, Given, ids, judge, no_ids, no_int, no_place, no_size, no_slot
from properties.subjects.state_records import Record
from properties.test_impl_hybrid_records import OF_A_RECORD


def not_out(name: str, given: Given, own: tuple[int, ...]) -> Iterator[Case]:
    """A slot of somebody else's that is out is due."""
    for slot, kind, words in (
        (-1, "OutOfRange", "slot -1 is outside 1..10"),
        (SIZE + 1, "OutOfRange", "slot 11 is outside 1..10"),
        (0, "Reserved", "slot 0 is reserved"),
        (SIZE, "NotOwned", "slot 10 was not issued since clear"),
        (SIZE - 1, "DoubleFree", "slot 9 is free already"),
        *((each, "Duplicate", f"slot {each} is the request's already") for each in own),
    ):
        for value in (ids(slot), torch.tensor(slot)):
            act = partial(_with, given, value)
            yield Case(f"{name}: slot {slot}, {value.dim()}", act, kind, f"[0] {words}")


def _with(given: Given, value: Any, scene: Any) -> Any:
    return given(scene, value)


OTHERS = (
    *(
        Case(f"set: to {value!r}", lambda s, v=value: _set(s, v), kind, words)  # type: ignore[misc]
        for value, kind, words in (
            (-2, "OutOfRange", "value -2 is neither a tensor of a slot nor -1"),
            (0, "OutOfRange", "value 0 is neither a tensor of a slot nor -1"),
            (7, "OutOfRange", "value 7 is neither a tensor of a slot nor -1"),
            (1.0, "WrongDtype", "value must be an int"),
            (True, "WrongDtype", "value must be an int"),
            ([7], "WrongDtype", "value must be an int"),
        )
    ),
    Case("boundary: as before", lambda s: s.pool.mamba_track_boundary(s.first, 8), "BadLengths",
         "mamba_track_boundary: 8 tokens, 8 were tracked before"),
    Case("boundary: further back", lambda s: s.pool.mamba_track_boundary(s.first, 0), "BadLengths",
         "0 tokens, 8 were tracked before"),
    Case("boundary: in front of a row", lambda s: s.pool.mamba_track_boundary(s.first, 8),
         "BadLengths", spoil=lambda s: s.pool.mamba_track_boundary(s.other, 1)),
    Case("alloc: no list", lambda s: s.pool.alloc(5), "WrongDtype", "reqs must be a list"),
    Case("collect: no list", lambda s: s.pool.collect_deferred_mamba(5), "WrongDtype",
         "reqs must be a list"),
    Case("collect: no state", lambda s: s.pool.collect_deferred_mamba([s.first, s.fresh]),
         "NotOwned", "collect_deferred_mamba: [1] the request has no state"),
    Case("alloc: twice", lambda s: s.pool.alloc([s.fresh, s.fresh]), "Duplicate",
         "[1] the request is in the batch already"),
    Case("alloc: KV without a row", lambda s: s.pool.alloc([s.first, s.fresh]), "RowNotHeld",
         "[1] the request has KV but no row", lambda s: setattr(s.fresh, "kv", Rowless())),
    Case("alloc: no KV", lambda s: s.pool.alloc([s.other, s.first]), "RowWithoutKV",
         "[1] row 2 comes with 0 tokens", lambda s: setattr(s.kv, "kv_allocated_len", 0)),
    Case("cow: a free row", OF_A_RECORD["cow"], "RowNotHeld", "[0] row 1 is free",
         lambda s: setattr(s.kv, "req_pool_idx", 1)),
    Case("cow: row 0", OF_A_RECORD["cow"], "Reserved", "[0] row 0 is reserved",
         lambda s: setattr(s.kv, "req_pool_idx", 0)),
    Case("free: with a state", lambda s: s.pool.free(s.first), "StillOwned", "of row 2 still"),
    Case("free: with a buffer", lambda s: s.pool.free(s.first), "StillOwned", "of row 2 still",
         lambda s: setattr(s.kv, "mamba_pool_idx", None)),
    Case("free: in the queue", lambda s: s.pool.free(s.queued), "RowNotHeld", "it has None"),
    Case("free: another's row", lambda s: s.pool.free(s.first), "RowNotHeld", "it has 1",
         lambda s: setattr(s.kv, "req_pool_idx", 1)),
    Case("free rows", lambda s: s.pool.free_rows([1, 2]), "RowNotHeld", "[0] row 1 is free"),
    Case("free rows: with a state", lambda s: s.pool.free_rows([3, 2]), "StillOwned",
         "[0] row 3 has state slots [4, 5, 6]; [1] row 2 has state slots [1, 2, 3]"),
    Case("release: stateless", lambda s: s.pool.free_mamba_cache(s.fresh), "NotOwned",
         "free_mamba_cache: the request has no state"),
    Case("release: keep, stateless", lambda s: s.pool.free_mamba_cache(s.fresh, 0), "NotOwned"),
    Case("release: keep in the queue", lambda s: s.pool.free_mamba_cache(s.queued, 0), "NotOwned",
         "there is no slot at place 0 to keep"),
    Case("release: keep nothing", lambda s: s.pool.free_mamba_cache(s.first, 1), "NotOwned",
         "there is no slot at place 1 to keep", options=LAZY),
    Case("release: freed", lambda s: s.pool.free_mamba_cache(s.first), "DoubleFree",
         "[1] slot 2 is free already", lambda s: s.slots.free(ids(2))),
    Case("donate nothing", lambda s: s.pool.donate_mamba_ping_pong_slot(s.first, s.node),
         "NotOwned", "there is no slot at place 0",
         lambda s: s.pool.set_mamba_ping_pong_slot(s.first, 0, -1)),
    Case("donate state: stateless", lambda s: s.pool.donate_mamba_state(s.fresh), "NotOwned",
         "donate_mamba_state: the request has no state", options=UNTRACKED),
    Case("donate state: tracked", lambda s: s.pool.donate_mamba_state(s.first), "Unsupported",
         "donate a tracked slot instead"),
    Case("donate state: freed", lambda s: s.pool.donate_mamba_state(s.first), "DoubleFree",
         "[0] slot 1 is free already", lambda s: s.slots.free(ids(1)), UNTRACKED),
    Case("rows to look up", lambda s: s.pool.get_mamba_indices(ids(0, 4, 2, -1)), "OutOfRange",
         "rows [4, -1] are outside 0..3"),
    *(
        Case(f"{name} {layer}", lambda s, n=name, v=layer: _of_pool(n, s, v), "OutOfRange",  # type: ignore[misc]
             f"layer {layer} has no state, [1, 3] have")
        for name in ("mamba2_layer_index", "mamba2_layer_cache") for layer in (0, 2, 4)
    ),
    *(
        Case(f"place of a pool without: {method}", act, kind, words, options=UNTRACKED)
        for method, act, kind, words in (
            ("other", lambda s: s.pool.get_mamba_ping_pong_other_idx(0), "OutOfRange", "0..-1"),
            ("keep", lambda s: s.pool.free_mamba_cache(s.first, 0), "OutOfRange", "0..-1"),
            ("keep idx", OF_A_RECORD["keep idx"], "NotOwned", "no track buffer"),
        )
    ),
    Case("another slot to free", lambda s: s.slots.free(ids(7, 9)), "DoubleFree",
         "free: [1] slot 9 is free already"),
    Case("too many slots", lambda s: s.slots.free(torch.arange(1, 10)), "TooMany",
         "free: 9 slots given back, 8 are out"),
    Case("a slot twice", lambda s: s.slots.free(ids(4, 7, 7)), "Duplicate",
         "[2] slot 7 was named at 1 already"),
    Case("a group in a group", lambda s: s.slots.alloc_group_begin(0), "GroupOpen",
         spoil=lambda s: s.slots.alloc_group_begin(1)),
    Case("the end of no group", lambda s: s.slots.alloc_group_end(), "GroupNotOpen"),
    Case("another hook", lambda s: s.pool.register_on_alloc_rows(print), "Unsupported",
         spoil=lambda s: s.pool.register_on_alloc_rows(list)),
)  # fmt: skip


class Rowless(Record):
    """A record that says of KV without a row."""

    holds_kv = True


def _set(scene: Any, value: Any) -> Any:
    return scene.pool.set_mamba_ping_pong_slot(scene.first, 0, value)


def cases() -> Iterator[Case]:
    def cow(scene: Any, value: Any) -> Any:
        return scene.pool.cow_mamba_state(scene.first, value)

    def donate(scene: Any, value: Any) -> Any:
        return scene.pool.donate_mamba_ping_pong_slot(scene.first, value)

    yield from no_slot("cow", cow, "src_index", 7)
    yield from no_slot("donate", donate, "new_slot", 7)
    yield from (case for case in no_slot("set", _set, "value", 7) if case.name != "set: a list")
    yield from not_out("cow", cow, (1, 2, 3))
    yield from not_out("set", _set, (1, 3))
    yield from not_out("donate", donate, (1, 3))
    for name, said in (("mamba_track_boundary", "seq_len"), ("mamba_checkpoint", "key_len")):
        yield from no_size(name, partial(_of_first, name), said)
    for method, given in (
        ("set", lambda s, v: s.pool.set_mamba_ping_pong_slot(s.first, v, s.node)),
        ("other", lambda s, v: s.pool.get_mamba_ping_pong_other_idx(v)),
        ("keep", lambda s, v: s.pool.free_mamba_cache(s.first, v)),
    ):
        yield from no_place(f"{method}: place", given, "a place", 2, "place {} is outside 0..1")
    for name in ("get_mamba_indices", "translate_mamba_indices"):
        said = "req_indices" if name[0] == "g" else "mamba_indices"
        yield from no_ids(name, partial(_of_pool, name), said)
    for name in ("mamba2_layer_index", "mamba2_layer_cache"):
        yield from no_int(name, partial(_of_pool, name), "layer_id")
    yield from no_ids("free slots", lambda s, v: s.slots.free(v), "free_index")
    yield from no_size("alloc slots", lambda s, v: s.slots.alloc(v), "need_size")
    yield from no_size("group", lambda s, v: s.slots.alloc_group_begin(v), "num_reqs")
    yield from no_size("rows", lambda s, v: s.pool.alloc_rows(v), "need_size")
    yield from OTHERS


def _of_first(method: str, scene: Any, value: Any) -> Any:
    return getattr(scene.pool, method)(scene.first, value)


def _of_pool(method: str, scene: Any, value: Any) -> Any:
    return getattr(scene.pool, method)(value)


CASES = tuple(cases())


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_it_is_refused(case: Case) -> None:
    """A bad argument raises its kind, says which it is, and changes nothing."""
    judge(case, Scene)
