"""The copies that this node has of objects: which are here, fetching those that are not, dropping those of no more use.

A copy that is fetched here counts as every other one: checked against its digest, and evicted before what the node itself
has opened (``capacity.policy``). Nothing is evicted to make room for one.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import BinaryIO

import trio

from holdfast.capacity import Rooms
from holdfast.errors import HoldfastError, ObjectCorruptError, RemoteRefusedError, RemoteUnavailableError
from holdfast.fs.inodes.name_policy import NamePolicy
from holdfast.fs.store_view import StoreView
from holdfast.index import EntryState
from holdfast.remote import ObjectInfo
from holdfast.system.file_id import FileId
from holdfast.system.file_reading import reading
from holdfast.transfer import CachedCopies, Fetcher, KnownObject

_CORRUPT_SECONDS = 3600.0
"""The time for which a version that was found corrupt is not fetched again: each try downloads all of it."""
_MOST_CORRUPT = 10_000


@dataclass(frozen=True, slots=True)
class StandbyCopies:
    """The copies of objects in all zones; ``path`` is an object's path in the tree, ``zone/key``."""

    copies: CachedCopies
    rooms: Rooms
    policy: NamePolicy
    view: StoreView
    fetcher: Fetcher
    _corrupt: dict[tuple[bytes, str], float] = field(default_factory=dict, init=False)
    """The trio times at which versions were found corrupt, by path and etag."""

    def has(self, path: bytes, info: ObjectInfo) -> bool:
        """Say whether the version ``info`` is here. A file that is no copy, as one that is being written, counts as it.

        Raises ``OSError``.
        """
        inode = self.copies.store.tree.inode(path)
        entry = self.copies.index.entries.get(inode) if inode else None
        if entry is None or entry.state is not EntryState.CLEAN:
            return bool(inode)
        name = entry.name_at(path)
        return name is not None and name.etag == info.etag

    async def fetch(self, path: bytes, info: ObjectInfo) -> None:
        """Fetch the version ``info``, in the place of an earlier one, if there is room for it without an eviction.

        An object that has gone or changed, or is corrupt, is not fetched. Raises ``RemoteUnavailableError``,
        ``RemoteRefusedError`` and ``OSError``.
        """
        name = self.policy.of_path(path)
        if name is None or self.copies.store.tree.has_failed(path) or self._is_known_corrupt(path, info):
            return
        if not self.rooms.has_spare({path: info.size_bytes}):
            return
        if self.has(path, info):  # somebody may have opened it, or be writing it, since the store was listed
            return
        inode = self.copies.store.tree.inode(path)
        if inode and not self.copies.is_open(inode):
            self.copies.drop(path, inode)
        try:
            known = KnownObject(info.size_bytes, info.modified_ns, info.etag)
            await self.fetcher.fetch(self.view.object_of(name), known).wait_whole()
            self.fetcher.counters.standby_bytes_fetched += info.size_bytes
        except (RemoteUnavailableError, RemoteRefusedError):
            raise
        except ObjectCorruptError:
            if len(self._corrupt) >= _MOST_CORRUPT:
                self._corrupt.clear()
            self._corrupt[path, info.etag] = trio.current_time()
        except HoldfastError:  # the event "fetch-failed" has told what is worth telling
            return

    def _is_known_corrupt(self, path: bytes, info: ObjectInfo) -> bool:
        found_at = self._corrupt.get((path, info.etag), -math.inf)
        return trio.current_time() - found_at < _CORRUPT_SECONDS

    def opened(self, path: bytes) -> BinaryIO:
        """Open a copy. Raises ``FileNotFoundError``."""
        return reading(self.copies.store.tree.open_file(path))

    def unneeded(self, directory: bytes, needed: Collection[bytes]) -> list[FileId]:
        """Return the inodes of the copies below ``directory`` that nobody has opened here, and that are not ``needed``.

        ``needed`` has paths. It waits for the disk: call it in a thread.
        """
        return [
            stat.st_ino
            for path, stat in self.copies.store.tree.walk(directory)
            if path not in needed and self._is_on_probation(stat.st_ino)
        ]

    def drop(self, inode: FileId) -> None:
        """Drop a copy, unless it has been opened here or is pinned, or is no copy any more."""
        if self._is_on_probation(inode):
            self.rooms.evict_file(inode)

    def _is_on_probation(self, inode: FileId) -> bool:
        entry = self.copies.index.entries.get(inode)
        return entry is not None and entry.state is EntryState.CLEAN and entry.on_probation
