"""Access to the stores behind the zones: store, object and cached listing by place."""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast.errors import NameNotStorableError
from holdfast.index import NameMarks
from holdfast.transfer import CachedListing, Deletions, ObjectPath, Ownership, Remote
from holdfast.transfer.computing import computed, for_each_piece
from holdfast.zones import Zone, ZoneName, ZonePath

_CONTROL_CHARACTERS = re.compile("[\\x00-\\x1f\\x7f]")


class StoreView:
    """Looks stores and objects up by place, for zones that have a store. Each request does so several times."""

    def __init__(self, remotes: Mapping[str, Remote], marks: NameMarks) -> None:
        self._remotes = dict[str | None, Remote](remotes.items())
        self._marks = marks

    def remote_of(self, zone: Zone) -> Remote:
        """Return the store behind a zone. The zone must have one."""
        return self._remotes[zone.remote]

    def deletions_of(self, zone: Zone) -> Deletions:
        """Return the pending deletions in the store behind a zone."""
        return self._remotes[zone.remote].deletions

    def deletions(self) -> list[Deletions]:
        """Return the pending deletions of each store."""
        return [remote.deletions for remote in self._remotes.values()]

    def ownership_of(self, zone: Zone) -> Ownership:
        """Return the ownership of entries from the store behind a zone."""
        return self.remote_of(zone).ownership

    def object_of(self, name: ZoneName) -> ObjectPath:
        """Return the object of a name. Raises ``NameNotStorableError``."""
        remote, key = self._remotes[name.zone.remote], key_text(name.path[name.zone.key_start :])
        return ObjectPath(name.path, remote, key, name.path if name.zone.is_store else f"{remote.name}/{key}".encode())

    def check_name(self, name: ZoneName) -> None:
        """Raise ``NameNotStorableError`` if the store behind its zone can't have an object of this name."""
        zone = name.zone
        self._remotes[zone.remote].access.store.name_rules.check(key_text(name.path[zone.key_start :]))

    def listing(self, place: ZonePath) -> CachedListing:
        """Return the cached listing of the store's directory behind ``place``. Raises ``NameNotStorableError``."""
        zone = place.zone
        return self._remotes[zone.remote].directories.get(key_text(place.path[zone.key_start :]))

    def forget_below(self, place: ZonePath) -> None:
        """Drop the cached listings of the store's directory behind ``place`` and of all below it."""
        self.remote_of(place.zone).directories.forget_below(self.listing(place).key)

    async def flush_deletions(self, place: ZonePath) -> None:
        """Return when all pending deletions below ``place`` have been carried out. Raises ``RemoteError``."""
        deletions = self.deletions_of(place.zone)
        prefix = place.path + b"/"
        below: list[bytes] = []
        paths = deletions.paths()
        await computed(
            for_each_piece(paths, lambda some: below.extend(path for path in some if path.startswith(prefix))), len(paths)
        )
        await deletions.flush(below)

    def made_directory(self, place: ZonePath) -> None:
        """Note that the directory at ``place`` was made here, under a free name. Raises ``NameNotStorableError``.

        Removes its whiteout. Its listing is known to be empty, unless a directory of the store was hidden.
        """
        was_hidden = self._marks.is_whited_out(place.path)
        self._marks.uncover(place.path)
        if not (place.zone.is_store and was_hidden):
            self.listing(place).believe_empty()


def key_text(key: bytes) -> str:
    """Return an object key as text. Raises ``NameNotStorableError`` for names that no store accepts."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        raise NameNotStorableError(f"{key!r} is not UTF-8: object stores can't keep such a name") from None
    if _CONTROL_CHARACTERS.search(text):
        raise NameNotStorableError(f"{key!r} has a control character: object stores can't keep such a name")
    return text
