"""The recorder: what a live allocator was asked to do, as a trace, and who was wrong."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import properties
from impl import PagedTokenToKVPoolAllocator, ReqToTokenPool, TokenToKVPoolAllocator
from impl.errors import DoubleFree
from properties.commands import UnusableTrace
from properties.invariants import CATALOGUE
from properties.minimize import minimize
from properties.recorder import Recorder
from properties.subjects import UnusableSubject, load
from properties.subjects.reference import EchoCache
from properties.systems.raw import Raw
from properties.trace import Replay, Trace, save
from properties.trace import load as load_trace

needs_sglang = pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="needs SGLang")
KINDS = ["impl", pytest.param("sglang", marks=needs_sglang)]


def make(kind: str, paged: bool = True, need_sort: bool = False) -> Any:
    """A pool of 16 pages of 4, or of 16 slots."""
    if kind == "impl":
        if paged:
            return PagedTokenToKVPoolAllocator(64, 4, device="cpu", need_sort=need_sort)
        return TokenToKVPoolAllocator(16, device="cpu", need_sort=need_sort)
    from sglang.srt.mem_cache.allocator.paged import (
        PagedTokenToKVPoolAllocator as TheirPaged,
    )
    from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator as TheirToken

    more: dict[str, Any] = {
        "dtype": torch.int64, "device": "cpu", "kvcache": EchoCache(), "need_sort": need_sort,
    }  # fmt: skip
    if not paged:
        return TheirToken(16, **more)
    made = TheirPaged(64, 4, **more)
    made.use_triton_kernels = False
    return made


def engine(allocator: Any, seed: int, turns: int, frees_again: int | None = None) -> None:
    """Prompts, decodes and finishes as an engine does; at one turn a slot is freed again."""
    dice = random.Random(seed)
    live: list[torch.Tensor] = []
    for turn in range(turns):
        action = dice.random()
        if not live or action < 0.4:
            count = torch.tensor([dice.randint(1, 9)])
            none = torch.tensor([0])
            out = allocator.alloc_extend(none, none, count, count, torch.tensor([-1]), int(count))
            if out is not None:
                live.append(out)
                continue
        if action < 0.7 and live:
            at = dice.randrange(len(live))
            length = torch.tensor([len(live[at]) + 1])
            out = allocator.alloc_decode(length, length, live[at][-1:])
            if out is not None:
                live[at] = torch.cat([live[at], out])
            continue
        finished = live.pop(dice.randrange(len(live)))
        if action > 0.9:
            allocator.free_group_begin()
            allocator.free(finished)
            allocator.free_group_end()
        else:
            allocator.free(finished)
        if frees_again is not None and turn >= frees_again:
            allocator.free(finished[-1:])
            frees_again = None


@pytest.mark.parametrize("ring", [None, 20])
@pytest.mark.parametrize("need_sort", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_recorded_traffic_replays(
    kind: str, need_sort: bool, ring: int | None, tmp_path: Path
) -> None:
    """A recording, from a pool in use on, replays without a difference, slots and all."""
    allocator, path = make(kind, need_sort=need_sort), tmp_path / "recording.jsonl"
    engine(allocator, 1, 60)
    recorder = Recorder(allocator, path, ring=ring, raises=True)
    engine(allocator, 2, 200)
    recorder.failed = True  # a ring is written then
    recorder.stop()
    trace = load_trace(path)
    assert (trace.system.name, trace.subject, trace.invariant) == ("paged_raw", kind, None)
    assert len(trace.commands) > 200 or (ring and len(trace.commands) >= ring)
    replay = Replay(trace, load(kind).make)
    *_, last = replay.steps()
    assert replay.violation is None
    assert len(replay.executed) == len(trace.commands)
    shown = recorder.family.observe()
    assert last.after is not None
    assert {key: last.after[key] for key in shown if key != "issued"} == {
        key: value for key, value in shown.items() if key != "issued"
    }


@pytest.mark.parametrize("ring", [None, 10])
@pytest.mark.parametrize("kind", KINDS)
def test_a_double_free_is_found_at_the_call(kind: str, ring: int | None, tmp_path: Path) -> None:
    """A slot that the driving code frees again is named at the call, with who had its page; the
    trace breaks the same invariant and is made short."""
    allocator, path = make(kind), tmp_path / "recording.jsonl"
    engine(allocator, 1, 30)
    with (
        pytest.raises(CATALOGUE["I5"], match=r"call \d+, free\(free_index=\[\d+\]\): page"),
        properties.record(allocator, path, ring=ring) as recorder,
    ):
        engine(allocator, 2, 200, frees_again=100)
    assert str(recorder.calls) in str(recorder.violation)
    trace = load_trace(path)
    assert trace.invariant == "I5"
    last = trace.commands[-1]
    assert isinstance(last, Raw)
    assert (last.method, last.wrong) == ("free", "I5")
    violation = Replay(trace, load(kind).make).run()
    assert violation is not None
    assert violation.number == "I5"
    short = minimize(trace, load(kind))
    assert [command.method for command in short.commands if isinstance(command, Raw)][-2:] == [
        "free",
        "free",
    ]
    assert len(short.commands) <= 5
    assert load_trace(save(short, tmp_path)) == short
    # the allocator has its own methods again
    assert "free" not in vars(allocator)


@needs_sglang
def test_token_allocators_too(tmp_path: Path) -> None:
    """A token allocator's recording finds the slot that is freed twice."""
    allocator = make("sglang", paged=False)

    def wrong() -> None:
        first, second = allocator.alloc(2), allocator.alloc(3)
        allocator.free(first)
        allocator.free(torch.cat([second, first[:1]]))

    with pytest.raises(CATALOGUE["I5"]), properties.record(allocator, tmp_path / "r"):
        wrong()
    assert len(minimize(load_trace(tmp_path / "r"), load("sglang")).commands) <= 3


