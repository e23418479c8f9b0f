"""The systems under test, by name: each brings its configs, its commands, its reference and model.

Adding a system means adding a module here and listing it; no driver knows a system by name.
"""

from __future__ import annotations

from properties.systems.deferred import PAGED_DEFERRED, TOKEN_DEFERRED
from properties.systems.engine import ENGINE
from properties.systems.host_tier import HOST_TIER
from properties.systems.hybrid_rows import HYBRID_ROWS
from properties.systems.kv_pools import KV_POOLS
from properties.systems.overlap import OVERLAP
from properties.systems.paged import PAGED
from properties.systems.paged_rows import PAGED_ROWS
from properties.systems.raw import PAGED_RAW, TOKEN_RAW
from properties.systems.rows import ROWS
from properties.systems.state_pools import STATE_POOLS
from properties.systems.state_slots import STATE_SLOTS
from properties.systems.swa import SWA
from properties.systems.system import System
from properties.systems.token import TOKEN

TOKENS = (ROWS, TOKEN, PAGED, PAGED_ROWS, OVERLAP, SWA, TOKEN_DEFERRED, PAGED_DEFERRED)
STATES = (STATE_POOLS, STATE_SLOTS, HYBRID_ROWS)
STORAGE = (KV_POOLS, HOST_TIER, ENGINE)
SYSTEMS: dict[str, System] = {system.name: system for system in (*TOKENS, *STATES, *STORAGE)}

#: those whose commands are recorded from outside, not drawn
RECORDED: dict[str, System] = {system.name: system for system in (TOKEN_RAW, PAGED_RAW)}

#: what a trace may be of
TRACED: dict[str, System] = {**SYSTEMS, **RECORDED}

#: those that settle after each command: the others have the same commands, driven differently
PROMPT = [name for name, system in SYSTEMS.items() if system.lockstep.settles]

__all__ = ["PROMPT", "RECORDED", "SYSTEMS", "TRACED", "System"]
