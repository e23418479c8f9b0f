"""The host tier: what no command of its system says."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from impl import (
    HostKVPool,
    HostSlots,
    HostStatePool,
    LayerGate,
    Load,
    MambaPool,
    NGramPool,
    ShortConvPool,
    host_capacity,
)
from impl.errors import (
    BadLengths,
    NegativeSize,
    NotOwned,
    NotPageMultiple,
    OutOfRange,
    PoolError,
    StaleHandle,
    StillOwned,
    WrongDtype,
)
from impl.host.decls import kv_decls, ordered, state_decls
from impl.states.base import TransferEntry
from impl.states.shapes import StateDType, StateParams, StateShape
from impl.storage.buffers import KVBuffer, grouped, plain

LONG = 10.0  # seconds that a thread gets which takes a millisecond

# ---- slots --------------------


@pytest.mark.parametrize(
    ("size", "page_size", "kind"),
    [
        (-1, 1, NegativeSize), (4, 0, NegativeSize), (5, 2, NotPageMultiple),
        (2**31, 1, OutOfRange), (4.0, 1, WrongDtype), (4, True, WrongDtype),
    ],
)  # fmt: skip
def test_no_such_slots(size: Any, page_size: Any, kind: type[PoolError]) -> None:
    """Sizes that aren't whole pages, or not sizes."""
    with pytest.raises(kind):
        HostSlots(size, page_size)


def test_no_slots_at_all() -> None:
    """A pool of no pages hands out nothing, and takes nothing back."""
    slots = HostSlots(0, 4)
    assert slots.alloc(4) is None
    none = slots.alloc(0)
    assert none is not None
    assert slots.free(none) == 0
    assert slots.audit() == []
    slots.clear()
    assert slots.snapshot()["free"] == []


def test_every_page_is_usable() -> None:
    """The first slot and the extra page are like the others: nothing is reserved."""
    slots = HostSlots(host_capacity(8, 4, 1, ratio=1), 4)
    taken = slots.alloc(12)
    assert taken is not None
    assert taken.tolist() == list(range(12))
    assert taken.dtype == torch.int64
    assert slots.free(taken.to(torch.int32)) == 12


def test_threads_share_the_slots() -> None:
    """Threads that take and free at once get distinct slots, and nothing is lost."""
    slots, failures = HostSlots(64, 2), []

    def work() -> None:
        try:
            for _ in range(200):
                with slots.lock:  # re-entrant
                    taken = slots.alloc(8)
                if taken is not None:
                    slots.free(taken)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failures == []
    assert slots.audit() == []
    assert slots.available_size() == 64


def test_a_broken_book_is_told() -> None:
    """The audit recounts: a page that is lost, one that is twice there, a pin of nobody's."""
    slots = HostSlots(8, 2)
    slots._num_free -= 1
    assert slots.audit()[0].startswith("I34")
    slots.clear()
    slots._ring[0] = 1
    assert slots.audit()[0].startswith("I34")
    slots.clear()
    slots._pins.pin(torch.arange(2).numpy(), writing=False)
    assert slots.audit() == ["I65: slots [0, 1] are in transfers, and nobody's"]


# ---- the gate --------------------


def until_waiting(gate: LayerGate, passed: threading.Event) -> None:
    """Until a reader waits, or has passed."""
    while not gate._changed._waiters and not passed.is_set():  # type: ignore[attr-defined]
        pass


def test_a_reader_waits_for_its_layer() -> None:
    """A thread that waits for a layer passes when that arrives, and not with another one."""
    gate, passed = LayerGate(2), threading.Event()
    taken = gate.update_producer()
    gate.set_consumer(taken)

    def read() -> None:
        gate.wait_until(1)
        passed.set()

    threading.Thread(target=read, daemon=True).start()
    until_waiting(gate, passed)
    gate.complete(taken, 0)
    assert not gate.ready(1)
    assert not passed.is_set()
    gate.complete(taken, 1)
    assert passed.wait(LONG)
    gate.wait_until(1)


