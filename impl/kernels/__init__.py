"""One module per operation: the plan that the host makes for it, and its torch form.

The Triton kernels stand in `device`. Backend "auto" means "triton" on CUDA where triton is
installed, else "torch". Both place the same slots. Spec: `spec/core.md` §4 and §5.
"""

from __future__ import annotations

import importlib.util

import torch

from impl.errors import Unsupported

BACKENDS = ("auto", "torch", "triton")


def resolve(backend: str, device: torch.device) -> str:
    """ "torch" or "triton"; `Unsupported` for an unknown name, or triton where it can't run."""
    if backend not in BACKENDS:
        words = ", ".join(f'"{each}"' for each in BACKENDS)
        raise Unsupported(f"backend {backend!r} is unknown. Use one of {words}.")
    if backend == "auto":
        found = device.type == "cuda" and importlib.util.find_spec("triton") is not None
        return "triton" if found else "torch"
    if backend == "triton":
        _require_triton(device)
    return backend


def _require_triton(device: torch.device) -> None:
    """`Unsupported` unless kernels can run: compiled on CUDA, interpreted on the CPU."""
    if importlib.util.find_spec("triton") is None:
        raise Unsupported(
            'backend "triton" needs triton, which isn\'t installed: pip install triton. '
            'Or use "torch".'
        )
    import triton

    if device.type == "cpu" and not triton.knobs.runtime.interpret:
        raise Unsupported(
            'backend "triton" runs on the CPU in Triton\'s interpreter only: set '
            'TRITON_INTERPRET=1 before triton is imported. Or use "torch".'
        )
