"""For how long the kernel may keep a name, or the attributes of an inode, without asking again.

In zones that only this daemon changes, what it has said stays true. Where a store is behind a zone, other nodes change it:
an answer is good for the metadata TTL, but for names whose object never changes.
"""

from __future__ import annotations

import stat as stat_module

from holdfast.zones import NameKind, Zone

FOREVER_SECONDS = 86_400.0
"""Long enough that the kernel hardly ever asks again; not longer, so that a mistake ends some day."""


class KernelTimeouts:
    """All time-outs in replies to the kernel, in seconds. ``remote_seconds`` is ``remote.metadata_ttl_seconds``."""

    def __init__(self, remote_seconds: float) -> None:
        self.remote_seconds = remote_seconds

    def in_zone(self, zone: Zone) -> float:
        """Return for how long the attributes of a directory of ``zone``, and of what is in it, may be kept."""
        return FOREVER_SECONDS if zone.remote is None else self.remote_seconds

    def of_name(self, kind: NameKind | None, mode: int) -> float:
        """Return for how long a name that leads to a file of this node, with ``mode``, may be kept.

        ``kind`` is None in zones without a store. A temporary name is not kept for long: the kernel would keep its time-out
        over a rename to a name of another kind.
        """
        if kind is None:
            return FOREVER_SECONDS
        lasts = kind.policy.lasts and not stat_module.S_ISDIR(mode)
        return FOREVER_SECONDS if lasts else self.remote_seconds

    def of_missing_name(self, zone: Zone, kind: NameKind | None) -> float:
        """Return for how long the answer that there is no such name may be kept.

        A name that stays on this node nobody else makes; but it may be of another kind when its directory has been renamed.
        """
        if zone.remote is None:
            return FOREVER_SECONDS
        return self.remote_seconds if kind is not None and kind.policy.stays_here else 0.0
