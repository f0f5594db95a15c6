"""For how long an answer is good: what this node believes of a store, and what the kernel keeps of what it was told.

In zones that only this daemon changes, what it has said stays true. Where a store is behind a zone, other nodes change it:
an answer is good for the metadata TTL, but for names whose object never changes. In working directories, where a store is
only what a miss falls back to, it is asked again after the fallback TTL.
"""

from __future__ import annotations

import stat as stat_module

import trio

from holdfast.config import RemoteSection
from holdfast.zones import NameKind, ZoneKind, ZonePath

FOREVER_SECONDS = 86_400.0
"""Long enough that the kernel hardly ever asks again; not longer, so that a mistake ends some day."""


class TimeToLive:
    """All times to live, by directory and name, in seconds."""

    def __init__(self, settings: RemoteSection) -> None:
        self._metadata_seconds = settings.metadata_ttl_seconds
        self._fallback_seconds = settings.fallback_ttl_seconds

    # --- what is believed of stores ----------------------------------------------------------------------------------

    def of_listing(self, place: ZonePath) -> float:
        """Return for how long the listing of the store's directory behind ``place`` may be believed."""
        return self._metadata_seconds if place.zone.is_store else self._fallback_seconds

    def oldest_listing(self, place: ZonePath) -> float:
        """Return the trio time at which the LIST must have begun that an answer about ``place`` rests on."""
        return trio.current_time() - self.of_listing(place)

    # --- what the kernel keeps ---------------------------------------------------------------------------------------

    def in_kernel(self, place: ZonePath) -> float:
        """Return for how long the kernel may keep the attributes of a directory, and of what is in it."""
        return FOREVER_SECONDS if place.zone.remote is None else self._metadata_seconds

    def of_name_in_kernel(self, place: ZonePath, kind: NameKind | None, mode: int) -> float:
        """Return for how long the kernel may keep a name in ``place`` that leads to a file of this node, with ``mode``.

        ``kind`` is None in zones without a store. A temporary name is not kept for long: the kernel would keep its time-out
        over a rename to a name of another kind.
        """
        if kind is not None and kind.policy.lasts and not stat_module.S_ISDIR(mode):
            return FOREVER_SECONDS
        return self.in_kernel(place)

    def of_missing_name_in_kernel(self, place: ZonePath, kind: NameKind | None) -> float:
        """Return for how long the kernel may keep the answer that there is no such name in ``place``.

        A name that stays on this node nobody else makes; but it may be of another kind when its directory has been renamed.
        In the root of the mount the next daemon may have another zone: the kernel would hide it as long as it keeps this.
        """
        if place.zone.kind is ZoneKind.ROOT:
            return 0.0
        if kind is None or kind.policy.stays_here:
            return self.in_kernel(place)
        return 0.0
