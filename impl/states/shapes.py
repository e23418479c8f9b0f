"""What a recurrent layer keeps of a request: shapes, dtypes and the bytes they come to.

Shapes are those of one rank: `tp` ranks share heads and channels. Spec:
`spec/pools_states_sizing.md` §3, §15.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from impl import checks
from impl.errors import PoolError, WrongDtype, WrongShape


def shared(total: int, tp: int, name: str) -> int:
    """The part of `total` that each of `tp` ranks has; `WrongShape` unless all have the same."""
    if tp < 1 or total % tp:
        raise WrongShape(f"{name} {total} can't be shared by {tp} ranks. Use a divisor of it.")
    return total // tp


@dataclass(frozen=True, kw_only=True)
class StateDType:
    """Element types: of the conv windows, and of the recurrent state."""

    conv: torch.dtype = torch.bfloat16
    temporal: torch.dtype = torch.float32


@dataclass(frozen=True, kw_only=True)
class StateShape:
    """Shapes of one slot of one layer.

    `conv`: 2-D shapes, one for each conv. `temporal`: (heads, head dim, state), empty where a
    layer keeps none. `conv_kernel`: the window is one shorter. `conv_slice_axis`: which axis of a
    conv ranks share. `conv_shard_groups`: sizes of the blocks of that axis over all ranks, each
    shared on its own. `disable_conv_window_dedup`: draft windows are stored one by one.
    """

    conv: tuple[tuple[int, ...], ...]
    temporal: tuple[int, ...]
    conv_kernel: int
    conv_slice_axis: int = 0
    conv_shard_groups: tuple[int, ...] | None = None
    disable_conv_window_dedup: bool = False

    @staticmethod
    def mamba2(
        *,
        tp: int,
        intermediate_size: int,
        n_groups: int,
        num_heads: int,
        head_dim: int,
        state_size: int,
        conv_kernel: int,
        conv_shard_groups: tuple[int, ...] | None = None,
    ) -> StateShape:
        """Mamba-2 and GDN. Groups that ranks can't share are repeated. §3."""
        groups = n_groups if n_groups % tp == 0 else n_groups + (tp - n_groups)
        conv_dim = intermediate_size + 2 * groups * state_size
        return StateShape(
            conv=((shared(conv_dim, tp, "conv_dim"), conv_kernel - 1),),
            temporal=(shared(num_heads, tp, "num_heads"), head_dim, state_size),
            conv_kernel=conv_kernel,
            conv_shard_groups=conv_shard_groups,
        )

    @staticmethod
    def mamba1(*, tp: int, intermediate_size: int, state_size: int, conv_kernel: int) -> StateShape:
        """Mamba-1: a state for each channel, the conv over the channels alone. §3."""
        channels = shared(intermediate_size, tp, "intermediate_size")
        return StateShape(
            conv=((channels, conv_kernel - 1),),
            temporal=(channels, 1, state_size),
            conv_kernel=conv_kernel,
        )

    @staticmethod
    def kimi(
        *,
        tp: int,
        num_heads: int,
        head_dim: int,
        conv_kernel: int,
        num_k_heads: int | None = None,
        head_k_dim: int | None = None,
    ) -> StateShape:
        """KDA: one conv of q, k and v, its window axis first. §3."""
        values = shared(num_heads * head_dim, tp, "num_heads * head_dim")
        num_keys = (num_k_heads or num_heads) * (head_k_dim or head_dim)
        keys = shared(num_keys, tp, "num_k_heads * head_k_dim")
        return StateShape(
            conv=((conv_kernel - 1, values + 2 * keys),),
            temporal=(shared(num_heads, tp, "num_heads"), head_dim, head_dim),
            conv_kernel=conv_kernel,
            conv_slice_axis=1,
            disable_conv_window_dedup=True,
        )


@dataclass(frozen=True, kw_only=True)
class StateParams:
    """Shapes and dtypes of the recurrent layers `layers`, global ids."""

    shape: StateShape
    layers: tuple[int, ...]
    dtype: StateDType = StateDType()
    is_kda: bool = False

    @property
    def mamba_cache_per_req(self) -> int:
        """Bytes of one slot over all `layers`. §3."""
        return bytes_per_slot_of_layer(self.shape, self.dtype) * len(self.layers)


def bytes_per_slot_of_layer(shape: StateShape, dtype: StateDType) -> int:
    """Bytes that one layer keeps in one slot. §3."""
    conv = sum(math.prod(each) for each in shape.conv) * dtype.conv.itemsize
    temporal = math.prod(shape.temporal) if shape.temporal else 0
    return conv + temporal * dtype.temporal.itemsize


def require(params: StateParams) -> None:
    """Raise `WrongShape` or `WrongDtype` where a pool can't be made of `params`."""
    errors: list[PoolError | None] = []
    for shape in params.shape.conv:
        if len(shape) != 2 or min(shape) < 1:
            errors.append(WrongShape(f"a conv state has two axes of at least 1, got {shape}."))
    temporal = params.shape.temporal
    if len(temporal) not in (0, 3) or min(temporal, default=0) < 0:
        errors.append(WrongShape(f"a temporal state is (heads, dim, state), got {temporal}."))
    for name, dtype in (("conv", params.dtype.conv), ("temporal", params.dtype.temporal)):
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            errors.append(WrongDtype(f"{name} must be a floating point type, got {dtype}."))
    checks.raise_first(errors)


def window_axis(shape: StateShape) -> int:
    """Which axis of all convs is the window, the last preferred; `WrongShape` if none is. §3."""
    window = shape.conv_kernel - 1
    axes = {1 if each[1] == window else 0 if each[0] == window else -1 for each in shape.conv}
    if len(axes) > 1 or axes & {-1}:
        raise WrongShape(
            f"conv shapes {shape.conv} have no axis of {window} (the kernel less one) in common. "
            "Set disable_conv_window_dedup, or give them one order."
        )
    return axes.pop() if axes else 1
