"""The benchmark runs only when asked for: `pytest properties/performance --benchmark-only`.

Without pytest-benchmark (the extra `bench`) it isn't collected, and a line says so.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from properties.performance import bench
from properties.subjects.impl import default_device

RESULTS = pytest.StashKey[dict[str, bench.Result]]()
_MISSING = "benchmark: left out, pytest-benchmark is missing: pip install 'kvledger[bench]'"


# Of pytest-benchmark's table; all of its columns are twice as wide as a screen.
_COLUMNS = ["median", "iqr", "rounds"]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Narrow the plugin's table, unless the command line chose its columns."""
    if not getattr(config.option, "benchmark_columns", _COLUMNS):
        config.option.benchmark_columns = _COLUMNS


def _is_asked_for(config: pytest.Config) -> bool:
    return bool(config.getoption("benchmark_only", default=False))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the benchmark alone unless it is asked for; None lets others decide."""
    left_out = collection_path.name == "test_benchmark.py" and not _is_asked_for(config)
    return True if left_out else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Asked for, it runs alone: the other tests here count, which takes its time."""
    config.stash.setdefault(RESULTS, {})
    if _is_asked_for(config):
        kept = [item for item in items if "benchmark" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


def pytest_report_collectionfinish(config: pytest.Config) -> str | None:
    """Say why there is no benchmark, where it can't run."""
    return None if config.pluginmanager.hasplugin("benchmark") else _MISSING


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print ours, SGLang's and the ratio."""
    results = list(config.stash.get(RESULTS, {}).values())
    if results:
        terminalreporter.section("ours and SGLang's")
        for line in bench.table(torch.device(default_device()), results):
            terminalreporter.write_line(line)
