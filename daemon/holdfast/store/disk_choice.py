"""The choice of a disk for a new directory: the one with the most space above its reserve for each directory on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from holdfast.store.other_disk import OtherDisk
from holdfast.store.space import DiskSpace, Space, disk_space

_MOST_CHOICES = 10_000

Reserve = Callable[[DiskSpace], Space]
"""Returns what is kept free of a disk."""


class DiskChoice:
    """Orders the disks of a store: ``first_fd`` is a descriptor on the first one, ``others`` are the others."""

    def __init__(self, first_fd: int, others: Sequence[OtherDisk]) -> None:
        self._first_fd = first_fd
        self._others = others

    def has_room(self, disk: OtherDisk | None, reserve: Reserve) -> bool:
        """Say whether a disk works and has space above its reserve. None is the first disk."""
        space = disk_space(self._first_fd) if disk is None else disk.space()
        return (disk is None or not disk.has_failed) and _share(space, 1, reserve(space))[0] > 0

    def by_room(self, counts: Counter[int], reserve: Reserve) -> list[OtherDisk | None]:
        """Return all disks that work, the one with the most room first; None is the first disk.

        ``counts`` has the number of directories on each, by the number of the disk, without the new one. A disk whose
        reserve is not free comes after all others.
        """
        spaces: list[tuple[DiskSpace, int, OtherDisk | None]] = [(disk_space(self._first_fd), counts[0] + 1, None)]
        for disk in self._others:
            space = disk.space()
            if not disk.has_failed:
                spaces.append((space, counts[disk.number] + 1, disk))
        spaces.sort(key=lambda each: _share(each[0], each[1], reserve(each[0])), reverse=True)
        return [disk for _, _, disk in spaces]


class PartitionDisks:
    """Chooses a disk for each new directory of a partition, by what is free and how many were chosen for it in this run.

    ``partition_of`` returns the path of the partition's directory that a path is, or lies in; None if that is none, or one
    that stays on the first disk.
    """

    def __init__(self, choice: DiskChoice, partition_of: Callable[[bytes], bytes | None], reserve: Reserve) -> None:
        self.partition_of = partition_of
        self._choice = choice
        self._reserve = reserve
        self._counts: Counter[int] = Counter()
        self._chosen: dict[bytes, OtherDisk | None] = {}
        """The choices for directories that are not there yet: what is fetched for one is written to that disk before."""

    def of(self, path: bytes) -> OtherDisk | None:
        """Return the disk for the partition's directory at ``path``, the same until it is made. None: the first.

        Another one is chosen if the disk fails, or has only its reserve left while another one has more. A fetch that is
        under way finds its directory on another disk then, and begins again.
        """
        before = self._chosen.get(path)
        if path in self._chosen and self._choice.has_room(before, self._reserve):
            return before
        best = self._by_room()[0]
        if path in self._chosen:
            if not (before is not None and before.has_failed) and not self._choice.has_room(best, self._reserve):
                return before
            self._counts[_number(before)] -= 1
        elif len(self._chosen) >= _MOST_CHOICES:
            self._chosen.clear()
        self._chosen[path] = best
        self._counts[_number(best)] += 1
        return best

    def made(self, path: bytes) -> list[OtherDisk | None]:
        """Return the disks for a directory that is made now, the chosen one before the others."""
        first = self.of(path)
        del self._chosen[path]
        return [first, *(disk for disk in self._by_room() if disk is not first)]

    def _by_room(self) -> list[OtherDisk | None]:
        return self._choice.by_room(self._counts, self._reserve)


def _number(disk: OtherDisk | None) -> int:
    return 0 if disk is None else disk.number


def _share(space: DiskSpace, directories: int, reserve: Space) -> tuple[float, float]:
    """Return the bytes above the reserve, and those that are free at all, for each of so many directories."""
    has_inodes = not space.files or space.free_files > reserve.files
    above_bytes = max(0, space.free_bytes - reserve.size_bytes) if has_inodes else 0
    return above_bytes / directories, space.free_bytes / directories
