"""The pools of KV: what lies under each slot (`spec/pools_states_sizing.md` §7 to §13)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from impl.storage.dsa import DSATokenToKVPool
from impl.storage.hybrid_linear import HybridLinearKVPool
from impl.storage.mha import MHATokenToKOnlyPool, MHATokenToKVPool
from impl.storage.mla import MLATokenToKVPool
from impl.storage.swa_kv import SWAKVPool
from properties.choices import Choices
from properties.subjects.kv_pools_reference import KVPoolsReference
from properties.systems import kv_pools_commands, kv_pools_reads
from properties.systems.kv_pools_misuse import MISUSE
from properties.systems.kv_pools_model import SITUATIONS, KVModel
from properties.systems.system import Limits, System, allowed

KINDS = ("mha", "k_only", "mla", "dsa", "packed", "hybrid", "swa")
DTYPES = (
    "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
)  # fmt: skip
# Tiny rows, so that all of them are compared after each command.
RANGES: dict[str, tuple[Any, ...]] = {
    "family": tuple(range(len(KINDS))),
    "stored": tuple(range(len(DTYPES))),
    "page_size": (1, 2, 3, 4),
    "pages": (1, 2, 3, 4),
    "layers": (1, 2, 3),
    "start": (0, 0, 1, 3),
    "heads": (1, 2),
    "dim": (1, 2, 3, 4),
    "v_dim": (1, 2, 3, 4),
    "marked": (False, False, True),
    "tame": (False, False, False, True),
}
PACKED = DTYPES.index("float8_e4m3fn")
LARGEST = 64
TILE = 128


@dataclass(frozen=True, kw_only=True)
class KVPoolsConfig:
    """A pool of `KINDS[family]` that stores `DTYPES[stored]`.

    `pages` pages of slots, `layers` layers from `start` on. `heads` heads of `dim` numbers, of
    `v_dim` for values; latents are of `dim` numbers and `v_dim` rotary ones, packed ones of 128.
    Writes have to be `marked` as rows of buffers. Where values are `tame` all types hold them, and
    padded lanes aim at the first page alone.
    """

    family: int
    stored: int
    page_size: int
    pages: int
    layers: int
    start: int
    heads: int
    dim: int
    v_dim: int
    marked: bool
    tame: bool

    @classmethod
    def draw(cls, choices: Choices, limits: Limits) -> KVPoolsConfig:
        drawn: dict[str, Any] = {
            name: choices.pick(allowed(limits, name, values)) for name, values in RANGES.items()
        }
        made = cls(**drawn)
        return replace(made, stored=PACKED) if made.kind == "packed" else made

    @property
    def kind(self) -> str:
        """What kind of pool it is."""
        return KINDS[self.family]

    @property
    def dtype(self) -> str:
        """What it stores."""
        return DTYPES[self.stored]

    @property
    def size(self) -> int:
        """Slots."""
        return self.pages * self.page_size

    @property
    def is_latent(self) -> bool:
        """Whether a token has one row."""
        return self.kind in ("mla", "dsa", "packed")

    @property
    def rank(self) -> int:
        """Numbers of a latent."""
        return TILE if self.kind == "packed" else self.dim

    @property
    def layer_ids(self) -> tuple[int, ...]:
        """Global layers, in the order of the pool's."""
        if self.kind == "hybrid":
            return tuple(range(1, 2 * self.layers, 2))
        if self.kind == "swa":
            return tuple(range(2 * self.layers))
        return tuple(range(self.start, self.start + self.layers))

    @property
    def skipped(self) -> list[bool]:
        """Which layers have no index keys."""
        return [at % 2 == 1 for at in range(self.layers)]

    @property
    def has_index(self) -> bool:
        """Whether there are index keys."""
        return self.kind in ("dsa", "packed")

    def problem(self) -> str | None:
        for name, values in RANGES.items():
            most = max(values) if name in ("family", "stored") else LARGEST
            if not min(values) <= getattr(self, name) <= most:
                return f"{name} must be in {min(values)}..{most}, found {getattr(self, name)}"
        if self.kind == "packed" and self.stored != PACKED:
            return "packed rows are of float8_e4m3fn"
        return None

    def smaller(self) -> list[KVPoolsConfig]:
        changes: list[dict[str, Any]] = [
            {name: type(value)(less)}
            for name, values in RANGES.items()
            for value in (getattr(self, name),)
            for less in range(min(values), value)
        ]
        found = [replace(self, **change) for change in changes]
        return [each for each in found if each.problem() is None]


KV_POOLS = System(
    name="kv_pools",
    config=KVPoolsConfig,
    commands=(*kv_pools_commands.LEGAL, *kv_pools_reads.LEGAL, *MISUSE),
    situations=SITUATIONS,
    reference=KVPoolsReference,
    model=KVModel,
    interface=MHATokenToKVPool,
    siblings=(
        MHATokenToKOnlyPool, MLATokenToKVPool, DSATokenToKVPool, HybridLinearKVPool, SWAKVPool,
    ),
)  # fmt: skip
