"""Frees the space of deleted files in the background.

A file system frees a file's blocks when neither a name nor a descriptor refers to it any more. For a small file whose blocks
are on the disk, this takes ext4 several times as long as removing the name, and the caller of unlink(2) does not need to
wait for it. So a descriptor is held while the name is removed, and a thread closes it. Larger files are freed at once,
because the caller may need the space next.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager, nullcontext, suppress
from queue import SimpleQueue

_LARGEST = 128 * 1024
"""Bytes on the disk. Times ``_MOST_WAITING``, this is the most space that is deleted and not yet free."""
_MOST_WAITING = 500
_PAUSE_SECONDS = 0.005
"""Each turn of the thread delays the event loop, so it closes together what has come in such a time."""
_HOLD = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_FREED_AT_ONCE = nullcontext()


class Freeing:
    """Holds files while their last name is removed. The thread runs from the first one until ``end``."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[int | threading.Event | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._hurry = threading.Event()

    def later(self, name: bytes, directory_fd: int, stat: os.stat_result) -> AbstractContextManager[None]:
        """The block removes a name of the file with the attributes ``stat``; if it is the last, free the file soon after."""
        if stat.st_nlink > 1 or stat.st_blocks * 512 > _LARGEST or self._waiting.qsize() >= _MOST_WAITING:
            return _FREED_AT_ONCE
        try:
            fd = os.open(name, _HOLD, dir_fd=directory_fd)
        except OSError:  # for example, too many open files
            return _FREED_AT_ONCE
        return _Held(self, fd)

    def close_later(self, fd: int) -> None:
        """Let the thread close the descriptor."""
        if self._thread is None:
            thread = threading.Thread(target=self._close_all, name="freeing", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads
                os.close(fd)
                return
            self._thread = thread
        self._waiting.put(fd)

    def catch_up(self) -> None:
        """Wait until the space of all files deleted so far is free."""
        if self._thread is not None:
            reached = threading.Event()
            self._waiting.put(reached)
            self._hurry.set()
            reached.wait()

    def end(self) -> None:
        """Free the waiting files, and end the thread."""
        if self._thread is not None:
            self._waiting.put(None)
            self._hurry.set()
            self._thread.join()
            self._thread = None

    def _close_all(self) -> None:
        while (next_one := self._waiting.get()) is not None:
            if isinstance(next_one, int):
                with suppress(OSError):  # it is closed all the same (close(2)); waiting callers must not hang
                    os.close(next_one)
            else:
                self._hurry.clear()
                next_one.set()
            if self._waiting.empty():
                self._hurry.wait(_PAUSE_SECONDS)


class _Held:
    """A file that is held while its last name is removed."""

    __slots__ = ("_fd", "_freeing")

    def __init__(self, freeing: Freeing, fd: int) -> None:
        self._freeing = freeing
        self._fd = fd

    def __enter__(self) -> None:
        pass

    def __exit__(self, *problem: object) -> None:
        self._freeing.close_later(self._fd)
