"""What is tried against a mutant: its system's tests, cheapest first; the first failure ends it.

A trial runs in a child process that was forked when everything was loaded, with a limit of time and
of memory: a mutant may hang or eat both, and is noticed then.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import select
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from properties.exhaust import search
from properties.machine import run_machine
from properties.mutation.mutants import Mutant
from properties.scope import Scope
from properties.seeded import Plan, run_steps
from properties.subjects import load
from properties.systems import SYSTEMS

# A sound run of all tests takes a minute or two; in lockstep alone, ten seconds.
LONGEST_SECONDS, LONGEST_LOCKSTEP = 900.0, 120.0
MOST_BYTES = 8 * 2**30
# Small pools show nearly everything, and soonest.
SMALL: dict[str, tuple[Any, ...]] = {"page_size": (1, 2, 3, 4), "num_pages": (1, 2, 3, 4, 6, 8)}
#: what a mutant that is said to change nothing must stand
EQUIVALENT_STEPS = 50_000
SCOPE, SCOPE_DEPTH = Scope(pages=2, page_size=1, requests=2), 6
HERE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Found:
    """By what a mutant was noticed, and after how long."""

    by: str
    seconds: float


@dataclass(frozen=True)
class Suite:
    """The tests of some modules: systems with the subject they run on, and test files."""

    #: (system, subject, steps of the first and of the whole run)
    systems: tuple[tuple[str, str, int, int], ...]
    files: tuple[str, ...]
    #: whether the files come first: next to interpreted steps they are quick
    files_first: bool = False


def _fast(*names: str) -> tuple[tuple[str, str, int, int], ...]:
    return tuple((name, "impl:torch", 1500, 20_000) for name in names)


def _slow(*names: str) -> tuple[tuple[str, str, int, int], ...]:
    return tuple((name, "impl:triton", 150, 1500) for name in names)


def _kernel(*names: str) -> Suite:
    """The tests of a kernel: those with guards around every buffer first."""
    files = tuple(f"kernels/test_{name}.py" for name in names)
    return Suite(INTERPRETED, (*files, *COSTS), files_first=True)


# The cheapest first.
COSTS = ("performance/test_cost.py", "test_backends.py")
UNITS = (
    "test_audits.py", "test_impl.py", "test_impl_errors.py", "test_impl_groups.py",
    "test_impl_copies.py", "test_impl_package.py", "test_examples.py", "test_shortcuts.py",
    "test_arrays.py", "test_metamorphic.py", "test_large.py", *COSTS,
)  # fmt: skip
INTERPRETED = _slow("paged_deferred", "paged", "token_deferred", "token", "paged_rows")
DEFER = _slow("paged_deferred", "token_deferred", "paged_rows")
ROWS = Suite(_fast("rows", "paged_rows"), ("test_impl_rows.py", "test_impl_write.py", *UNITS))
SLOTS = Suite((*_fast("token", "paged", "paged_rows"), *DEFER), UNITS)
LINES = Suite((*_fast("paged_rows"), *_slow("paged_rows")), ("test_metamorphic_rows.py", *UNITS))
DEFERRED = Suite(
    _slow("token_deferred", "paged_deferred", "paged", "token"), (*UNITS, "test_deferred.py")
)
WINDOWS = Suite(
    (*_fast("swa"), *_slow("swa")),
    (
        "test_impl_swa_faults.py", "test_impl_swa.py", "test_impl_swa_shape.py",
        "test_impl_swa_arguments.py", "test_impl_copies.py", "kernels/test_windows.py",
        "test_examples.py", "test_impl_package.py", "test_shortcuts.py",
    ),
)  # fmt: skip
HYBRID = Suite(
    _fast("state_slots", "hybrid_rows"),
    (
        "test_impl_states.py",
        "test_impl_hybrid_refusals.py",
        "test_impl_hybrid_records.py",
        "test_hybrid_rows.py",
        "test_examples.py",
    ),
)
POOLS = Suite(
    (*_fast("state_pools"), *_slow("state_pools")),
    (
        "test_impl_state_pools.py",
        "test_impl_state_pool_refusals.py",
        "kernels/test_slot_moves.py",
        "performance/test_state_cost.py",
    ),
)
KV = Suite(
    (*_fast("kv_pools", "engine"), *_slow("kv_pools")),
    (
        "test_impl_kv.py",
        "test_impl_kv_arguments.py",
        "test_impl_kv_bad_input.py",
        "test_impl_kv_decisions.py",
        "test_impl_kv_figures.py",
        "test_impl_kv_faults.py",
        "test_impl_kv_rows.py",
        "performance/test_kv_cost.py",
        "kernels/test_kv_rows.py",
    ),
)
HOST = Suite(
    _fast("host_tier", "engine"),
    (
        "test_impl_host.py",
        "test_host_lane.py",
        "test_impl_host_plans.py",
        "test_impl_kv_decisions.py",
        "test_impl_kv_figures.py",
        "test_examples.py",
        "test_impl_package.py",
    ),
)
#: beginning of a module's path → its tests; the first that fits
SUITES: tuple[tuple[str, Suite], ...] = (
    ("rows", ROWS),
    ("table", ROWS),
    ("checks", replace(SLOTS, files=(*UNITS, "test_impl_states.py", "test_impl_state_pools.py"))),
    *(
        (f"allocators/{start}", WINDOWS)
        for start in ("swa", "window", "page_pair", "pair_book", "slot_pair")
    ),
    ("slot_calls", replace(KV, files=(*KV.files, "test_impl_state_pools.py"))),
    ("storage/swa_kv", KV),
    ("storage/swa", WINDOWS),
    ("storage", KV),
    ("kernels/kv_rows", KV),
    ("kernels/device/kv_rows", replace(KV, files_first=True)),
    ("host/", HOST),
    ("kernels/windows", WINDOWS),
    ("kernels/device/windows", Suite(_slow("swa"), ("kernels/test_windows.py",), files_first=True)),
    ("sizing", Suite(_fast("swa", "hybrid_rows"), ("test_impl_swa.py", "test_impl_states.py"))),
    ("hybrid_rows", HYBRID),
    *((f"states/{start}", HYBRID) for start in ("slot", "tracking", "record", "register")),
    ("states", POOLS),
    ("kernels/slot_moves", POOLS),
    ("kernels/device/slot_moves", POOLS),
    ("allocators/row_batches", LINES),
    ("allocators/deferr", DEFERRED),
    ("allocators/deferral", DEFERRED),
    ("allocators/stream", DEFERRED),
    ("kernels/device/extend", _kernel("extend", "rows", "tiles")),
    ("kernels/device/release", _kernel("release", "rows", "tiles")),
    ("kernels/device/pages", _kernel("records", "tiles", "release", "extend", "rows")),
    ("kernels/device/common", _kernel("tiles", "release", "extend", "rows")),
    ("kernels/device", _kernel("release", "tiles")),
    ("", SLOTS),
)


def suite_of(mutant: Mutant) -> Suite:
    """The tests of the module that a mutant is in."""
    return next(suite for start, suite in SUITES if mutant.file.startswith(start))


def attempts(mutant: Mutant) -> Iterator[str]:
    """Tries one thing after another; yields by what the mutant was noticed."""
    suite = suite_of(mutant)
    if suite.files_first:
        yield from _units(suite.files)
    for name, subject, few, _ in suite.systems:
        yield from _lockstep(name, subject, few, 0)
    if not suite.files_first:
        yield from _units(suite.files)
    for name, subject, _, many in suite.systems:
        yield from _lockstep(name, subject, many, 1)
    for name, subject, _, _ in suite.systems:
        if subject == "impl:torch":
            yield from _machine(name, subject)


class Late(BaseException):
    """A mutant that doesn't come back."""


