"""The part of the GPU script about KV: writes in captured graphs, faults behind a replay, the slots
of a large pool, the way to the host and back, and that no write waits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from impl import (
    DSATokenToKVPool,
    HostKVPool,
    LayerGate,
    MHATokenToKOnlyPool,
    MHATokenToKVPool,
    MLATokenToKVPool,
    PoolError,
)
from impl.storage.packed import calculate_mla_kv_cache_dim
from properties.performance.gpu_common import Save, busy, capture, require, waits

SIZE, PAGE_SIZE, LAYERS = 64, 4, 3
HEADS, WIDTH, ROPE, RANK = 2, 16, 8, 128
LANES, REPLAYS = 16, 12
FP8 = torch.float8_e4m3fn
#: of one buffer: more than 32 bits count, in bytes and in numbers; a GPU's memory has room for it
LARGE_BYTES = 5 * 2**30
LARGE_HEADS, LARGE_WIDTH = 8, 128


def kv(device: torch.device, save: Save) -> None:
    """All of it; what was found is saved as it comes."""
    found: dict[str, Any] = {}
    for name, check in CHECKS.items():
        found[name] = check(device)
        save(found)


class Written:
    """Pools of three kinds and their twins in torch; static tensors that a graph reads."""

    def __init__(
        self, device: torch.device, backend: str = "triton", validate: bool = True
    ) -> None:
        self.pools = _pools(device, backend=backend, validate=validate)
        self.twins = _pools(device, backend="torch")
        self.loc = torch.zeros(LANES, dtype=torch.int64, device=device)
        self.values = {
            name: torch.zeros(LANES, *shape, device=device)
            for name, shape in {
                "k": (HEADS, WIDTH), "v": (HEADS, WIDTH), "nope": (1, RANK), "rope": (1, ROPE)
            }.items()
        }  # fmt: skip

    def write(self, pools: dict[str, Any], loc: torch.Tensor, lanes: int) -> None:
        """Every kind of write, in every layer, of the first `lanes` values."""
        given = {name: each[:lanes] for name, each in self.values.items()}
        for layer in range(LAYERS):
            pools["heads"].set_kv_buffer(layer, loc, given["k"], given["v"], 0.5, 0.25)
            for name in ("latents", "packed"):
                pools[name].set_mla_kv_buffer(layer, loc, given["nope"], given["rope"])
            keys, scales = given["nope"][:, 0].to(FP8), given["k"][:, 0, :1]
            pools["packed"].set_index_k_scale_buffer(layer, loc, keys, scales)

    def forward(self) -> None:
        """What a graph does."""
        self.write(self.pools, self.loc, LANES)

    def draw(self, replay: int) -> int:
        """A batch of `replay` requests' tokens in its lanes, the others padding; its lanes."""
        chosen = torch.Generator().manual_seed(replay)
        lanes = replay % (LANES + 1)
        slots = torch.randperm(SIZE, generator=chosen)[:lanes] + PAGE_SIZE
        # padded lanes aim at the first page or at no slot at all
        padded = torch.arange(LANES) % (PAGE_SIZE + 1) - 1
        padded[:lanes] = slots
        self.loc.copy_(padded)
        for each in self.values.values():
            each.copy_(torch.randn(each.shape, generator=chosen))
        return lanes

    def differing(self) -> list[str]:
        """Buffers in which pools and twins differ."""
        return [
            f"{name}: {one.name} of layer {one.layer}"
            for name, pool in self.pools.items()
            for one, other in zip(pool.buffers, self.twins[name].buffers, strict=True)
            if not torch.equal(one.rows, other.rows)
        ]


def _pools(device: torch.device, **options: Any) -> dict[str, Any]:
    options["device"] = device
    width = calculate_mla_kv_cache_dim(RANK, ROPE, FP8, is_dsa=True)
    common = (SIZE, PAGE_SIZE)
    return {
        "heads": MHATokenToKVPool(*common, FP8, HEADS, WIDTH, LAYERS, **options),
        "latents": MLATokenToKVPool(*common, torch.bfloat16, RANK, ROPE, LAYERS, **options),
        "packed": DSATokenToKVPool(*common, FP8, RANK, ROPE, LAYERS, kv_cache_dim=width, **options),
    }


def graph(device: torch.device) -> dict[str, Any]:
    """Writes captured once and replayed over padded batches leave what eager ones leave."""
    made = Written(device)
    slots = torch.tensor([PAGE_SIZE], device=device)
    move = made.pools["heads"].move_kv_cache
    replay, refused = capture(made.forward, lambda: move(slots, slots + 1))
    require(bool(refused), "a move under capture wasn't refused")
    for number in range(REPLAYS):
        lanes = made.draw(number)
        replay()
        made.write(made.twins, made.loc[:lanes], lanes)
        require(not made.differing(), f"replay {number} of {lanes} lanes: {made.differing()}")
    for name, pool in made.pools.items():
        pool.check()
        require(pool.audit() == [], f"{name}: audit: {pool.audit()}")
    return {"replays": REPLAYS, "lanes": LANES, "refused": refused}


