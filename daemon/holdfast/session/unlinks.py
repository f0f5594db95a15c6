"""The files that last lost a name: a ring of words in a mapped file.

Each removal is recorded before it is done, because a daemon that is killed may have done it without answering. Word 1
counts all removals ever recorded, and so gives the place of the next one. Then come the inode numbers, with bit 63 set if
it was the only name. Recording one takes 0.2 µs.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import TakeoverError
from holdfast.system.file_id import FileId

_MAGIC = int.from_bytes(b"HFGONE_1", "little")
_SLOTS = 510
"""The length of the ring: a page. Nearly every removal is answered in the step that does it, so few are unanswered when a
daemon dies."""
_FIRST = 2
_LAST_NAME = 1 << 63


class UnlinkTable:
    """The ring in the file ``path``, which is created if missing. Raises ``TakeoverError`` if it is not such a ring."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size_bytes = (_FIRST + _SLOTS) * 8
            os.posix_fallocate(fd, 0, size_bytes)  # a store into a hole of a full tmpfs would kill the process
            self._mapped = mmap.mmap(fd, size_bytes)
        finally:
            os.close(fd)
        self._words = memoryview(self._mapped).cast("@Q")
        if self._words[0] not in (0, _MAGIC):
            self.close()
            raise TakeoverError(f"{path} is no table of removals of this version")
        self._words[0] = _MAGIC

    def note(self, inode: FileId, *, is_last: bool) -> None:
        """Record that the file ``inode`` is about to lose a name; ``is_last``: its only one."""
        words = self._words
        noted = words[1]
        words[_FIRST + noted % _SLOTS] = inode | _LAST_NAME if is_last else inode
        words[1] = noted + 1

    def records(self) -> Iterator[tuple[FileId, bool]]:
        """Yield inode numbers, and whether it was the file's only name; a file may appear several times."""
        for word in self._words[_FIRST:]:
            if word:
                yield FileId(word & ~_LAST_NAME), bool(word & _LAST_NAME)

    def close(self) -> None:
        """Close the file; it stays as it is."""
        self._words.release()
        self._mapped.close()
