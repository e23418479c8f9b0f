"""Small bugs planted in `impl`, each with the invariant that the harness must name for it.

What shows that the checks check: `test_planted.py` plants each and has a seeded run find it.
"""

from properties.planted import allocation, release, requests, row_calls
from properties.planted.edit import Bug, Edit

__all__ = ["BUGS", "Bug", "Edit"]

BUGS: tuple[Bug, ...] = (*allocation.BUGS, *release.BUGS, *requests.BUGS, *row_calls.BUGS)
