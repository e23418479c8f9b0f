"""How a process of the jobs is set up, whichever it is."""

from __future__ import annotations

import gc

import torch


def settle() -> None:
    """One thread, and a collector that doesn't look too early."""
    # Pools are tiny: a second thread only costs time, and other jobs want the cores.
    torch.set_num_threads(1)
    # What is loaded now stays; steps make many short-lived lists, which need no early look.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
