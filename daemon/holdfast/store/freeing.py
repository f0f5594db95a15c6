"""Giving the space of deleted files back to the disk, where nobody waits for it.

A file system frees a file's blocks when neither a name nor a descriptor leads to it. For a small file whose blocks are on
the disk that takes ext4 several times as long as taking the name away, and nothing that the caller of unlink(2) sees
depends on it: so a descriptor outlives the name, and a thread closes it. Larger files are freed at once, for whoever deletes
one may need the room next.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue

_LARGEST = 128 * 1024
"""Bytes on the disk. With as many files as may wait this is the most space that is deleted and not yet free."""
_MOST_WAITING = 500
_HOLD = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class Freeing:
    """Holds files over the loss of their last name. The thread runs from the first one until ``end``."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[int | threading.Event | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @contextmanager
    def later(self, name: bytes, directory_fd: int, stat: os.stat_result) -> Iterator[None]:
        """What is done inside takes away a name of a file, with the attributes ``stat``: if its last, free it soon after."""
        fd = self._hold(name, directory_fd, stat)
        try:
            yield
        finally:
            if fd is not None:
                self._close_later(fd)

    def catch_up(self) -> None:
        """Return when the space of all files that were deleted before is free."""
        if self._thread is not None:
            reached = threading.Event()
            self._waiting.put(reached)
            reached.wait()

    def end(self) -> None:
        """Free what waits, and end the thread."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def _hold(self, name: bytes, directory_fd: int, stat: os.stat_result) -> int | None:
        if stat.st_nlink > 1 or stat.st_blocks * 512 > _LARGEST or self._waiting.qsize() >= _MOST_WAITING:
            return None
        try:
            return os.open(name, _HOLD, dir_fd=directory_fd)
        except OSError:  # too many open files, say: it is freed at once
            return None

    def _close_later(self, fd: int) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._close_all, name="freeing", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads
                os.close(fd)
                return
            self._thread = thread
        self._waiting.put(fd)

    def _close_all(self) -> None:
        while (next_one := self._waiting.get()) is not None:
            if isinstance(next_one, int):
                with suppress(OSError):  # it is closed all the same (close(2)), and whoever waits must not wait for ever
                    os.close(next_one)
            else:
                next_one.set()
