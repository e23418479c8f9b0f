"""Without a GPU the Triton kernels run in Triton's interpreter: said before triton is imported.

Triton looks at the environment once, so whoever starts a process of the harness imports this
module first.
"""

from __future__ import annotations

import importlib.util
import os

import torch

# Looking for a GPU must not touch it: what has touched one can't be forked any more.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


def kernels_run() -> bool:
    """Whether the kernels can run here: compiled on a GPU, or interpreted."""
    return importlib.util.find_spec("triton") is not None and (
        torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1"
    )
