"""The space of disks, and of files; and deleted files, whose space becomes free in the background.

A file system frees a file's blocks when neither a name nor a descriptor refers to it any more. For a small file whose blocks
are on the disk, this takes ext4 several times as long as removing the name, and the caller of unlink(2) does not need to
wait for it. So a descriptor is held while the name is removed, and a thread closes it.

For a large file in many pieces it takes seconds, or minutes where freed blocks are discarded (``mount -o discard``), and the
process that closes the last descriptor can't be killed. So another process does that, in steps (``outside_process.free``).
What is not free yet counts as free for users (``Freeing.space``), and whoever finds no room waits for it
(``capacity.room``). It is counted for each disk by itself.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, TypeVar

from holdfast.store.outside_calls import OutsideCalls, result_in
from holdfast.store.outside_process import RESULT

QUICKLY_FREED_BYTES = 128 * 1024
"""The number of bytes that the disk frees in no time that matters, in however many pieces they are."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a file system, or a quota, that is full."""
_MOST_MEASURES = 3
_MOST_WAITING = 500
_PAUSE_SECONDS = 0.005
"""The thread's pause between two turns. Each turn delays the event loop, so it closes all that has come in the pause."""
_HOLD = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_FREED_AT_ONCE = nullcontext()
_T = TypeVar("_T")


@contextmanager
def ignoring_full_disk() -> Iterator[None]:
    """Ignore that a disk, or a quota, is full."""
    try:
        yield
    except OSError as problem:
        if problem.errno not in NO_ROOM:
            raise


class Space(NamedTuple):
    """The disk space that files take: inodes, and bytes of blocks."""

    files: int
    size_bytes: int

    def and_another(self, size_bytes: int) -> Space:
        """Return this space and that of one more file."""
        return Space(self.files + 1, self.size_bytes + size_bytes)

    def with_more(self, more: Space) -> Space:
        """Return the sum of both."""
        return Space(self.files + more.files, self.size_bytes + more.size_bytes)


class DiskSpace(NamedTuple):
    """A file system: its size, and what an ordinary user may still take of it, in bytes and in inodes (files).

    ``files`` is 0 where a file system makes inodes as they are needed (btrfs): it can't run out of them.
    """

    size_bytes: int
    free_bytes: int
    files: int = 0
    free_files: int = 0


def disk_space(place: int | Path) -> DiskSpace:
    """Return the space of the file system that a descriptor or a path is on (statvfs(3))."""
    stats = os.statvfs(place)
    unit = stats.f_frsize
    return DiskSpace(stats.f_blocks * unit, stats.f_bavail * unit, stats.f_files, stats.f_favail)


def measured(measure: Callable[[], _T], deleted: Callable[[], Space]) -> tuple[_T, Space]:
    """Return what ``measure`` says of a disk, and what was deleted there and was not free yet then.

    It becomes free in other threads and processes meanwhile. Bytes that did so between the two would be in neither, and the
    disk would look fuller than it was before they were deleted.
    """
    for _ in range(_MOST_MEASURES):
        before, found = deleted(), measure()
        if deleted() == before:
            break
    return found, before


