"""`fuzz doctor`: which versions, backends and subjects are usable here, and why others are not."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from importlib import metadata

import torch

from fuzz.options import Jobs, check_plan
from fuzz.options import subject as load_subject
from properties.interpreter import kernels_run
from properties.seeded import Plan
from properties.subjects import BUILT_IN
from properties.systems import SYSTEMS
from properties.trace import FINDINGS

NEEDED = ("torch", "numpy", "hypothesis", "pytest")
# package → what is missing without it
OPTIONAL = {
    "triton": "the Triton kernels",
    "pytest-xdist": "pytest -n auto",
    "coverage": "reports of coverage",
    "rich": "the live line and drawn tables",
    "pytest-benchmark": "pytest properties/performance --benchmark-only",
    "sglang": "subject sglang",
}
#: state, what it is about, why
Line = tuple[str, str, str]
OK, NO = "ok", "no"


def add(jobs: Jobs) -> None:
    """`doctor` has no arguments."""
    doing = "say which versions, backends and subjects are usable here, and why others are not"
    jobs.add_parser("doctor", help=doing, description=doing).set_defaults(start=start)


def start(args: object) -> int:
    """Prints all lines; 0 if what everybody needs is there, else 1."""
    found = [*versions(), *backends(), *subjects(), *places()]
    for state, what, why in found:
        print(f"{state:<3} {what:<28} {why}".rstrip(), flush=True)
    needed = {*NEEDED, "subject impl"}
    return int(any(state == NO and what in needed for state, what, _ in found))


def versions() -> Iterator[Line]:
    """Python, and the packages by name."""
    yield OK, "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    for name in (*NEEDED, *OPTIONAL):
        try:
            yield OK, name, metadata.version(name)
        except metadata.PackageNotFoundError:
            without = OPTIONAL.get(name, "anything")
            yield NO, name, f"not installed; without it there is no {without}"


def backends() -> Iterator[Line]:
    """What the allocators can run on."""
    yield OK, "backend torch", "everywhere"
    if torch.cuda.is_available():
        yield OK, "CUDA", torch.cuda.get_device_name()
    else:
        built = torch.version.cuda or torch.version.hip
        why = f"torch is built for {built}, but sees no device" if built else "a CPU build of torch"
        yield NO, "CUDA", why
    if kernels_run():
        how = "on the GPU" if torch.cuda.is_available() else "in Triton's interpreter, slowly"
        yield OK, "backend triton", how
    else:
        yield NO, "backend triton", "triton isn't installed, or was imported before it could be set"


def subjects() -> Iterator[Line]:
    """What can be put under test, each system of it built once."""
    for name in BUILT_IN:
        usable, reasons = [], []
        try:
            factory = load_subject(name)
        except Exception as error:
            yield NO, f"subject {name}", _reason(error)
            continue
        for system in SYSTEMS.values():
            if not factory.has(system.name):
                reasons.append(f"{system.name}: it has none")
                continue
            try:
                check_plan(Plan(system=system, factory=factory, seed=0))
            except Exception as error:
                reasons.append(f"{system.name}: {_reason(error)}")
            else:
                usable.append(system.name)
        told = "; ".join([", ".join(usable), *reasons] if usable else reasons)
        yield OK if usable else NO, f"subject {name}", told


def places() -> Iterator[Line]:
    """Where findings go, and how many processes can work."""
    folder = FINDINGS.parent
    near = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(near).free // 2**20
    writable = os.access(near, os.W_OK)
    yield OK if writable else NO, "findings", f"{folder.absolute()}, {free:,} MiB free"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield OK, "cores", f"{cores} for --workers"


def _reason(error: Exception) -> str:
    return " ".join(f"{error}".split())[:200] or type(error).__name__