def test_a_reset_lets_readers_go() -> None:
    """A load that is given up holds up nobody behind a reset."""
    gate, passed = LayerGate(1), threading.Event()
    gate.set_consumer(gate.update_producer())

    def read() -> None:
        gate.wait_until(0)
        passed.set()

    threading.Thread(target=read, daemon=True).start()
    until_waiting(gate, passed)
    gate.reset()
    assert passed.wait(LONG)
    assert gate.snapshot() == {"producer": -1, "consumer": -1, "done": [[True]] * 3}


@pytest.mark.parametrize(("layers", "kind"), [(0, NegativeSize), (1.0, WrongDtype)])
def test_no_such_gate(layers: Any, kind: type[PoolError]) -> None:
    """A gate has at least one layer."""
    with pytest.raises(kind):
        LayerGate(layers)


# ---- pools --------------------


def kv_pool(**fields: Any) -> tuple[Any, list[KVBuffer]]:
    """A pool of 8 slots in pages of 4: keys and values of two layers, index keys by pages."""
    memory = [torch.randint(0, 256, (12, 2, 3), dtype=torch.uint8) for _ in range(4)]
    pages = torch.randint(0, 256, (3, 4 * 9), dtype=torch.uint8)
    keys = grouped("index_k", 6, pages[:, :32].view(3, 4, 8))
    scales = grouped("index_scale", 6, pages[:, 32:].view(3, 4, 1))
    names = [("k", 5), ("k", 6), ("v", 5), ("v", 6)]
    rows = [plain(*name, each) for name, each in zip(names, memory, strict=True)]
    buffers = [*rows, keys, scales]
    pool = SimpleNamespace(
        buffers=buffers, size=8, page_size=4, start_layer=5, end_layer=7, device="cpu", **fields
    )
    return pool, buffers


def states() -> MambaPool:
    """States of two layers with both kinds of siblings."""
    shape = StateShape(conv=((2, 3), (1, 3)), temporal=(1, 2, 2), conv_kernel=4)
    params = StateParams(shape=shape, layers=(1, 3), dtype=StateDType())
    pool = MambaPool(
        size=4, spec_state_size=1, cache_params=params, mamba_layer_ids=(1, 3), device="cpu"
    )
    pool.register_slot_state(
        ShortConvPool(
            size=4, state_shape=(2, 2), layer_ids=(0, 2), dtype=torch.float16, device="cpu"
        )
    )
    pool.register_slot_state(NGramPool(size=4, context_len=2, eos_token_id=7, device="cpu"))
    for each in pool.iter_transfer_state_entries():
        each.tensor.copy_(torch.randint(0, 100, each.tensor.shape))
    return pool


def ids(*slots: int) -> torch.Tensor:
    return torch.tensor(slots, dtype=torch.int64)


def taken(host: Any, count: int) -> torch.Tensor:
    """Host slots, there being some."""
    found: torch.Tensor | None = host.slots.alloc(count)
    assert found is not None
    return found


def contents(buffers: Sequence[KVBuffer], slots: torch.Tensor) -> list[Any]:
    return [each.gather(slots).tolist() for each in buffers]


def test_a_round_trip_is_exact_in_every_buffer() -> None:
    """Rows of all kinds come back bit by bit, in other slots, those that lie in groups too."""
    pool, buffers = kv_pool()
    host = HostKVPool(pool, 8)
    assert host.size_per_token == 4 * 6 + 9
    assert host.get_size_bytes() == 8 * 33
    assert sorted({(each.name, each.layer) for each in host.buffers}) == sorted(
        (each.name, each.layer) for each in buffers
    )
    saved, slots = contents(buffers, ids(4, 5, 6, 7)), taken(host, 4)
    rest = contents(buffers, ids(0, 1, 2, 3))
    host.backup(slots, ids(4, 5, 6, 7))
    for each in buffers:
        each.scatter(ids(4, 5, 6, 7), torch.zeros_like(each.gather(ids(4, 5, 6, 7))))
    host.load(slots, ids(8, 9, 10, 11), 5)
    assert contents(buffers, ids(8, 9, 10, 11))[0] == saved[0]
    assert contents(buffers, ids(8, 9, 10, 11))[1] != saved[1]
    host.load(slots, ids(8, 9, 10, 11), 6)
    host.load(slots, ids(8, 9, 10, 11), 7)
    assert contents(buffers, ids(8, 9, 10, 11)) == saved
    assert contents(buffers, ids(0, 1, 2, 3)) == rest
    assert host.audit() == []