class Freeing:
    """Holds files while their last name is removed. The thread runs from the first one until ``end``.

    ``others`` has the devices of other disks than the first.
    """

    def __init__(self, calls: OutsideCalls, others: Iterable[int] = ()) -> None:
        self._calls = calls
        self._first = FreeingOnDisk(calls)
        self._others = {device: FreeingOnDisk(calls) for device in others}
        self._waiting: SimpleQueue[tuple[int, int | None, FreeingOnDisk] | None] = SimpleQueue()
        """Descriptors, the number of bytes that become free with each, or None if the file keeps a name, and the disk."""
        self._thread: threading.Thread | None = None
        self._hurry = threading.Event()

    def space(self, device: int | None = None) -> Space:
        """Return what has been deleted, and is not free yet, on the first disk, or on the other one that is ``device``."""
        return self.on(device).space()

    def on(self, device: int | None = None) -> FreeingOnDisk:
        """Return the disk that a file's device is. That is the first one's where a file system makes up devices of files."""
        return self._first if device is None else self._others.get(device, self._first)

    def later(self, name: bytes, directory_fd: int, stat: os.stat_result) -> AbstractContextManager[None]:
        """Free the file with the attributes ``stat`` soon after a block that removes its name, if that is the last."""
        size_bytes = stat.st_blocks * 512
        if stat.st_nlink > 1 or (size_bytes <= QUICKLY_FREED_BYTES and self._waiting.qsize() >= _MOST_WAITING):
            return _FREED_AT_ONCE
        try:
            fd = os.open(name, _HOLD, dir_fd=directory_fd)
        except OSError:  # for example, too many open files
            return _FREED_AT_ONCE
        return _Held(self, fd, size_bytes, stat.st_dev)

    def close_later(self, fd: int, size_bytes: int, device: int) -> None:
        """Let the descriptor of a file that takes ``size_bytes`` of the disk ``device`` be closed elsewhere.

        A file that still has a name does not become free by that, and so does not count as deleted.
        """
        disk, has_name = self.on(device), False
        if size_bytes > QUICKLY_FREED_BYTES:
            has_name = os.fstat(fd).st_nlink > 0
            if disk.close_outside(fd, Space(0, 0) if has_name else Space(1, size_bytes)):
                return
        if self._thread is None:
            thread = threading.Thread(target=self._close_all, name="freeing", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads
                os.close(fd)
                return
            self._thread = thread
        if not has_name:
            disk.held_files += 1
            disk.held_bytes += size_bytes
        self._waiting.put((fd, None if has_name else size_bytes, disk))

    def unlink(self, name: bytes, directory_fd: int) -> None:
        """unlinkat(2), for any thread: a large file is freed elsewhere, and what it takes does not count as free."""
        stat = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        if stat.st_nlink > 1 or stat.st_blocks * 512 <= QUICKLY_FREED_BYTES:
            os.unlink(name, dir_fd=directory_fd)
            return
        fd = os.open(name, _HOLD, dir_fd=directory_fd)
        try:
            os.unlink(name, dir_fd=directory_fd)
            with suppress(OSError):  # it is freed here then
                self._calls.begin("free", [fd], 0).close()
        finally:
            os.close(fd)

    def close(self, fd: int) -> None:
        """Close the descriptor of a file that was written or has no name, elsewhere if the file is large.

        It may be all that is left of the file, or ext4 chooses the blocks of a truncated one only when it is closed.
        """
        stat = os.fstat(fd)
        size_bytes = stat.st_blocks * 512
        if size_bytes > QUICKLY_FREED_BYTES:
            self.close_later(fd, size_bytes, stat.st_dev)
        else:
            os.close(fd)

    def end(self) -> None:
        """Free the waiting files, and end the thread."""
        if self._thread is not None:
            self._waiting.put(None)
            self._hurry.set()
            self._thread.join()
            self._thread = None
        for disk in (self._first, *self._others.values()):
            disk.end()

    def _close_all(self) -> None:
        while (next_one := self._waiting.get()) is not None:
            fd, size_bytes, disk = next_one
            with suppress(OSError):  # it is closed all the same (close(2))
                os.close(fd)
            if size_bytes is not None:
                disk.freed_files += 1
                disk.freed_bytes += size_bytes
            if self._waiting.empty():
                self._hurry.wait(_PAUSE_SECONDS)


class FreeingOnDisk:
    """The deleted files of one disk that are not free yet.

    Those held are counted by the thread that deletes, those freed by the freeing thread. Large ones are closed by the other
    process, which frees them if they have been deleted.
    """

    def __init__(self, calls: OutsideCalls) -> None:
        self.held_files = self.held_bytes = 0
        self.freed_files = self.freed_bytes = 0
        self._calls = calls
        self._starts = 0
        self._answers: tuple[socket.socket, socket.socket] | None = None
        """The sockets at which this process reads, and the other one writes, how much has been freed."""
        self._outside = Space(0, 0)
        """The space of files that the other process has not freed yet."""

    def space(self) -> Space:
        """Return what is not free yet."""
        if self._outside.files:
            self._take_answers()
        files, size_bytes = self._outside
        return Space(files + self.held_files - self.freed_files, size_bytes + self.held_bytes - self.freed_bytes)

    def close_outside(self, fd: int, becomes_free: Space) -> bool:
        """Hand the descriptor over to the other process; return whether there was one to take it."""
        try:
            if becomes_free.files:
                self._free(fd, becomes_free)
            else:
                self._calls.begin("close", [fd]).close()
        except OSError:
            return False
        os.close(fd)
        return True

    def _free(self, fd: int, becomes_free: Space) -> None:
        if self._answers is None:
            self._answers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._answers[0].setblocking(False)
        self._calls.tell(self._answers[1], "free", [fd], becomes_free.size_bytes)
        self._take_answers()
        self._outside = self._outside.with_more(becomes_free)

    def _take_answers(self) -> None:
        if self._starts != self._calls.starts:
            self._starts, self._outside = self._calls.starts, Space(0, 0)
        with suppress(BlockingIOError):
            while self._outside.files and self._answers is not None:
                _, size_bytes = result_in(self._answers[0].recv(RESULT.size))
                left_files = self._outside.files - 1
                self._outside = Space(left_files, max(0, self._outside.size_bytes - size_bytes) if left_files else 0)

    def end(self) -> None:
        """Stop waiting for answers."""
        for answers in self._answers or ():
            answers.close()


@dataclass(slots=True, eq=False)
class _Held:
    """A file that is held while its last name is removed."""

    _freeing: Freeing
    _fd: int
    _size_bytes: int
    _device: int

    def __enter__(self) -> None:
        pass

    def __exit__(self, *problem: object) -> None:
        self._freeing.close_later(self._fd, self._size_bytes, self._device)
