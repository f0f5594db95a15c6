"""Directories of the store's own that are on each disk: ``fetching/``, ``orphans/``, ``trash/``, ``quarantine/``.

A file is renamed and linked within its disk alone. So what leaves the tree goes to the directory on the disk that it is on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from holdfast.system.file_id import FileId, disk_of


class Place(NamedTuple):
    """Such a directory on another disk: the disk's number and device, and a descriptor that the caller owns."""

    disk: int
    device: int
    fd: int


class Area:
    """One of these directories: ``first_fd`` on the store directory's own disk, ``others`` on other disks."""

    def __init__(self, first_fd: int, others: Iterable[Place] = ()) -> None:
        self.first_fd = first_fd
        self._others = {place.disk: place for place in others}

    def of(self, file: FileId) -> int:
        """Return the descriptor of the directory on the disk that ``file`` is on."""
        return self.on(disk_of(file)) if self._others else self.first_fd

    def on(self, disk: int) -> int:
        """Return the descriptor of the directory on the disk with this number."""
        place = self._others.get(disk)
        return self.first_fd if place is None else place.fd

    def beside(self, fd: int) -> int:
        """Return the descriptor of the directory on the disk that the file or directory ``fd`` is on. Raises ``OSError``."""
        if self._others:
            device = os.fstat(fd).st_dev
            for place in self._others.values():
                if place.device == device:
                    return place.fd
        return self.first_fd

    def all(self) -> list[int]:
        """Return the descriptors of all, that of the store directory's own disk first."""
        return [self.first_fd, *(place.fd for place in self._others.values())]

    @contextmanager
    def unless_failed(self, fd: int) -> Iterator[None]:
        """Suppress errors of another disk than the first, which may be broken: the rest goes on without it."""
        try:
            yield
        except OSError:
            if fd == self.first_fd:
                raise
