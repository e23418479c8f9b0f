"""Records of requests that contradict themselves, or what a row pool knows: refused by each method.

Spec: `spec/pools_states_sizing.md` §4; `spec/core.md` §4b.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch

from properties.hybrid_scene import LAZY, SIZE, Scene
from properties.refused import Act, Case, ids, judge

#: each method that reads a record, of the first request
OF_A_RECORD: dict[str, Act] = {
    "alloc": lambda s: s.pool.alloc([s.other, s.first]),
    "collect": lambda s: s.pool.collect_deferred_mamba([s.other, s.first]),
    "cow": lambda s: s.pool.cow_mamba_state(s.first, s.node),
    "release": lambda s: s.pool.free_mamba_cache(s.first),
    "donate state": lambda s: s.pool.donate_mamba_state(s.first),
    "keep idx": lambda s: s.pool.get_mamba_ping_pong_keep_idx(s.first),
    "set": lambda s: s.pool.set_mamba_ping_pong_slot(s.first, 0, s.node),
    "donate": lambda s: s.pool.donate_mamba_ping_pong_slot(s.first, s.node),
    "prealloc": lambda s: s.pool.mamba_lazy_prealloc(s.first),
    "undo": lambda s: s.pool.mamba_lazy_undo_prealloc(s.first),
    "boundary": lambda s: s.pool.mamba_track_boundary(s.first, 9),
    "checkpoint": lambda s: s.pool.mamba_checkpoint(s.first, 9),
}
#: those of them that name a place of a batch
OF_A_BATCH = ("alloc", "collect")
#: those that need a row and a buffer
TRACKING = ("keep idx", "set", "donate", "prealloc", "undo", "boundary", "checkpoint")
#: a field of a record, what it may not be, and what is said of it
RECORDS: tuple[tuple[str, Any, str, str], ...] = (
    ("mamba_pool_idx", 1, "WrongDtype", "is no tensor of slots"),
    ("mamba_pool_idx", torch.tensor(1.0), "WrongDtype", "is no tensor of slots"),
    ("mamba_pool_idx", ids(1), "WrongShape", "has shape (1,), not ()"),
    ("mamba_pool_idx", None, "NotOwned", "the request has a track buffer but no state"),
    ("mamba_ping_pong_track_buffer", [2, 3], "WrongDtype", "is no tensor of slots"),
    ("mamba_ping_pong_track_buffer", torch.ones(2), "WrongDtype", "is no tensor of slots"),
    ("mamba_ping_pong_track_buffer", ids(2), "WrongShape", "has shape (1,), not (2,)"),
    ("mamba_ping_pong_track_buffer", ids(2, 3, 4), "WrongShape", "has shape (3,), not (2,)"),
    ("mamba_ping_pong_track_buffer", ids(2, 3)[None], "WrongShape", "has shape (1, 2), not (2,)"),
    ("mamba_ping_pong_empty", None, "WrongShape", "is None, 2 flags are due"),
    ("mamba_ping_pong_empty", [False], "WrongShape", "is [False], 2 flags are due"),
    ("mamba_ping_pong_empty", [True] * 3, "WrongShape", "is [True, True, True], 2 flags are due"),
)


def spoilt(name: str, value: Any, scene: Scene) -> None:
    """The first request's record says so."""
    setattr(scene.kv, name, value)


def _bad_records() -> Iterator[Case]:
    for method, act in OF_A_RECORD.items():
        at = 1 if method in OF_A_BATCH else 0
        options = LAZY if method in ("prealloc", "undo") else {}
        for name, value, kind, words in RECORDS:
            said = words if value is None and kind == "NotOwned" else f"{name} {words}"
            spoil = partial(spoilt, name, value)
            yield Case(f"{method}: {name} {value}", act, kind, f"[{at}] {said}", spoil, options)


def _untracked() -> Iterator[Case]:
    """Requests that have no row or no buffer, and pools that track nothing."""
    for method in TRACKING:
        act = OF_A_RECORD[method]
        options = LAZY if method in ("prealloc", "undo") else {}
        for row, kind, words in (
            (None, "RowNotHeld", "[0] the request has no row"),
            (1, "RowNotHeld", "[0] row 1 is free"),
            (0, "Reserved", "[0] row 0 is reserved"),
            (4, "OutOfRange", "[0] row 4 is outside 1..3"),
            (True, "WrongDtype", "[0] a row must be an int"),
        ):
            spoil = partial(spoilt, "req_pool_idx", row)
            yield Case(f"{method}: row {row}", act, kind, words, spoil, options)
        spoil = partial(spoilt, "mamba_ping_pong_track_buffer", None)
        yield Case(
            f"{method}: no buffer", act, "NotOwned", "[0] the request has no track buffer", spoil,
            options,
        )  # fmt: skip
    for method in ("prealloc", "undo"):
        yield Case(
            f"{method}: in pairs", OF_A_RECORD[method], "Unsupported", "this pool isn't one that"
        )


def _bad_batches() -> Iterator[Case]:
    """Slots that the second request of a batch brings, and its row."""
    act = OF_A_RECORD["alloc"]
    for slot, kind, words in (
        (-1, "OutOfRange", "slot -1 is outside 1..10"),
        (SIZE + 1, "OutOfRange", "slot 11 is outside 1..10"),
        (SIZE, "NotOwned", "slot 10 was not issued since clear"),
        (SIZE - 1, "DoubleFree", "slot 9 is free already"),
        (6, "Duplicate", "slot 6 is in the batch already"),
        (2, "Duplicate", "slot 2 was named at 0 already"),
    ):
        spoil = partial(spoilt, "mamba_pool_idx", torch.tensor(slot))
        yield Case(f"alloc: brings {slot}", act, kind, f"[1] {words}", spoil)
    for row, kind, words in (
        (4, "OutOfRange", "row 4 is outside 1..3"),
        (0, "Reserved", "row 0 is reserved"),
        (1, "RowNotHeld", "row 1 is free"),
        (3, "Duplicate", "row 3 is in the batch already"),
    ):
        spoil = partial(spoilt, "req_pool_idx", row)
        yield Case(f"alloc: row {row}", act, kind, f"[1] {words}", spoil)


CASES = (*_bad_records(), *_untracked(), *_bad_batches())


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_it_is_refused(case: Case) -> None:
    """A bad record raises its kind, says which of a batch it is, and changes nothing."""
    judge(case, Scene)