def test_a_wrong_allocator_is_found(tmp_path: Path) -> None:
    """An allocator that hands out what somebody has is named at the call that does."""
    allocator = make("impl")
    sound = allocator.alloc
    taken = sound(4)
    allocator.alloc = lambda need_size: taken
    with (
        pytest.raises(CATALOGUE["I34"], match=r"call 1, alloc\(need_size=4\)"),
        properties.record(allocator, tmp_path / "r"),
    ):
        allocator.alloc(4)


def test_an_engine_goes_on(tmp_path: Path) -> None:
    """In an engine what is wrong is a warning; refusals reach the engine as ever."""
    allocator, path = make("impl"), tmp_path / "ring.jsonl"
    recorder = properties.watch(allocator, path, ring=5)
    slots, _ = allocator.alloc(8), allocator.alloc(8)
    allocator.free(slots)
    with pytest.warns(UserWarning, match="I5"), pytest.raises(DoubleFree):
        allocator.free(slots)
    assert allocator.alloc(4) is not None
    recorder.stop()
    assert recorder.calls == 5
    assert "5 calls recorded" in recorder.overhead
    assert load_trace(path).invariant == "I5"


def test_a_ring_without_trouble_writes_nothing(tmp_path: Path) -> None:
    """A ring is written when something was wrong, also in the code around, and only then."""
    allocator = make("impl")
    with properties.record(allocator, tmp_path / "quiet", ring=5):
        engine(allocator, 1, 20)
    assert not (tmp_path / "quiet").exists()

    def fails() -> None:
        engine(allocator, 2, 20)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), properties.record(allocator, tmp_path / "r", ring=5):
        fails()
    trace = load_trace(tmp_path / "r")
    assert Replay(trace, load("impl").make).run() is None
    assert len(trace.commands) >= 5


def test_calls_that_cannot_be_written(tmp_path: Path) -> None:
    """Arguments that are no ids go to the allocator, which says what it thinks of them."""
    allocator = make("impl")
    with properties.record(allocator, tmp_path / "r") as recorder:
        with pytest.raises(TypeError):
            allocator.free()
        allocator.alloc(4)
    assert (recorder.calls, recorder.unrecorded) == (2, 1)
    assert len(load_trace(tmp_path / "r").commands) == 1


def test_a_recording_that_was_cut_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What could be written of a recording can be read; a line says how much."""
    path = tmp_path / "r"
    with properties.record(make("impl"), path) as recorder:
        engine(recorder.allocator, 1, 30)
    whole = load_trace(path)
    text = path.read_text()
    capsys.readouterr()
    for end in (len(text) // 2, text.rindex("\n", 0, -1), text.index("\n") + 1):
        path.write_text(text[:end])
        trace = load_trace(path)
        assert trace.commands == whole.commands[: len(trace.commands)]
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{len(trace.commands)} commands are read" in line
    path.write_text(text.replace('"raw"', '"draw"', 1))
    with pytest.raises(UnusableTrace, match="draw"):
        load_trace(path)
    head, _, rest = text.partition("\n")
    path.write_text(head + "\n{]\n" + rest)
    with pytest.raises(UnusableTrace, match="line 2"):
        load_trace(path)
    path.write_text(json.dumps({**json.loads(head), "recording": 9}) + "\n")
    with pytest.raises(UnusableTrace, match="recording"):
        load_trace(path)


def test_what_cannot_be_recorded(tmp_path: Path) -> None:
    """Other objects, open groups and empty rings are refused in a line; nothing is wrapped."""
    for other in (ReqToTokenPool(4, 8, device="cpu"), object()):
        with pytest.raises(UnusableSubject, match="can't be recorded"):
            properties.watch(other, tmp_path / "r")
    allocator = make("impl")
    with pytest.raises(UnusableSubject, match="ring of 0"):
        properties.watch(allocator, tmp_path / "r", ring=0)
    allocator.free_group_begin()
    with pytest.raises(UnusableSubject, match="open group"):
        properties.watch(allocator, tmp_path / "r")
    assert "free" not in vars(allocator)
    assert not (tmp_path / "r").exists()


def test_resize_and_clear(tmp_path: Path) -> None:
    """A recording goes on over clear and resize; ids of before are known as dead."""
    allocator, path = make("impl"), tmp_path / "r"

    def stale() -> None:
        slots = allocator.alloc(8)
        allocator.clear()
        allocator.resize(SimpleNamespace(max_total_num_tokens=32))
        allocator.free(allocator.alloc(8))
        allocator.free(slots + 16)

    with pytest.raises(CATALOGUE["I4"]), properties.record(allocator, path):
        stale()
    trace = load_trace(path)
    violation = Replay(trace, load("impl").make).run()
    assert isinstance(trace, Trace)
    assert violation is not None
    assert violation.number == "I4"
