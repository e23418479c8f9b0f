"""The small engine: rows, an allocator, a pool of KV and a host tier together.

Configs, commands, reference. What it does stands in `properties.subjects.engine`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from properties.choices import Choices
from properties.subjects.engine import Engine
from properties.subjects.engine_reference import EngineReference
from properties.systems import engine_commands, engine_ends, engine_host, engine_misuse
from properties.systems.engine_model import SITUATIONS, EngineLockstep, EngineModel
from properties.systems.kv_pools import DTYPES
from properties.systems.system import Limits, System, allowed

KINDS = ("mha", "mla")
# Small, so that pools run full, pages are soon another's, and all that is read is little.
RANGES: dict[str, tuple[Any, ...]] = {
    "family": (0, 0, 1),
    "stored": (*range(len(DTYPES)), DTYPES.index("bfloat16")),
    "page_size": (1, 2, 3, 4),
    "pages": (2, 3, 4, 6, 8, 12),
    "rows": (1, 2, 3, 4, 4),
    "width": (4, 6, 9),
    "layers": (1, 2),
    "heads": (1, 2),
    "dim": (2, 3),
    "chunk": (1, 2, 3, 4),
    "host_pages": (0, 1, 2, 4, 6),
    "need_sort": (False, True),
    "captured": (False, True),
    "by_rows": (False, False, True),
}
LEAST: dict[str, int] = {"pages": 1, "width": 1, "dim": 1}
LARGEST = 64


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """A pool of `KINDS[family]` that stores `DTYPES[stored]`: `pages` pages, `layers` layers.

    `heads` heads of `dim` numbers; latents are of `dim` numbers and `heads` rotary ones. `rows`
    rows of `width` positions; prompts are prefilled in chunks of `chunk` tokens. The host tier has
    `host_pages`. Decodes are `captured` in fixed tensors, or written as they come. Slots are taken
    and given back as such, or `by_rows`.
    """

    family: int
    stored: int
    page_size: int
    pages: int
    rows: int
    width: int
    layers: int
    heads: int
    dim: int
    chunk: int
    host_pages: int
    need_sort: bool
    captured: bool
    by_rows: bool

    @classmethod
    def draw(cls, choices: Choices, limits: Limits) -> EngineConfig:
        drawn: dict[str, Any] = {
            name: choices.pick(allowed(limits, name, values)) for name, values in RANGES.items()
        }
        return cls(**drawn)

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
    def host_size(self) -> int:
        """Slots of the host tier."""
        return self.host_pages * self.page_size

    @property
    def layer_ids(self) -> range:
        """Global layers."""
        return range(self.layers)

    @property
    def rank(self) -> int:
        """Numbers of a latent, without the rotary ones."""
        return self.dim

    @property
    def rope(self) -> int:
        """Rotary numbers of a latent."""
        return self.heads

    @property
    def kv_heads(self) -> int:
        """Heads that a token's values come in."""
        return 1 if self.kind == "mla" else self.heads

    @property
    def row_width(self) -> int:
        """Numbers of a token in a buffer."""
        return self.rank + self.rope if self.kind == "mla" else self.heads * self.dim

    def problem(self) -> str | None:
        for name, values in RANGES.items():
            least = LEAST.get(name, min(values))
            most = max(values) if name in ("family", "stored") else LARGEST
            if not least <= getattr(self, name) <= most:
                return f"{name} must be in {least}..{most}, found {getattr(self, name)}"
        return None

    def smaller(self) -> list[EngineConfig]:
        changes: list[dict[str, Any]] = [
            {name: type(value)(less)}
            for name, values in RANGES.items()
            for value in (getattr(self, name),)
            for less in range(LEAST.get(name, min(values)), value)
        ]
        found = [replace(self, **change) for change in changes]
        return [each for each in found if each.problem() is None]


ENGINE = System(
    name="engine",
    config=EngineConfig,
    commands=(
        *engine_commands.LEGAL,
        *engine_ends.LEGAL,
        *engine_host.LEGAL,
        *engine_misuse.MISUSE,
    ),
    situations=SITUATIONS,
    reference=EngineReference,
    model=EngineModel,
    interface=Engine,
    lockstep=EngineLockstep,
)