def test_states_come_back_with_their_siblings() -> None:
    """Convs, temporal states, short convs and contexts: all of a slot, under another one."""
    pool = states()
    host = HostStatePool(pool, 3)
    entries = list(pool.iter_transfer_state_entries())
    assert {each.name for each in entries} > {"conv", "temporal"}
    assert host.size_per_token == sum(each.tensor[0].nbytes for each in entries)
    assert host.get_size_bytes() == 3 * host.size_per_token
    assert (host.start_layer, host.end_layer) == (0, 4)
    saved = [each.tensor[2].clone() for each in entries]
    others = [each.tensor[:4].clone() for each in entries]
    slot = taken(host, 1)
    load = None
    host.backup(slot, ids(2))
    load = host.start_load(slot, ids(4))
    for layer in load.layers:
        load.layer(layer)
    load.finish()
    for each, due, rest in zip(entries, saved, others, strict=True):
        assert torch.equal(each.tensor[4], due)
        assert torch.equal(each.tensor[:4], rest)


def test_ids_are_made_rows_by_the_copy() -> None:
    """Rows that move between the start of a load and its copy are followed."""
    where = torch.arange(12)
    pool, buffers = kv_pool(translate_kv_indices_for_transfer=lambda slots: where[slots])
    host = HostKVPool(pool, 8)
    slots = taken(host, 4)
    host.backup(slots, ids(4, 5, 6, 7))
    saved = contents(buffers, ids(4, 5, 6, 7))
    load = host.start_load(slots, ids(4, 5, 6, 7))
    where[4:8], where[8:12] = where[8:12].clone(), where[4:8].clone()
    for layer in load.layers:
        load.layer(layer)
    load.finish()
    assert contents(buffers, ids(8, 9, 10, 11)) == saved
    other = HostKVPool(pool, 4, translate=lambda slots: (slots - 4).to(torch.int32))
    first = contents(buffers, ids(0, 1, 2, 3))
    rows = taken(other, 4)
    other.backup(rows, ids(4, 5, 6, 7))
    assert contents(other.buffers, rows) == [
        first[at] for at in (0, 2, 1, 3, 4, 5)
    ]  # by layers, as the names stand


def test_a_backup_is_of_its_start() -> None:
    """What is written behind the start of a backup isn't in it."""
    pool, buffers = kv_pool()
    host = HostKVPool(pool, 4)
    slots = taken(host, 4)
    before = buffers[0].gather(ids(4, 5, 6, 7)).tolist()
    backup = host.start_backup(slots, ids(4, 5, 6, 7))
    buffers[0].rows.zero_()
    assert host.in_transfer(ids(3, 4, 8)).tolist() == [False, True, False]
    for slot in (-1, 12):
        with pytest.raises(OutOfRange):
            host.in_transfer(ids(slot))
    with pytest.raises(StillOwned):
        host.slots.free(slots)
    backup.finish()
    assert host.buffers[0].gather(slots).tolist() == before
    assert host.slots.free(slots) == 4


