"""The parts of the GPU script that aren't the test suite, one to a process.

`python -m properties.performance.gpu_checks PART FILE` writes what it found as JSON, again and
again while it goes on, and fails with an exception.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from impl import PoolError
from properties.performance import bench, gpu_kv
from properties.performance.gpu_common import Check, Save, busy, capture, require, waits
from properties.performance.spending import PAGE_SIZE, PAGED, TOKEN, Pool, TokenPool

# With 49 cases the benchmark is then done within a minute.
SECONDS_PER_CASE = 0.6


def versions(device: torch.device, save: Save) -> None:
    """What everything else was measured with."""
    names = ("torch", "triton", "numpy", "hypothesis", "pytest", "pytest-xdist", "sglang")
    found: dict[str, Any] = {"python": platform.python_version(), "cuda": torch.version.cuda}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    if device.type == "cuda":
        found["device"] = torch.cuda.get_device_name(device)
        found["capability"] = torch.cuda.get_device_capability(device)
    save(found)


#: backend and whether it validates: what must not wait
MODES = (("triton", True), ("triton", False), ("torch", False))


def synchronisation(device: torch.device, save: Save) -> None:
    """No call waits for the device, but a plain free for its one count."""
    found: dict[str, str] = {}
    for backend, validate in MODES:
        options = {"backend": backend, "validate": validate}
        for name in [*PAGED, *TOKEN]:
            if name != "free":
                key = f"{name}, {backend}, validate={validate}"
                found[key] = _waits(device, name, options)
                save(found)
    waiting = {key: what for key, what in found.items() if what}
    require(not waiting, f"calls that wait for the device: {waiting}")


def _waits(device: torch.device, name: str, options: dict[str, Any]) -> str:
    """What a call waits for the second time, in torch's words; "" when it doesn't."""
    if name in PAGED:
        pool = Pool(device, **options)
        first, second = (PAGED[name](pool, half) for half in (0, 1))
    else:
        token_pool = TokenPool(device, **options)
        first, second = (TOKEN[name](token_pool, half) for half in (0, 1))
    return waits(device, first, second)


def graph(device: torch.device, save: Save) -> None:
    """A captured graph with padded lanes runs between allocations and touches what it may."""
    pool, lanes, steps = Pool(device), 16, 12
    num_real = pool.rows.shape[0]
    # A number for each slot stands for its KV; lanes beyond the batch keep row 0 and slot 0.
    kv = torch.zeros((pool.num_pages + 1) * PAGE_SIZE, dtype=torch.int64, device=device)
    rows, positions, slots, stamp = torch.zeros(4, lanes, dtype=torch.int64, device=device)
    read = torch.zeros_like(rows)

    def forward() -> None:
        kv.index_put_((slots,), stamp)
        read.copy_(kv[pool.table.req_to_token[rows, positions].to(torch.int64)])

    replay, refused = capture(forward, lambda: pool.allocator.alloc(PAGE_SIZE))
    require(bool(refused), "a call under capture wasn't refused")
    rows[:num_real] = pool.rows.to(device)
    written: dict[int, int] = {}
    for step in range(1, steps + 1):
        seq = pool.both(pool.lens + step)
        got = pool.allocator.alloc_decode_rows(pool.table, *pool.both(pool.rows), *seq)
        if got is None:
            raise AssertionError("a pool with room gave None")
        slots[:num_real], positions[:num_real] = got, seq[0] - 1
        stamp[:num_real] = step
        replay()
        require(bool((read[:num_real] == step).all()), f"step {step}: a lane read another's slot")
        written.update(dict.fromkeys(got.tolist(), step))
    expected = torch.zeros_like(kv)
    expected[torch.tensor(list(written), device=device)] = torch.tensor(
        list(written.values()), device=device
    )
    require(torch.equal(kv, expected), "a lane wrote outside its slot")
    require(not pool.table.req_to_token[0].any(), "something was written to row 0")
    pool.allocator.check()
    require(pool.allocator.audit() == [], f"audit: {pool.allocator.audit()}")
    save({"steps": steps, "lanes": lanes, "real": num_real, "refused": refused})


def recovery(device: torch.device, save: Save) -> None:
    """A deferred fault voids what follows, is named by `check`, and `recover` takes it all back."""
    found: dict[str, str] = {}
    for kind, call in FAULTS.items():
        pool = Pool(device, backend="triton")
        allocator = pool.allocator
        before = allocator.snapshot()
        busy(device)
        call(pool)
        # A host that hears of the fault early enough may refuse this already.
        try:
            void = allocator.alloc(PAGE_SIZE)
            require(void is not None and not void.any(), f"{kind}: a void call issued {void}")
        except PoolError as error:
            require(type(error).__name__ == kind, f"{kind}: {type(error).__name__} was raised")
        try:
            allocator.check()
        except PoolError as error:
            require(type(error).__name__ == kind, f"{kind}: check raised {error!r}")
            found[kind] = str(error)
        require(kind in found, f"{kind}: check raised nothing")
        allocator.recover()
        require(allocator.snapshot() == before, f"{kind}: recover left another state")
        after = allocator.alloc(PAGE_SIZE)
        require(after is not None and bool(after.all()), f"{kind}: nothing is issued any more")
        allocator.check()
        require(allocator.audit() == [], f"{kind}: audit: {allocator.audit()}")
        save(found)


def _page_ids(pool: Pool, *pages: int) -> None:
    pool.allocator.free_page_ids(pool.sent(torch.tensor(pages)))


def _wrong_last_loc(pool: Pool) -> None:
    prefix, prefix_cpu, seq, seq_cpu = pool.grown(0, 1)
    total = int((seq_cpu - prefix_cpu).sum())
    last = pool.last(0) + 1
    pool.allocator.alloc_extend(prefix, prefix_cpu, seq, seq_cpu, last, total)


#: kind of refusal → a call that earns it, of which the host can't know
FAULTS: dict[str, Callable[[Pool], None]] = {
    "Duplicate": lambda pool: _page_ids(pool, 1, 2, 1),
    "NotOwned": lambda pool: _page_ids(pool, 1, pool.num_pages),
    "Reserved": lambda pool: _page_ids(pool, 0),
    "OutOfRange": lambda pool: _page_ids(pool, 1, pool.num_pages + 7),
    "BadLastLoc": _wrong_last_loc,
}


def benchmark(device: torch.device, save: Save) -> None:
    """The benchmark's cases; what is measured is saved as it comes."""
    results: list[bench.Result] = []
    for case in bench.all_cases(device):
        results += bench.run(device, [case], lambda line: None, SECONDS_PER_CASE)
        save([each.to_json() for each in results])
    print("\n".join(bench.table(device, results)))


CHECKS: dict[str, Check] = {
    "versions": versions,
    "synchronisation": synchronisation,
    "graph": graph,
    "recovery": recovery,
    "kv": gpu_kv.kv,
    "benchmark": benchmark,
}


def main() -> None:
    """Run the part that the command line names."""
    name, path = sys.argv[1:]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    CHECKS[name](device, lambda found: _save(Path(path), found))


def _save(path: Path, found: Any) -> None:
    path.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
