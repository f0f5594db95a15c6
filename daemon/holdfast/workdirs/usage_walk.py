"""One walk through a working directory, to find what it takes of the disk: in portions, so that many can take turns.

Each file counts once, however many names it has there. A copy of an object does not count while it makes room by itself,
because it can be fetched again: as long as it has the bytes that were fetched, and no other name that would keep them on
the disk. Symbolic links are not followed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from contextlib import suppress

from holdfast.index import Entries
from holdfast.store import Space, Tree, digest_when_placed

_BLOCK_BYTES = 512
_SPARE_BLOCKS = 3
"""The blocks that a file may take beyond its bytes: the end of the last one, attributes, the map of its extents."""
_FALLBACK_ZONES = (b"localState", b"blobStorage")
"""The parts of a working directory that can have copies of objects."""


class UsageWalk:
    """A walk through the directory at ``path``. Close it if it is left early."""

    def __init__(self, tree: Tree, entries: Entries, path: bytes) -> None:
        self.path = path
        self.used = Space(0, 0)
        """The space found so far."""
        self._tree = tree
        self._entries = entries
        self._linked: set[int] = set()
        self._steps = self._walk()

    def go_on(self, seconds: float) -> bool:
        """Walk on for so long, or somewhat longer; say whether there is more. Call it in a thread. Raises ``OSError``."""
        until = time.monotonic() + seconds
        return any(time.monotonic() >= until for _ in self._steps)

    def close(self) -> None:
        """Leave the walk."""
        self._steps.close()

    def _walk(self) -> Generator[None, None, None]:
        """Add up what there is; pause after each directory and each file."""
        top_fd = self._tree.open_directory(self.path)
        try:
            for trail, fd, entries in self._tree.descend(top_fd):
                may_have_copies = bool(trail) and trail[0] in _FALLBACK_ZONES
                self.used = self.used.and_another(os.fstat(fd).st_blocks * _BLOCK_BYTES)
                yield
                for entry in entries:
                    if not entry.is_directory:
                        with suppress(OSError):  # it has just gone
                            self._add(fd, entry.name, may_be_copy=may_have_copies)
                        yield
        finally:
            os.close(top_fd)

    def _add(self, directory_fd: int, name: bytes, *, may_be_copy: bool) -> None:
        stat = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        if stat.st_ino in self._linked:
            return
        if may_be_copy and self._makes_room(b"/proc/self/fd/%d/%s" % (directory_fd, name), stat):
            return
        if stat.st_nlink > 1:
            self._linked.add(stat.st_ino)
        self.used = self.used.and_another(stat.st_blocks * _BLOCK_BYTES)

    def _makes_room(self, file: bytes, stat: os.stat_result) -> bool:
        """Say whether a file is a copy that is as it was fetched, under the names of its objects alone.

        The index knows that better than the time of modification, which the owner of a file can set. Blocks beyond the bytes
        (fallocate(2) with FALLOC_FL_KEEP_SIZE) are nothing that was fetched.
        """
        if stat.st_blocks * _BLOCK_BYTES > stat.st_size + _SPARE_BLOCKS * max(stat.st_blksize, 4096):
            return False
        placed = digest_when_placed(file)
        entry = self._entries.get(stat.st_ino) if placed is not None else None
        return entry is not None and entry.digest == placed and stat.st_nlink <= max(1, len(entry.names))
