"""The room on each disk: that of the store directory, and the others (``store.other_disks``).

The limits of ``[cache]`` hold on each disk by itself, because only what is on a disk can be evicted for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import trio

from holdfast.capacity.policy import Limits
from holdfast.capacity.room import Room
from holdfast.index import Index
from holdfast.system.file_id import FileId, disk_of
from holdfast.telemetry.wakeups import sleep_within

_UPKEEP_SECONDS = 5.0


class Rooms:
    """The room on each disk that was there when the daemon started. ``disk_at`` returns the number of a path's disk.

    ``are_spread``: copies outside of working directories come to all of the disks, not to the first one alone.
    """

    def __init__(
        self, rooms: Sequence[Room], index: Index, disk_at: Callable[[bytes], int], *, are_spread: bool = False
    ) -> None:
        self.all = rooms
        """That of the first disk comes first."""
        self.first = rooms[0]
        self._is_alone = len(rooms) == 1
        self._by_number = {room.disk.number: room for room in rooms}
        self._index = index
        self._disk_at = disk_at
        self._of_copies = rooms if are_spread else rooms[:1]

    def on(self, disk: int) -> Room:
        """Return the room on the disk with this number; that on the first one for a disk that is not there."""
        return self._by_number.get(disk, self.first)

    def at(self, path: bytes) -> Room:
        """Return the room on the disk that what is at ``path`` in the tree is on, or would be."""
        return self.first if self._is_alone else self.on(self._disk_at(path))

    def of(self, file: FileId) -> Room:
        """Return the room on the disk that a file is on."""
        return self.first if self._is_alone else self.on(disk_of(file))  # each CREATE and RELEASE asks

    async def make_room(self, wanted_bytes: int, path: bytes) -> None:
        """Return when a copy of ``wanted_bytes`` may be written for ``path``. Raises ``CacheFullError``."""
        await self.at(path).make_room(wanted_bytes)

    def has_spare(self, sizes: Mapping[bytes, int]) -> bool:
        """Say whether copies of so many bytes have room at these paths without an eviction (``Room.has_spare``)."""
        wanted: Counter[bytes] = Counter()
        for path, size_bytes in sizes.items():
            wanted[path.rpartition(b"/")[0]] += size_bytes
        by_room: Counter[Room] = Counter()
        for directory, size_bytes in wanted.items():
            by_room[self.at(directory)] += size_bytes
        return all(room.has_spare(size_bytes) for room, size_bytes in by_room.items())

    def has_spare_anywhere(self) -> bool:
        """Say whether a copy may have room on any disk without an eviction."""
        return any(room.has_spare(0) for room in self._of_copies)

    def evict_file(self, file: FileId) -> bool:
        """Evict one file if that is allowed; return whether it was evicted."""
        return self.of(file).evict_file(file)

    def set_limits(self, limits: Limits) -> None:
        """Have these limits from now on."""
        for room in self.all:
            room.limits = limits

    def is_near_end(self) -> bool:
        """Say of any of the disks what ``Disk.is_near_end`` says. Safe and instant in any thread."""
        for room in self.all:  # noqa: SIM110 each open asks, and a generator takes longer than what it calls
            if room.disk.is_near_end():
                return True
        return False

    async def run(self) -> None:
        """Keep the reserves free until cancelled, also that of the index."""
        async with trio.open_nursery() as nursery:
            for room in self.all:
                nursery.start_soon(room.run)
            while True:
                await sleep_within(_UPKEEP_SECONDS)
                self._index.keep_reserve()
                self._index.release_pages()
                self._index.entries.flush_uses()
