"""Frees the space of deleted files in the background.

A file system frees a file's blocks when neither a name nor a descriptor refers to it any more. For a small file whose blocks
are on the disk, this takes ext4 several times as long as removing the name, and the caller of unlink(2) does not need to
wait for it. So a descriptor is held while the name is removed, and a thread closes it. Larger files are freed at once,
because the caller may need the space next.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue

_LARGEST = 128 * 1024
"""Bytes on the disk. Times ``_MOST_WAITING``, this is the most space that is deleted and not yet free."""
_MOST_WAITING = 500
_HOLD = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class Freeing:
    """Holds files while their last name is removed. The thread runs from the first one until ``end``."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[int | threading.Event | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @contextmanager
    def later(self, name: bytes, directory_fd: int, stat: os.stat_result) -> Iterator[None]:
        """The block removes a name of the file with the attributes ``stat``; if it is the last, free the file soon after."""
        fd = self._hold(name, directory_fd, stat)
        try:
            yield
        finally:
            if fd is not None:
                self._close_later(fd)

    def catch_up(self) -> None:
        """Wait until the space of all files deleted so far is free."""
        if self._thread is not None:
            reached = threading.Event()
            self._waiting.put(reached)
            reached.wait()

    def end(self) -> None:
        """Free the waiting files, and end the thread."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def _hold(self, name: bytes, directory_fd: int, stat: os.stat_result) -> int | None:
        if stat.st_nlink > 1 or stat.st_blocks * 512 > _LARGEST or self._waiting.qsize() >= _MOST_WAITING:
            return None
        try:
            return os.open(name, _HOLD, dir_fd=directory_fd)
        except OSError:  # for example, too many open files: it is freed at once
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
                with suppress(OSError):  # it is closed all the same (close(2)); waiting callers must not hang
                    os.close(next_one)
            else:
                next_one.set()
