"""Times to live: how long cached answers of a store are valid, and how long the kernel may cache replies.

In zones that only this daemon changes, replies never expire. Other nodes change stores: an answer is valid for the metadata
TTL, or without limit for names whose object never changes. In working directories, where a store is only the fallback, it is
asked again after the fallback TTL.
"""

from __future__ import annotations

import stat as stat_module

import trio

from holdfast.config import RemoteSection
from holdfast.fs.inodes.object_rights import ObjectRights
from holdfast.zones import NameKind, ZoneKind, ZonePath

FOREVER_SECONDS = 86_400.0
"""A time long enough that the kernel hardly ever asks again, but finite, so that a mistake does not last."""


class TimeToLive:
    """All times to live in seconds, by directory and name."""

    def __init__(self, settings: RemoteSection, rights: ObjectRights) -> None:
        self._rights = rights
        self.configure(settings)

    def configure(self, settings: RemoteSection) -> None:
        """Use these settings from now on. What the kernel keeps, it keeps for the time that it was told."""
        self._metadata_seconds = settings.metadata_ttl_seconds
        self._fallback_seconds = settings.fallback_ttl_seconds

    # --- cached answers of stores --------------------------------------------------------------------------------------

    def of_listing(self, place: ZonePath) -> float:
        """Return how long the listing of the store's directory behind ``place`` is valid."""
        return self._metadata_seconds if place.zone.is_store else self._fallback_seconds

    def oldest_listing(self, place: ZonePath) -> float:
        """Return the earliest trio time at which the LIST behind an answer about ``place`` may have begun."""
        return trio.current_time() - self.of_listing(place)

    # --- the kernel's cache ----------------------------------------------------------------------------------------------

    def in_kernel(self, place: ZonePath) -> float:
        """Return how long the kernel may cache the attributes of a directory and of its entries.

        All users share its cache. So what only some may see of a store, in a working directory, is not cached at all.
        """
        if place.zone.remote is None:
            return FOREVER_SECONDS
        is_for_all = place.zone.is_store or self._rights.are_open_to_all(place)
        return self._metadata_seconds if is_for_all else 0.0

    def of_name_in_kernel(self, place: ZonePath, kind: NameKind | None, mode: int) -> float:
        """Return how long the kernel may cache a name in ``place`` that leads to a local file with ``mode``.

        ``kind`` is None in zones without a store. Temporary names get a short time, because the kernel keeps a name's
        time-out over a rename to a name of another kind.
        """
        if kind is None or (kind.policy.lasts and not stat_module.S_ISDIR(mode) and self._is_for_all(place)):
            return FOREVER_SECONDS
        return self.in_kernel(place)

    def of_missing_name_in_kernel(self, place: ZonePath, kind: NameKind | None) -> float:
        """Return how long the kernel may cache the answer that there is no such name in ``place``.

        Only this node creates names that stay on it; but they are not kept longer than the directory, because its rename may
        change their kind. Other names get 0, because another node may create them. So do names in the root of the mount,
        because the next daemon may have another zone.
        """
        if place.zone.kind is ZoneKind.ROOT:
            return 0.0
        if kind is None or kind.policy.stays_here:
            return self.in_kernel(place)
        return 0.0

    def _is_for_all(self, place: ZonePath) -> bool:
        """Say whether the kernel's own checks are enough, for all users, in a zone with a store."""
        return place.zone.is_store or self._rights.are_open_to_all(place)