def test_several_pools_share_a_gate() -> None:
    """A layer has arrived when every part has it; a part that can't begin leaves nothing pinned."""
    pool, _ = kv_pool()
    first, second = HostKVPool(pool, 8), HostKVPool(kv_pool()[0], 8)
    gate, a, b = LayerGate(2), taken(first, 4), taken(second, 4)
    with pytest.raises(NotOwned):
        Load([(first, a, ids(4, 5, 6, 7)), (second, b + 4, ids(4, 5, 6, 7))], gate=gate)
    assert first.snapshot()["pinned"] == first.snapshot()["device_pinned"] == {}
    assert gate.snapshot()["producer"] == -1
    for wrong, parts in ((LayerGate(3), [(first, a, ids(4, 5, 6, 7))]), (gate, [])):
        with pytest.raises(BadLengths):
            Load(parts, gate=wrong)
    first.backup(a, ids(4, 5, 6, 7))
    load = Load([(first, a, ids(4, 5, 6, 7)), (second, b, ids(8, 9, 10, 11))], gate=gate)
    assert load.producer == 0
    gate.set_consumer(0)
    second._mirrors[6] = [(None, None)]  # type: ignore[list-item]
    load.layer(5)
    with pytest.raises(AttributeError):
        load.layer(6)
    assert gate.ready(0)
    assert not gate.ready(1)
    load.cancel()
    assert not load.open
    assert first.snapshot()["pinned"] == second.snapshot()["pinned"] == {}


def test_a_load_that_fails_to_begin_lets_go() -> None:
    """A backup whose copy fails, and a load that the gate refuses, hold nothing."""
    pool, _ = kv_pool()

    def fail(slots: torch.Tensor) -> torch.Tensor:
        raise RuntimeError

    host, gate = HostKVPool(pool, 4, translate=fail), LayerGate(2)
    slots = taken(host, 4)
    with pytest.raises(RuntimeError):
        host.backup(slots, ids(4, 5, 6, 7))
    with pytest.raises(RuntimeError):
        host.load(slots, ids(4, 5, 6, 7), 5)
    for _ in range(3):
        gate.update_producer()
    with pytest.raises(StillOwned):
        host.start_load(slots, ids(4, 5, 6, 7), gate)
    assert host.snapshot()["pinned"] == host.snapshot()["device_pinned"] == {}
    assert host.slots.free(slots) == 4


def test_the_end_of_a_transfer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither host rows are made nor slots let go before the copies are done; the end is once."""
    pool, _ = kv_pool()
    host = HostKVPool(pool, 4)
    said: list[Any] = []
    slots, device = taken(host, 4), ids(4, 5, 6, 7)
    for lane, name in ((host._down, "down"), (host._up, "up")):

        def wait(name: str = name) -> None:
            said.append((name, len(host.snapshot()["pinned"])))

        monkeypatch.setattr(lane, "wait", wait)
        monkeypatch.setattr(lane, "follow", partial(said.append, name))
    host.backup(slots, device)
    load = host.start_load(slots, device)
    load.cancel()
    assert said == ["down", ("down", 4), "up", ("up", 4)]
    assert load.producer == -1
    for end in (load.finish, load.cancel):
        with pytest.raises(StaleHandle):
            end()


def test_what_belongs_to_no_layer_comes_first() -> None:
    """Entries of pseudo layers, from the first such number on, are loaded with the first layer."""
    memory = torch.arange(3, dtype=torch.uint8).view(3, 1)
    entry = TransferEntry("context", memory, None, 2**31)
    pool = SimpleNamespace(
        size=2, device=torch.device("cpu"), iter_transfer_state_entries=lambda: iter([entry])
    )
    host = HostStatePool(pool, 1)
    assert (host.start_layer, host.end_layer) == (0, 1)
    slot = taken(host, 1)
    host.backup(slot, ids(1))
    host.load(slot, ids(2), 0)
    assert memory.tolist() == [[0], [1], [1]]


def test_a_wrong_size_is_told() -> None:
    """The audit compares the bytes of the memory with those that are reported."""
    host = HostKVPool(kv_pool()[0], 8)
    memory, buffer = host._mirrors[5][0]
    host._mirrors[5][0] = memory[:4], buffer
    assert host.audit() == ["I61: 240 bytes are there, 264 are reported"]


def test_a_declaration_builds_its_pool() -> None:
    """A KV pool's mirror and a pool of states' are made by what declares them."""
    pool, _ = kv_pool()
    (own,) = ordered(kv_decls(pool), 2)
    assert isinstance(own.build(8), HostKVPool)
    (own,) = ordered(state_decls(states()), 2)
    assert isinstance(own.build(8), HostStatePool)
