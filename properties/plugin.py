"""pytest options of the harness: which subject, which level, misuse or not; Hypothesis profiles.

Registered both as an entry point, for other repositories, and by `addopts`, for a checkout that
isn't installed.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings

import properties.interpreter  # noqa: F401 (before triton is imported)
from properties.choices import Seeded
from properties.seeded import Plan
from properties.subjects import BUILT_IN, Factory, UnusableSubject, load
from properties.systems import SYSTEMS

# What every profile shares. No deadline: a GPU's first call compiles. No shrinking and explaining:
# our minimiser starts from the trace as found, and is done in a fraction of a second.
_COMMON = {
    "deadline": None,
    "phases": (Phase.explicit, Phase.reuse, Phase.generate),
    "suppress_health_check": list(HealthCheck),
    "print_blob": False,
    "report_multiple_bugs": False,
}
MOST_GPU_WORKERS = 4
PROFILES = {
    # 60 runs of 100 steps: some seconds for each system; the seeded run beside it goes further
    "kvledger": {"max_examples": 60, "stateful_step_count": 100},
    "kvledger-nightly": {"max_examples": 5000, "stateful_step_count": 100},
}


def profile(name: str = "kvledger") -> settings:
    """Hypothesis settings of one of the profiles."""
    return settings(**_COMMON, **PROFILES[name])  # type: ignore[arg-type]


@dataclass(frozen=True)
class UnderTest:
    """What the command line put under test."""

    factory: Factory
    level: str
    misuse: bool | None

    def left_out(self, system: str) -> list[str]:
        """Methods of a system's commands that the subject doesn't have."""
        found = SYSTEMS[system]
        limits = self.factory.limits.get(system, {})
        config = found.config.draw(Seeded("gate"), limits)
        calls = self.factory.make(found.made, config).calls
        methods = {method for command in found.commands for method in command.methods}
        return sorted(methods - calls)

    def plan(self, system: str, seed: int = 0) -> Plan:
        """A plan for one system of this subject."""
        return Plan(
            system=SYSTEMS[system],
            factory=self.factory,
            seed=seed,
            level=self.level,
            misuse=self.misuse,
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kvledger", "allocators in lockstep with their reference")
    group.addoption(
        "--subject",
        default="impl",
        metavar="S",
        help=f"what to test: {', '.join(BUILT_IN)}, planted:BUG or module:factory (default: impl)",
    )
    group.addoption(
        "--misuse",
        action="store_true",
        help="judge misuse too, on a subject that isn't ours (ours is always judged)",
    )
    group.addoption(
        "--level",
        choices=("exact", "renamed"),
        default="",
        help="compare slots as they are, or up to a renaming of pages (default: the subject's own)",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Small tensors: a thread pool beside xdist's workers costs several times what it gains.
    torch.set_num_threads(1)
    config.addinivalue_line("markers", "system(name): the system that a test drives")
    config.addinivalue_line("markers", "of_subject(name): a test about one foreign subject")
    config.addinivalue_line("markers", "misuse: a test that needs --misuse on a foreign subject")
    for name in PROFILES:
        settings.register_profile(name, profile(name))
    if not config.getoption("--hypothesis-profile", default=None):
        # explicitly, because with CI set Hypothesis loads a profile of its own
        settings.load_profile("kvledger")
    try:
        load(config.getoption("--subject"))
    except UnusableSubject as error:
        raise pytest.UsageError(str(error)) from error


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """`-n auto` on a GPU: each worker has a context there, so a few are as fast as many."""
    if not torch.cuda.is_available():
        return None
    found = min(MOST_GPU_WORKERS, os.cpu_count() or 1)
    print(f"kvledger: {found} workers share the GPU; -n {found + 1} or more to have more")
    return found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A foreign subject runs what is about subjects; a subject without a system skips its tests."""
    name = config.getoption("--subject")
    factory = load(name)
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        mark = item.get_closest_marker("system")
        special = item.get_closest_marker("of_subject")
        about = "subject" in getattr(item, "fixturenames", ())
        fits = mark is None or factory.has(mark.args[0])
        judged = item.get_closest_marker("misuse") is None or config.getoption("--misuse")
        special_fits = special is not None and special.args[0] == name and judged
        wanted = factory.is_ours or about or special_fits
        (kept if fits and wanted else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


@pytest.fixture(scope="session")
def subject(request: pytest.FixtureRequest) -> UnderTest:
    """The subject that the command line names."""
    config = request.config
    return UnderTest(
        factory=load(config.getoption("--subject")),
        level=config.getoption("--level"),
        misuse=True if config.getoption("--misuse") else None,
    )


@pytest.fixture(scope="session")
def sglang() -> Factory:
    """SGLang's own allocators; skipped with a hint where SGLang isn't installed."""
    if importlib.util.find_spec("sglang") is None:
        pytest.skip(
            "SGLang is not installed: pip install 'kvledger[sglang]'"
            " && pip install --no-deps sglang==0.5.23"
        )
    return load("sglang")
