"""Window pages let go of: which peers full pages have, and that they have them no more.

The torch form; the kernel, for a device, is `device.windows`. Spec: `spec/swa_unified.md` §2.5.
"""

from __future__ import annotations

from impl.kernels.arrays import Array


def resolve_and_clear(pages: Array, rows: Array, peers: Array, owners: Array) -> Array:
    """The window pages of full `pages`, int64 [k], distinct, each of which has one.

    `rows` [full pages + 1, B] are the map's entries by page, `peers` gives a full page's window
    page, `owners` a window page's full page; all that these say of the pages becomes 0.
    """
    found = peers[pages]
    owners[found] = 0
    peers[pages] = 0
    rows[pages] = 0
    return found
