"""Whiteouts: directories that were removed here while the store keeps an empty one.

A store keeps one if another tool left a marker object (``dir/``), or if a directory of a ``file://`` store holds foreign
entries. A whiteout in the index keeps users from seeing the empty directory again. It hides nothing else: what others put
there later is visible. The whiteout is removed once a LIST shows such content, or that the directory is gone.
"""

from __future__ import annotations

from enum import Enum, auto

from holdfast.fs.foundation import Foundation
from holdfast.zones import ZonePath


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
        for name, is_directory in list(listing.names()):
            child = ZonePath(directory.zone, directory.child_path(name))
            if deletions.pending(child.path):
                continue
            if not is_directory or not await self.hides(child, self._ttl.oldest_listing(child), retry=retry):
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
        names = (path[len(place.path) + 1 :] for path in self._marks.whited_out_below(place.path))
        return [
            name
            for name in names
            if listing.has_directory(name)
            and await self.hides(ZonePath(place.zone, place.child_path(name)), self._ttl.oldest_listing(place))
        ]
