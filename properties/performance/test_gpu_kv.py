"""The GPU script's part about KV: without a GPU, where kernels are interpreted, it holds, and each
check of it can fail.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch

from impl import HostKVPool, MHATokenToKOnlyPool, MHATokenToKVPool, PoolError
from impl.host.transfers import Load
from properties.performance import gpu_common, gpu_kv
from properties.performance.gpu_common import CheckFailed

CPU = torch.device("cpu")
Replay = Callable[[], None]


@pytest.fixture(autouse=True)
def _without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaying is running once more, where no fault is raised; pools are small."""

    def capture(forward: Replay, forbidden: object) -> tuple[Replay, str]:
        def replay() -> None:
            with suppress(PoolError):
                forward()

        return replay, "refused"

    monkeypatch.setattr(gpu_kv, "capture", capture)
    smaller = {"REPLAYS": 3, "LARGE_BYTES": 2**18, "SIZE": 16, "LANES": 5, "LAYERS": 1}
    for name, value in smaller.items():
        monkeypatch.setattr(gpu_kv, name, value)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)


def test_part() -> None:
    """All checks pass, and each says what it did as soon as it has."""
    found: list[list[str]] = []
    gpu_kv.kv(CPU, lambda saved: found.append(list(saved)))
    assert found == [list(gpu_kv.CHECKS)[: at + 1] for at in range(len(gpu_kv.CHECKS))]


@pytest.mark.parametrize("wrong", ["lost", "unrefused", "padding"])
def test_graph_can_fail(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """Where a replay does nothing, a move is served, or padded lanes are written."""
    refused = "" if wrong == "unrefused" else "refused"
    lost: Replay = lambda: None  # noqa: E731 (a replay is a function)
    if wrong == "padding":
        store: Any = MHATokenToKVPool.set_kv_buffer

        def to_slots(pool: Any, layer: int, loc: Any, *args: Any) -> None:
            slots = loc.clamp(gpu_kv.PAGE_SIZE) if pool._door.backend == "triton" else loc
            store(pool, layer, slots, *args)

        monkeypatch.setattr(MHATokenToKVPool, "set_kv_buffer", to_slots)
    monkeypatch.setattr(
        gpu_kv,
        "capture",
        lambda forward, forbidden: (lost if wrong == "lost" else forward, refused),
    )
    with pytest.raises(CheckFailed):
        gpu_kv.graph(CPU)


@pytest.mark.parametrize("method", ["check", "recover"])
def test_fault_can_fail(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Where nothing is raised, or nothing is written any more."""
    monkeypatch.setattr(MHATokenToKVPool, method, lambda pool: None)
    with pytest.raises(CheckFailed):
        gpu_kv.fault(CPU)


def test_fault_is_seen_where_writes_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that drops what is beyond the pool, and writes the others."""
    store: Any = MHATokenToKVPool.set_kv_buffer

    def dropping(pool: Any, layer: int, loc: torch.Tensor, *args: Any) -> None:
        store(pool, layer, loc.where(loc < pool.num_rows, -1), *args)

    monkeypatch.setattr(MHATokenToKVPool, "set_kv_buffer", dropping)
    with pytest.raises(CheckFailed, match="behind a fault"):
        gpu_kv.fault(CPU)


@pytest.mark.parametrize("method", ["set_k_buffer", "move_kv_cache"])
def test_large_can_fail(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Where a write or a move goes elsewhere."""
    own: Any = getattr(MHATokenToKOnlyPool, method)

    def elsewhere(pool: Any, first: Any, loc: torch.Tensor, *args: Any) -> None:
        if method == "set_k_buffer":
            own(pool, first, loc // 2, *args)
        else:
            own(pool, first, loc - 1, *args)

    monkeypatch.setattr(MHATokenToKOnlyPool, method, elsewhere)
    with pytest.raises(CheckFailed):
        gpu_kv.large(CPU)


@pytest.mark.parametrize(("owner", "method"), [(HostKVPool, "backup"), (Load, "layer")])
def test_host_can_fail(monkeypatch: pytest.MonkeyPatch, owner: Any, method: str) -> None:
    """Where nothing goes to the host, or nothing comes back."""
    if owner is Load:
        monkeypatch.setattr(HostKVPool, "_write", lambda *args: None)
    else:
        monkeypatch.setattr(owner, method, lambda *args: None)
    with pytest.raises(CheckFailed, match="came back"):
        gpu_kv.host(CPU)


def test_waiting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that torch stops is in the message, by its backend."""

    def call(made: gpu_kv.Written) -> None:
        calls.append(made)
        if len(calls) == 2:
            raise RuntimeError("called a synchronizing CUDA operation")

    calls: list[gpu_kv.Written] = []
    monkeypatch.setattr(gpu_kv, "CALLS", {"writes": call})
    with pytest.raises(CheckFailed, match=r"writes, triton, validate=True.*synchronizing"):
        gpu_kv.synchronisation(CPU)
    assert len(calls) == 6
    assert gpu_common.waits(CPU, lambda: None, lambda: None) == ""
