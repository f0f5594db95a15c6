"""What is hidden from users: Holdfast's own names, what was removed here, and what other than zones lies in the root."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.fs.inodes.nodes import Node
from holdfast.fs.remote_view.store_view import StoreView
from holdfast.fs.remote_view.whiteouts import Whiteouts
from holdfast.index import NameMarks
from holdfast.zones import ZoneKind, ZonePath

RESERVED = b".holdfast"
"""The directory in the root of a store that holds what is on its way (``remote.keys``)."""


class Visibility:
    """Answers for lookups, listings and creations. ``top_names`` are the names in the root of the mount."""

    def __init__(self, view: StoreView, marks: NameMarks, whiteouts: Whiteouts, top_names: Iterable[bytes]) -> None:
        self._view = view
        self._marks = marks
        self._whiteouts = whiteouts
        self._top_names = frozenset(top_names)

    def is_reserved(self, place: ZonePath, name: bytes) -> bool:
        """Say whether a name is Holdfast's own: nobody sees or makes it."""
        return name == RESERVED and place.zone.remote is not None and place.path == place.zone.prefix

    def hides_object(self, directory: Node, place: ZonePath, name: bytes) -> bool:
        """Say whether what the store may have under a name that is not here is not to be seen.

        Of directories that were removed in a store's zone only the store can tell (``hides_directory``).
        """
        path = place.child_path(name)
        if place.zone.is_store:
            return self._view.deletions_of(place.zone).pending(path)
        if directory.backing and self._marks.is_held(directory.backing):
            return True  # a directory made in a working directory has no counterpart in the store
        return self._marks.is_whited_out(path)

    def may_hide_directory(self, place: ZonePath, name: bytes) -> bool:
        """Say whether a directory of a store's zone was removed here while the store kept an empty one.

        There may be something in it by now: ``Whiteouts`` finds out.
        """
        return place.zone.is_store and self._marks.is_whited_out(place.child_path(name))

    async def hidden_names(self, place: ZonePath) -> list[bytes]:
        """Return the names in a directory of a store's zone that the store has and nobody sees. Raises ``RemoteError``."""
        return await self._whiteouts.names_in(place) + self._view.deletions_of(place.zone).pending_in(place.path)

    def shown(self, place: ZonePath, files: dict[bytes, int]) -> dict[bytes, int]:
        """Leave out of what was found in a directory what is not for users. ``files`` may be changed."""
        if place.zone.kind is ZoneKind.ROOT:
            return {name: file for name, file in files.items() if name in self._top_names}
        if self.is_reserved(place, RESERVED):
            files.pop(RESERVED, None)
        return files