def _late(*_: object) -> None:
    raise Late


def _lockstep(system: str, subject: str, steps: int, seed: int) -> Iterator[str]:
    plan = _plan(system, subject, seed)
    signal.signal(signal.SIGALRM, _late)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_LOCKSTEP)
    try:
        finding = run_steps(plan, steps)[1]
    except (Exception, Late) as error:
        yield f"{system}: {type(error).__name__}"
        return
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if finding is not None:
        yield f"{system}: {finding.violation.number}"


def _machine(system: str, subject: str) -> Iterator[str]:
    try:
        run_machine(_plan(system, subject, 0))
    except Exception as error:
        yield f"{system}: Hypothesis: {type(error).__name__}"


def _plan(system: str, subject: str, seed: int) -> Plan:
    fields = SYSTEMS[system].config.__dataclass_fields__
    limits = {name: values for name, values in SMALL.items() if name in fields and seed == 0}
    return Plan(system=SYSTEMS[system], factory=load(subject), seed=seed, limits=limits)


def _units(files: Sequence[str]) -> Iterator[str]:
    """The test files in this process; the name of the first test that fails."""
    paths = [str(HERE / name) for name in files]
    said = io.StringIO()
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=no"]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = pytest.main([*options, *paths])
    if status:
        failed = [line for line in said.getvalue().splitlines() if line.startswith("FAILED")]
        yield (failed or [f"pytest: {int(status)}"])[0].split(" - ")[0].replace("FAILED ", "")


# ---- in a child --------------------


def trial(mutant: Mutant, seconds: float = LONGEST_SECONDS) -> Found | None:
    """By what the mutant is noticed in a child of this process; None if it survives."""
    reading, writing = os.pipe()
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(mutant, writing)
    os.close(writing)
    try:
        answer = _answer(reading, seconds)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    spent = time.monotonic() - begun
    if answer is None:
        return Found("time", spent)
    return Found(answer or "crash", spent) if answer != "survived" else None


def _answer(reading: int, seconds: float) -> str | None:
    """What the child says; empty if it ends without a word, None if it doesn't end."""
    parts: list[bytes] = []
    deadline = time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        part = os.read(reading, 65536)
        if not part:
            text = b"".join(parts).decode()
            return str(json.loads(text)) if text else ""
        parts.append(part)


def _child(mutant: Mutant, writing: int) -> None:
    """Makes the mutant and tries; never returns."""
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        torch.set_num_threads(1)
        with mutant.planted():
            found = next(attempts(mutant), "survived")
        os.write(writing, json.dumps(found).encode())
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(writing, json.dumps(f"error: {type(error).__name__}").encode())
    finally:
        os._exit(0)


def is_equivalent(mutant: Mutant) -> str:
    """What contradicts that a mutant changes nothing: in a closed small scope, or in many steps."""
    suite = suite_of(mutant)
    with mutant.planted():
        for name, subject, *_ in suite.systems:
            steps = EQUIVALENT_STEPS if subject == "impl:torch" else EQUIVALENT_STEPS // 100
            for said in _lockstep(name, subject, steps, 2):
                return said
            if subject == "impl:torch" and SYSTEMS[name].small is not None:
                whole = search(SYSTEMS[name], SCOPE, load(subject), groups=True, depth=SCOPE_DEPTH)
                if whole.finding is not None:
                    return f"{name}: {whole.finding.violation.number} in {SCOPE}"
    return ""
