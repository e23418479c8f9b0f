"""The systems of ours whose faults of values arrive later: the Triton kernels' path.

Each is a system like the one it is named after, with the same commands, in lockstep of the kind
that `properties.deferred` describes. Spec: `spec/core.md` §4 (misuse).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from properties.choices import Choices
from properties.deferred import DeferredLockstep
from properties.systems import growth_misuse, misuse
from properties.systems.paged_rows import PAGED_ROWS, PagedRowsConfig
from properties.systems.system import Limits, allowed
from properties.systems.token import TOKEN, TokenConfig

# Commands before the pool settles; 1 is as if faults were raised at the call.
LAGS = (1, 2, 3, 4, 5, 5)
MOST_LAG = 1000
# Looks at a record on its way before it arrives, which then ends the wait early.
DELAYS = (0, 1, 3, 100)


def _drawn(choices: Choices, limits: Limits, config: Any) -> dict[str, Any]:
    """The fields of a config without lag, with lag and delay."""
    return {
        **asdict(config),
        "lag": choices.pick(allowed(limits, "lag", LAGS)),
        "delay": choices.pick(allowed(limits, "delay", DELAYS)),
    }


def _problem(lag: int, delay: int) -> str | None:
    if not 1 <= lag <= MOST_LAG:
        return f"lag must be in 1..{MOST_LAG}, found {lag}"
    if not 0 <= delay <= MOST_LAG:
        return f"delay must be in 0..{MOST_LAG}, found {delay}"
    return None


@dataclass(frozen=True, kw_only=True)
class PagedDeferredConfig(PagedRowsConfig):
    """A pool with its row table, settled after every `lag` commands."""

    lag: int
    delay: int

    @classmethod
    def draw(cls, choices: Choices, limits: Limits) -> Self:
        return cls(**_drawn(choices, limits, PagedRowsConfig.draw(choices, limits)))

    def problem(self) -> str | None:
        return super().problem() or _problem(self.lag, self.delay)

    def smaller(self) -> list[Self]:
        return [*super().smaller(), *_sooner(self)]


@dataclass(frozen=True, kw_only=True)
class TokenDeferredConfig(TokenConfig):
    """A pool of tokens, settled after every `lag` commands."""

    lag: int
    delay: int

    @classmethod
    def draw(cls, choices: Choices, limits: Limits) -> Self:
        return cls(**_drawn(choices, limits, TokenConfig.draw(choices, limits)))

    def problem(self) -> str | None:
        return super().problem() or _problem(self.lag, self.delay)

    def smaller(self) -> list[Self]:
        return [*super().smaller(), *_sooner(self)]


def _sooner(config: Any) -> list[Any]:
    found = [replace(config, lag=lag) for lag in range(1, min(config.lag, 6))]
    if config.delay < max(DELAYS):
        found.append(replace(config, delay=max(DELAYS)))
    return found


# Misuse of plain calls too, which the system of rows leaves to the paged one.
PAGED_DEFERRED = replace(
    PAGED_ROWS,
    name="paged_deferred",
    config=PagedDeferredConfig,
    commands=(*PAGED_ROWS.commands, *misuse.SHARED, *misuse.PAGED, *growth_misuse.PAGED),
    lockstep=DeferredLockstep,
    small=None,
    faulty=(),
)
TOKEN_DEFERRED = replace(
    TOKEN,
    name="token_deferred",
    config=TokenDeferredConfig,
    lockstep=DeferredLockstep,
    small=None,
    faulty=(),
)
