"""Files that are not needed any more and have no name that users see: removed, now or as soon as the disk lets them go."""

from __future__ import annotations

import logging
import os
from collections import deque

_TRIES = 4
_MOST_REFUSED = 10_000
"""The number of files that are tried again. What is beyond it goes at the next start."""
_log = logging.getLogger("holdfast.store")


class Unneeded:
    """Removes files. What the disk refuses is no error of whoever has ended with the file: it is tried with later ones."""

    def __init__(self) -> None:
        self._refused: deque[tuple[int, bytes]] = deque(maxlen=_MOST_REFUSED)
        """Directories and names, the one that was refused first at the left."""

    def remove(self, name: bytes, directory_fd: int) -> bool:
        """Remove a file, and a few of those that were refused before; return whether there was one with the name."""
        again = [self._refused.popleft() for _ in range(min(_TRIES, len(self._refused)))]
        try:
            is_there = self._is_removed(name, directory_fd)
        except OSError as problem:
            _log.warning("a file that is not needed (%s) can't be removed yet: %s", os.fsdecode(name), problem.strerror)
            self._refused.append((directory_fd, name))
            is_there = True
        for older in again:
            try:
                self._is_removed(older[1], older[0])
            except OSError:
                self._refused.append(older)
        return is_there

    def make_way(self, name: bytes, directory_fd: int) -> None:
        """Remove what was refused before and has this name, which another file gets. Raises ``OSError``."""
        if self._refused and (directory_fd, name) in self._refused:
            self._is_removed(name, directory_fd)
            self._refused.remove((directory_fd, name))

    def _is_removed(self, name: bytes, directory_fd: int) -> bool:
        try:
            os.unlink(name, dir_fd=directory_fd)
        except FileNotFoundError:
            return False
        return True
