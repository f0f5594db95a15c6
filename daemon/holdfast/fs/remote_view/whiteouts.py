"""Directories of a store that were removed here while the store keeps an empty one.

That is what a marker object (``dir/``) of another tool leaves, or a directory of a ``file://`` store that holds something
foreign. A whiteout in the index keeps it from being seen as an empty directory again. It hides nothing else: what others
put there later is seen, and once a LIST shows that, or that the directory has gone, the whiteout goes.
"""

from __future__ import annotations

from enum import Enum, auto

from holdfast.fs.inodes.time_to_live import TimeToLive
from holdfast.fs.remote_view.store_view import StoreView
from holdfast.index import NameMarks
from holdfast.zones import ZonePath


class Left(Enum):
    """What a store has of a directory, as far as this node is to see it."""

    NOTHING = auto()
    EMPTY = auto()
    CONTENT = auto()


class Whiteouts:
    """Looks into directories of stores' zones; what fallback zones hide is not its matter.

    ``not_before`` is, as in ``CachedListing.ask``, the trio time at which the LIST must have begun. What is hidden in turn
    within a directory is known as well as the metadata TTL demands. All methods raise ``RemoteError``.
    """

    def __init__(self, view: StoreView, marks: NameMarks, ttl: TimeToLive) -> None:
        self._view = view
        self._marks = marks
        self._ttl = ttl

    async def left_of(self, directory: ZonePath, not_before: float, *, insist: bool = True) -> Left:
        """Say what there is, apart from what this node is about to delete, and from what it hides."""
        listing = self._view.listing(directory)
        await listing.ask(not_before, insist=insist)
        deletions = self._view.deletions_of(directory.zone)
        for name, is_directory in list(listing.names()):
            child = ZonePath(directory.zone, directory.child_path(name))
            if deletions.pending(child.path):
                continue
            if not is_directory or not await self.hides(child, self._ttl.oldest_listing(child), insist=insist):
                return Left.CONTENT
        return Left.EMPTY if listing.exists else Left.NOTHING

    async def hides(self, directory: ZonePath, not_before: float, *, insist: bool = True) -> bool:
        """Say whether a directory that the store has is not to be seen here."""
        if not self._marks.is_whited_out(directory.path):
            return False
        if await self.left_of(directory, not_before, insist=insist) is Left.EMPTY:
            return True
        self._marks.uncover(directory.path)
        return False

    async def names_in(self, place: ZonePath) -> list[bytes]:
        """Return the names of directories in the one at ``place`` that are not to be seen here."""
        listing = self._view.listing(place)
        names = (path[len(place.path) + 1 :] for path in self._marks.whited_out_below(place.path))
        return [
            name
            for name in names
            if listing.has_directory(name)
            and await self.hides(ZonePath(place.zone, place.child_path(name)), self._ttl.oldest_listing(place))
        ]
