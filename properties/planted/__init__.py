"""Small bugs, each with the invariant that the harness must name for it.

What shows that the checks check: `test_planted.py` plants each and has a seeded run find it. Each
is a subject too, `planted:` and its slug (`properties.subjects.planted`).
"""

from __future__ import annotations

from properties.planted import (
    allocation,
    callers,
    deferral,
    engine,
    host_tier,
    kernels,
    kv_pools,
    release,
    requests,
    row_calls,
    state_pools,
    states,
    swa,
)  # fmt: skip
from properties.planted.bug import Bug
from properties.planted.edit import Edit
from properties.planted.entries import ENTRIES, WAITING, Entry

__all__ = ["BUGS", "BY_SLUG", "ENTRIES", "SLOW", "WAITING", "Bug", "Edit", "Entry"]

#: those of the torch form, which runs thousands of steps a second
BUGS: tuple[Bug, ...] = (
    *allocation.BUGS, *release.BUGS, *requests.BUGS, *row_calls.BUGS, *callers.BUGS,
    *state_pools.BUGS, *states.BUGS, *swa.BUGS, *swa.OF_CALLERS, *kv_pools.BUGS, *host_tier.BUGS,
    *engine.BUGS,
)  # fmt: skip
#: those of the kernels, which an interpreter runs a hundred steps a second of
SLOW: tuple[Bug, ...] = (
    *kernels.BUGS, *deferral.BUGS, *state_pools.SLOW, *swa.SLOW, *kv_pools.SLOW,
)  # fmt: skip

BY_SLUG: dict[str, Bug] = {bug.slug: bug for bug in (*BUGS, *SLOW)}
