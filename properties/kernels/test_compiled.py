"""Kernels compile for every GPU we name: nothing spills, rows are addressed in 64 bits."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)


def child(*args: str) -> Any:
    """The JSON that a child process prints, which Triton's interpreter stays out of."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, "-m", "properties.kernels.compiled", *args],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("target", ["cuda 80", "cuda 90", "cuda 100", "hip gfx942"])
def test_kernels_compile_without_spills(target: str) -> None:
    """Every kernel in every variant: registers were counted, and none is spilled."""
    reports = child(*target.split())
    assert len(reports) == 33
    for report in reports:
        assert len(report["spilled"]) == 2, f"no figures: {report}"
        assert set(report["spilled"]) == {"0"}, f"spills: {report}"
        assert 0 < int(report["registers"][0]) <= 255, report
    strides = [report["stride"] for report in reports if "stride" in report]
    if "cuda" in target:
        assert len(strides) == 15
        for load, *uses in strides:
            assert load == "ld.param.b64" or load == "ld.param.u64"
            assert uses
            assert set(uses) <= {"mul.lo.s64", "mad.lo.s64"}, f"the row offset passes {uses}"
        narrowed = [report["narrowed"] for report in reports if "narrowed" in report]
        assert len(narrowed) == 7
        for found in narrowed:
            # single ones are numbers of programs, times lanes
            assert set(found) <= {"i32"}, f"a row's place in a large pool is cut: {found}"


def test_a_thousand_random_calls_compile_once() -> None:
    """One variant of a kernel per combination of dtypes and constexprs, whatever the numbers."""
    found = child("keys")
    assert len(found) == 32
    most = {name: max(each[name] for each in found.values()) for name in next(iter(found.values()))}
    # Extends: each call decodes or not, and goes through rows or not by its dtypes.
    assert most == {
        "extend.plan": 2,
        "extend.fill": 2,
        "take.take_slots": 1,
        "release.release_runs": 4,
        "slots.sort_keys": 1,
        "slots.release_slots": 2,
        "merge.merge_states": 1,
        # one for each width of words, in which ids there are
        "slot_moves.check_ids": 3,
        "slot_moves.fill_rows": 4,
        "slot_moves.move_rows": 12,
        "windows.resolve_pages": 1,
        # raw words, heads, scaled and limited latents
        "kv_rows.store_rows": 3,
        # one for each width of words
        "kv_rows.check_moves": 1,
        "kv_rows.move_slots": 4,
    }
