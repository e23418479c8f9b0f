"""The state pools: recurrent states and their siblings (`spec/pools_states_sizing.md` §3, §5)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from impl import MambaPool, NGramPool, ShortConvPool
from properties.choices import Choices
from properties.subjects.state_pools_reference import StatePoolsReference
from properties.systems import state_pools_commands, state_pools_misuse, state_pools_siblings
from properties.systems.state_pools_model import SITUATIONS, StateModel
from properties.systems.system import Limits, System, allowed

# Where convs have their window axis; in a kind of model draft windows never overlap.
LAST, FIRST, KIMI = range(3)
# Tiny states, so that all of them are compared after each command.
RANGES: dict[str, tuple[Any, ...]] = {
    "size": (1, 2, 3, 4),
    "layers": (1, 2, 3),
    "convs": (0, 1, 2),
    "window": (1, 2, 3),
    "channels": (1, 2, 4),
    "order": (LAST, LAST, FIRST, KIMI),
    "temporal": (0, 1, 2),
    "draft": (0, 1, 2, 3),
    "rows": (1, 2),
    "tree": (False, False, True),
    "short_conv": (0, 1, 2),
    "ngram": (0, 1, 3),
    "narrow": (False, True),
}
LARGEST = 64
SHORT_SHAPE = (2, 2)


@dataclass(frozen=True, kw_only=True)
class StatePoolsConfig:
    """States of `size` slots of `layers` layers.

    `convs` convs with windows of `window` inputs, `order` says on which axis; conv i has
    `channels` + i of them, of 16 bits where they are `narrow`. The temporal state is `temporal`
    long along each axis. `draft` steps, none if 0, for `rows` rows of a batch, in a chain or a
    `tree`. `short_conv` layers with short convolutions and contexts of `ngram` tokens, disabled
    if 0.
    """

    size: int
    layers: int
    convs: int
    window: int
    channels: int
    order: int
    temporal: int
    draft: int
    rows: int
    tree: bool
    short_conv: int
    ngram: int
    narrow: bool

    @classmethod
    def draw(cls, choices: Choices, limits: Limits) -> StatePoolsConfig:
        drawn: dict[str, Any] = {
            name: choices.pick(allowed(limits, name, values)) for name, values in RANGES.items()
        }
        made = cls(**drawn)
        return made if made.problem() is None else replace(made, order=LAST)

    @property
    def layer_ids(self) -> tuple[int, ...]:
        return tuple(range(1, 2 * self.layers, 2))

    @property
    def short_layer_ids(self) -> tuple[int, ...]:
        return tuple(range(0, 2 * self.short_conv, 2))

    @property
    def conv_shapes(self) -> tuple[tuple[int, int], ...]:
        pairs = [(self.channels + at, self.window) for at in range(self.convs)]
        return tuple(pair if self.order == LAST else pair[::-1] for pair in pairs)

    @property
    def temporal_shape(self) -> tuple[int, int, int]:
        return (self.temporal,) * 3

    @property
    def num_temporal(self) -> int:
        return self.temporal**3

    @property
    def short_shape(self) -> tuple[int, int]:
        return SHORT_SHAPE

    @property
    def num_short(self) -> int:
        return SHORT_SHAPE[0] * SHORT_SHAPE[1]

    @property
    def draft_tokens(self) -> int | None:
        return self.draft or None

    @property
    def topk(self) -> int | None:
        return 2 if self.tree else None

    @property
    def kimi(self) -> bool:
        return self.order == KIMI

    @property
    def dtype(self) -> str:
        return "bfloat16" if self.narrow else "float32"

    @property
    def item_bytes(self) -> int:
        return 2 if self.narrow else 4

    def problem(self) -> str | None:
        for name, values in RANGES.items():
            most = KIMI if name == "order" else LARGEST
            if not min(values) <= getattr(self, name) <= most:
                return f"{name} must be in {min(values)}..{most}, found {getattr(self, name)}"
        if self.order == FIRST and any(a == b for a, b in self.conv_shapes):
            return "a conv as wide as its window has its window axis last"
        return None

    def smaller(self) -> list[StatePoolsConfig]:
        found = [
            self._with(name, type(value)(less))
            for name, values in RANGES.items()
            for value in (getattr(self, name),)
            for less in range(min(values), value)
        ]
        return [each for each in found if each.problem() is None]

    def _with(self, name: str, value: Any) -> StatePoolsConfig:
        changed: dict[str, Any] = {name: value}
        return replace(self, **changed)


STATE_POOLS = System(
    name="state_pools",
    config=StatePoolsConfig,
    commands=(
        *state_pools_commands.LEGAL,
        *state_pools_siblings.LEGAL,
        *state_pools_misuse.MISUSE,
    ),
    situations=SITUATIONS,
    reference=StatePoolsReference,
    model=StateModel,
    interface=MambaPool,
    siblings=(ShortConvPool, NGramPool),
)
