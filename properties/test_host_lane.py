"""What the host tier asks of CUDA, in its order: told by a stand-in, on any machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from impl.host import gate, lane


class Cuda:
    """Streams and events that write down what is asked of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: Any) -> None:
        self.said: list[Any] = []
        self.inside: list[str] = []
        self.fired = True
        stand_in = SimpleNamespace(
            cuda=SimpleNamespace(
                Stream=lambda device: self.stream(f"lane of {device}"),
                current_stream=lambda device=None: self.stream("caller's"),
                stream=self.on,
                Event=self.event,
            ),
            empty=self.empty,
            device=torch.device,
        )
        for module in modules:
            monkeypatch.setattr(module, "torch", stand_in)

    def stream(self, name: str) -> Any:
        return SimpleNamespace(
            name=name,
            wait_stream=lambda other: self.said.append((name, "waits for", other.name)),
            wait_event=lambda event: self.said.append((name, "waits for event", event.number)),
            synchronize=lambda: self.said.append((name, "is waited for")),
        )

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        self.inside.append(stream.name)
        try:
            yield
        finally:
            self.inside.pop()

    def event(self) -> Any:
        number = len(self.said)
        record = (number, "recorded on", *self.inside)
        return SimpleNamespace(
            number=number, record=lambda: self.said.append(record), query=lambda: self.fired
        )

    def empty(self, shape: Any, **options: Any) -> Any:
        return SimpleNamespace(copy_=lambda rows, **more: (shape, options, rows, more))


def test_a_lane_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """It follows the caller's stream when told to, copies on its own, and drains on errors."""
    cuda = Cuda(monkeypatch, lane)
    made = lane.Lane(torch.device("cuda:0"))
    made.follow()
    with made.copying():
        assert cuda.inside == ["lane of cuda:0"]
    assert cuda.said == [("lane of cuda:0", "waits for", "caller's")]
    made.wait()
    with pytest.raises(ZeroDivisionError), made.copying():
        raise ZeroDivisionError
    assert cuda.said[1:] == [("lane of cuda:0", "is waited for")] * 2
    rows = SimpleNamespace(shape=(2, 3), dtype="words")
    due = ((2, 3), {"dtype": "words", "pin_memory": True}, rows, {"non_blocking": True})
    assert made.down(rows) == due  # type: ignore[arg-type]
    pinned = SimpleNamespace(to=lambda device, **more: (device, more))
    up = made.up(SimpleNamespace(pin_memory=lambda: pinned))  # type: ignore[arg-type]
    assert up == (torch.device("cuda:0"), {"non_blocking": True})


def test_a_gate_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark is an event of the loading stream, and a reader's stream waits for just that one."""
    cuda = Cuda(monkeypatch, gate)
    made = gate.LayerGate(2, device="cuda")
    taken = made.update_producer()
    made.set_consumer(taken)
    with cuda.on(cuda.stream("lane")):
        made.complete(taken, 0)
        made.complete(taken, 1)
    assert cuda.said == [(0, "recorded on", "lane"), (1, "recorded on", "lane")]
    made.wait_until(1)
    assert cuda.said[2:] == [("caller's", "waits for event", 1)]
    cuda.fired = False
    assert not made.ready(1)
    cuda.fired = True
    assert made.ready(1)
