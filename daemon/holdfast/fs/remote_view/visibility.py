"""Names hidden from users: Holdfast's own, those removed here, and files in the mount's root that are no zones.

A directory that was removed here is hidden by a whiteout in the index while the store keeps an empty one. A store keeps one
if another tool left a marker object (``dir/``), or if a directory of a ``file://`` store holds foreign entries. A whiteout
hides nothing else: what others put there later is visible. It is removed once a LIST shows such content, or that the
directory is gone.
"""

from __future__ import annotations

from enum import Enum, auto

from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.name_policy import Name
from holdfast.telemetry.slices import Slices
from holdfast.zones import ZoneKind, ZoneName, ZonePath

RESERVED = b".holdfast"
"""The directory in the root of a store that holds uploads under way (``remote.keys``)."""

_AT_ONCE = 1000


class Left(Enum):
    """The rest of a directory in a store, as far as users of this node may see it."""

    NOTHING = auto()
    EMPTY = auto()
    CONTENT = auto()


class Whiteouts:
    """Checks directories of stores' zones. Fallback zones are not its concern.

    ``not_before`` is the earliest trio time at which the LIST may have begun, as in ``CachedListing.ask``. Hidden
    directories inside a directory are checked as the metadata TTL requires. All methods raise ``RemoteError``.
    """

    def __init__(self, base: Foundation) -> None:
        self._view, self._marks, self._ttl = base.view, base.parts.index.marks, base.ttl

    async def left_of(self, directory: ZonePath, not_before: float, *, retry: bool = True) -> Left:
        """Say what the store has in a directory, without pending deletions and hidden directories."""
        listing = self._view.listing(directory)
        await listing.ask(not_before, retry=retry)
        deletions = self._view.deletions_of(directory.zone)
        slices = Slices()
        for name in listing.all_names():
            await slices.pause()
            if name not in listing:
                continue
            child = ZonePath(directory.zone, directory.child_path(name))
            if deletions.pending(child.path):
                continue
            if not listing.has_directory(name) or not await self.hides(child, self._ttl.oldest_listing(child), retry=retry):
                return Left.CONTENT
        return Left.EMPTY if listing.exists else Left.NOTHING

    async def hides(self, directory: ZonePath, not_before: float, *, retry: bool = True) -> bool:
        """Say whether a directory that the store has is hidden here."""
        if not self._marks.is_whited_out(directory.path):
            return False
        if await self.left_of(directory, not_before, retry=retry) is Left.EMPTY:
            return True
        self._marks.uncover(directory.path)
        return False

    async def names_in(self, place: ZonePath) -> list[bytes]:
        """Return the names of hidden directories in the one at ``place``."""
        listing = self._view.listing(place)
        found: list[bytes] = []
        slices, after = Slices(), b""
        while some := self._marks.whited_out_below(place.path, after, _AT_ONCE):
            after = some[-1]
            for path in some:
                name = path[len(place.path) + 1 :]
                if listing.has_directory(name) and await self.hides(
                    ZonePath(place.zone, path), self._ttl.oldest_listing(place)
                ):
                    found.append(name)
                await slices.pause()
            if len(some) < _AT_ONCE:
                break
        return found


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