def fault(device: torch.device) -> str:
    """A slot beyond the pool: that replay and those behind it write nothing, until `recover`."""
    made = Written(device)
    pool, twin = made.pools["heads"], made.twins["heads"]

    def forward() -> None:
        pool.set_kv_buffer(LAYERS - 1, made.loc, made.values["k"], made.values["v"])

    replay, _ = capture(forward, lambda: None)
    for number in (LANES, LANES - 1):
        made.draw(number)
        if number == LANES:
            made.loc[3] = SIZE + PAGE_SIZE
        replay()
    require(not made.differing(), f"written behind a fault: {made.differing()}")
    message = ""
    try:
        pool.check()
    except PoolError as error:
        message = f"{type(error).__name__}: {error}"
    require(message.startswith("OutOfRange"), f"a slot beyond the pool: {message or 'nothing'}")
    pool.recover()
    replay()
    lanes = LANES - 1
    given = [made.values[name][:lanes] for name in ("k", "v")]
    twin.set_kv_buffer(LAYERS - 1, made.loc[:lanes], *given)
    require(not made.differing(), f"behind recover: {made.differing()}")
    pool.check()
    return message


def large(device: torch.device) -> dict[str, int]:
    """The last slot of a buffer of more bytes and numbers than 32 bits count is the last slot."""
    row_bytes = LARGE_HEADS * LARGE_WIDTH * 2
    size = LARGE_BYTES // row_bytes
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        require(free > 2 * LARGE_BYTES, f"{free} bytes are free: too few for a large pool")
    pool = MHATokenToKOnlyPool(
        size, 1, torch.bfloat16, LARGE_HEADS, LARGE_WIDTH, 1, device=device, backend="triton"
    )
    # the last, and where offsets of 31 and 32 bits come round, in numbers and in bytes
    turns = [2**bits // each for bits in (31, 32) for each in (row_bytes, row_bytes // 2)]
    slots = [size, *(turn for turn in dict.fromkeys(turns) if turn < size)]
    keys = torch.randn(len(slots), LARGE_HEADS, LARGE_WIDTH).to(device, torch.bfloat16)
    loc = torch.tensor(slots, device=device)
    pool.set_k_buffer(0, loc, keys)
    buffer = pool.get_key_buffer(0)
    require(torch.equal(buffer[loc], keys), "a slot isn't where it should be")
    pool.move_kv_cache(torch.tensor([2], device=device), loc[:1])
    require(torch.equal(buffer[2], keys[0]), "a move read another slot")
    pool.move_kv_cache(torch.tensor([size - 1], device=device), loc[:1])
    require(torch.equal(buffer[size - 1], keys[0]), "a move wrote another slot")
    pool.check()
    written = {*slots, 2, size - 1}
    counted = int(buffer.view(buffer.shape[0], -1).any(1).sum())
    require(counted == len(written), f"{counted} slots were written, {len(written)} are due")
    return {"slots": size, "bytes": buffer.nbytes}


def host(device: torch.device) -> dict[str, int]:
    """To the host and back under other slots, on the host tier's streams, behind the layer gate."""
    made = Written(device)
    for number in (LANES, LANES - 1):
        lanes = made.draw(number)
        made.write(made.pools, made.loc[:lanes], lanes)
    moved = 0
    held = torch.arange(PAGE_SIZE, SIZE // 2 + PAGE_SIZE, device=device)
    others = held + SIZE // 2
    for name, pool in made.pools.items():
        tier = HostKVPool(pool, SIZE)
        ids = tier.slots.alloc(held.shape[0])
        if ids is None:
            raise AssertionError("a host pool with room gave None")
        due = [each.gather(held) for each in pool.buffers]
        busy(device)
        tier.backup(ids, held)
        for each in pool.buffers:
            each.scatter(others, torch.zeros_like(each.gather(others)))
        pool.layer_transfer_gate = gate = LayerGate(LAYERS, device=device)
        busy(device)
        load = tier.start_load(ids, others, gate)
        gate.set_consumer(load.producer)
        for layer in range(LAYERS):
            load.layer(layer)
            # waits on the stream, not here
            pool.get_key_buffer(layer)
        read = [each.gather(others) for each in pool.buffers]
        require(all(map(torch.equal, read, due)), f"{name}: other bytes came back")
        load.finish()
        pool.layer_transfer_gate = None
        pool.load_cpu_copy(pool.get_cpu_copy(others), held)
        require(all(map(torch.equal, [each.gather(held) for each in pool.buffers], due)),
                f"{name}: other bytes came back of a copy")  # fmt: skip
        tier.slots.free(ids)
        require(tier.audit() == [], f"{name}: audit: {tier.audit()}")
        moved += sum(each.nbytes for each in due)
    return {"bytes": moved}


def synchronisation(device: torch.device) -> dict[str, str]:
    """No write and no move waits for the device."""
    found: dict[str, str] = {}
    for backend, validate in (("triton", True), ("triton", False), ("torch", False)):
        for name, call in CALLS.items():
            made = Written(device, backend, validate)
            made.draw(LANES)
            once = partial(call, made)
            found[f"{name}, {backend}, validate={validate}"] = waits(device, once, once)
    waiting = {key: what for key, what in found.items() if what}
    require(not waiting, f"calls that wait for the device: {waiting}")
    return found


#: calls that may not wait
CALLS: dict[str, Callable[[Written], None]] = {
    "writes": Written.forward,
    "move": lambda made: made.pools["heads"].move_kv_cache(made.loc, made.loc),
}

CHECKS: dict[str, Callable[[torch.device], Any]] = {
    "graph": graph,
    "fault": fault,
    "large": large,
    "host": host,
    "synchronisation": synchronisation,
}
