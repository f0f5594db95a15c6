"""Names hidden from users: Holdfast's own, those removed here, and files in the mount's root that are no zones."""

from __future__ import annotations

from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.name_policy import Name
from holdfast.fs.remote_view.whiteouts import Whiteouts
from holdfast.zones import ZoneKind, ZoneName, ZonePath

RESERVED = b".holdfast"
"""The directory in the root of a store that holds uploads under way (``remote.keys``)."""


class Visibility:
    """Filters lookups, listings and creations."""

    def __init__(self, base: Foundation, whiteouts: Whiteouts) -> None:
        self._view, self._marks = base.view, base.parts.index.marks
        self._whiteouts = whiteouts
        self._top_names = frozenset(base.parts.zones.top_names)

    def is_reserved(self, name: ZoneName) -> bool:
        """Say whether a name is Holdfast's own, which users can neither see nor create."""
        return name.name == RESERVED and _has_reserved_name(name.place)

    def hides_object(self, name: Name) -> bool:
        """Say whether an object of the store under a name that is not local is hidden.

        For directories that were removed in a store's zone only the store can tell (``may_hide_directory``).
        """
        if name.zone.is_store:
            return self._view.deletions_of(name.zone).pending(name.path)
        if name.directory.backing and self._marks.is_held(name.directory.backing):
            return True  # a directory made in a working directory has no fallback
        return self._marks.is_whited_out(name.path)

    def may_hide_directory(self, name: ZoneName) -> bool:
        """Say whether a directory of a store's zone was removed here while the store kept it.

        It may have content by now: ask ``Whiteouts``.
        """
        return name.zone.is_store and self._marks.is_whited_out(name.path)

    async def hidden_names(self, place: ZonePath) -> list[bytes]:
        """Return the hidden names among those that the store has in a directory of its zone. Raises ``RemoteError``."""
        return await self._whiteouts.names_in(place) + self._view.deletions_of(place.zone).pending_in(place.path)

    def shown(self, place: ZonePath, files: dict[bytes, int]) -> dict[bytes, int]:
        """Return the visible part of the names found in a directory. May change ``files``."""
        if place.zone.kind is ZoneKind.ROOT:
            return {name: file for name, file in files.items() if name in self._top_names}
        if _has_reserved_name(place):
            files.pop(RESERVED, None)
        return files


def _has_reserved_name(place: ZonePath) -> bool:
    """Say whether a directory is the root of a store, in which Holdfast has a name of its own."""
    return place.zone.remote is not None and place.path == place.zone.prefix
