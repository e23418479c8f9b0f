"""The pytest options that need no subject."""

from __future__ import annotations

import os

import pytest
import torch

from properties import plugin


@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (4, 4), (16, 4)])
def test_workers_share_a_gpu(
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cores: int,
    workers: int,
) -> None:
    """On a GPU `-n auto` means at most 4 workers, and says how many."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert plugin.pytest_xdist_auto_num_workers(pytestconfig) == workers
    assert f"{workers} workers share the GPU" in capsys.readouterr().out


def test_without_a_gpu_xdist_decides(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a GPU `-n auto` is as many workers as xdist thinks right."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert plugin.pytest_xdist_auto_num_workers(pytestconfig) is None
