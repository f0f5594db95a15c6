"""The program of the other process (``store.outside_calls``), which carries out system calls that may take for ever.

It has the descriptors that it was sent and nothing else, and starts and ends with the daemon, except for a call that the
kernel holds. It imports only the standard library, so as to start quickly.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import marshal
import os
import resource
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import NamedTuple

_LARGEST_MESSAGE_BYTES = 1 << 17
"""The limit of a message: the value of an extended attribute has 64 KiB at most."""
_MOST_DESCRIPTORS = 4
_DESCRIPTORS_OF_A_CALL = 8
"""The descriptors that come with a call, and those that it opens itself."""
_OTHER_DESCRIPTORS = 16
_MOST_CALLS = 1000
_FREED_AT_ONCE = 2
_CLOSED_AT_ONCE = 8
"""The limit of files that are closed at the same time: all wait for the same disk and its journal."""
_STACK_BYTES = 1 << 17
RESULT = struct.Struct("=iq")
"""A positive errno or 0, and a number that the call returns."""
_ABSENT = "user.holdfast.absent"
SHELTERED = b"file"
"""The name of a file in a directory that is there for it alone."""
_STEP_SECONDS = 0.004
"""The time that a step of a truncation holds the file's lock: others wait for it that long."""
_SMALLEST_STEP_BYTES = 32 * 1024
_LEASE_PAUSES_SECONDS = (0.0, 0.01, 0.1, 1.0)


def probe(descriptors: Sequence[int]) -> None:
    """Return when the lock of the file's inode is free. Removing an attribute that is not there changes nothing."""
    with suppress(OSError):
        os.removexattr(descriptors[0], _ABSENT)


def probe_directory(descriptors: Sequence[int], path: bytes) -> None:
    """Return when the lock of a directory at ``path`` below the first one is free, also if there is none any more."""
    for name in path.split(b"/") if path else []:
        fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptors[0])
        os.dup2(fd, descriptors[0], inheritable=False)
        os.close(fd)
    with suppress(OSError):
        os.removexattr(f"/proc/self/fd/{descriptors[0]}", _ABSENT)


def rename(descriptors: Sequence[int], old: bytes, new: bytes, flags: int) -> None:
    """renameat2(2) within a directory or across two.

    A file that changes its directory gets its new name by link(2) and loses the old one. A rename would hold a lock
    that all renames across directories on the disk need, until it has the file's.
    """
    source_fd, target_fd = descriptors
    if os.path.samestat(os.stat(source_fd), os.stat(target_fd)):
        _rename(source_fd, old, new, flags)
        return
    if flags:
        _link(source_fd, old, target_fd, new)
    else:
        passing = b".holdfast-moving-%d-%d" % (os.getpid(), threading.get_native_id())
        with suppress(FileNotFoundError):
            os.unlink(passing, dir_fd=target_fd)
        _link(source_fd, old, target_fd, passing)
        _rename(target_fd, passing, new, 0)
    os.unlink(old, dir_fd=source_fd)


def shelter(descriptors: Sequence[int], directory: bytes) -> None:
    """Give the first file another name, in a directory of its own in the second, for whose lock nobody else waits."""
    with suppress(FileExistsError):
        os.mkdir(directory, 0o700, dir_fd=descriptors[1])
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptors[1])
    try:
        with suppress(FileNotFoundError):  # of an earlier file with the same inode number
            os.unlink(SHELTERED, dir_fd=fd)
        os.link(f"/proc/self/fd/{descriptors[0]}", SHELTERED, dst_dir_fd=fd, follow_symlinks=True)
    except OSError:  # an empty directory would pass for the file
        with suppress(OSError):
            os.rmdir(directory, dir_fd=descriptors[1])
        raise
    finally:
        os.close(fd)


def discard(descriptors: Sequence[int], directory: bytes) -> None:
    """Remove what ``shelter`` has made."""
    with suppress(FileNotFoundError):
        os.unlink(directory + b"/" + SHELTERED, dir_fd=descriptors[0])
    os.rmdir(directory, dir_fd=descriptors[0])


def truncate(descriptors: Sequence[int], size_bytes: int) -> None:
    """ftruncate(2), a smaller size in steps, between which others get the file's lock."""
    fd = descriptors[0]
    step_bytes = _SMALLEST_STEP_BYTES
    left_bytes = os.fstat(fd).st_size
    while left_bytes - step_bytes > size_bytes:
        left_bytes -= step_bytes
        began = time.monotonic()
        os.ftruncate(fd, left_bytes)
        took = time.monotonic() - began
        if took < _STEP_SECONDS:
            step_bytes *= 2
        else:
            step_bytes = max(step_bytes // 2, _SMALLEST_STEP_BYTES)
    os.ftruncate(fd, size_bytes)


def fallocate(descriptors: Sequence[int], mode: int, offset: int, length: int) -> None:
    """fallocate(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(descriptors[0], mode, ctypes.c_int64(offset), ctypes.c_int64(length)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def free(descriptors: Sequence[int], size_bytes: int) -> int:
    """Free what a file takes of the disk if nothing but this descriptor leads to it, in steps: others want the disk too.

    A file that somebody else still has is left as it is, and its blocks go with its last user. Returns ``size_bytes``, which
    is what it takes.
    """
    _closes.wait_for(descriptors[0])
    _free(descriptors[0])
    return size_bytes


def close(descriptors: Sequence[int]) -> None:
    """Let a file be closed that had a name, and free it like any other if that has gone meanwhile."""
    _free(descriptors[0])


def _free(fd: int) -> None:
    if os.fstat(fd).st_nlink == 0:
        with suppress(OSError):
            writable = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
            os.dup2(writable, fd, inheritable=False)
            os.close(writable)
            if _is_alone(fd):
                truncate([fd], 0)


class _Closes:
    """Files that this process is about to close. Until then it has them itself, and none of them can be freed."""

    def __init__(self) -> None:
        self._left: Counter[tuple[int, int]] = Counter()
        self._changed = threading.Condition()

    def begin(self, fd: int) -> None:
        """Count one more close of a file to come."""
        with self._changed:
            self._left[_identity(fd)] += 1

    def end(self, file: tuple[int, int]) -> None:
        """Count one fewer close to come of the file with this device and inode."""
        with self._changed:
            self._left[file] -= 1
            self._left += Counter()  # forgets what has none left
            self._changed.notify_all()

    def wait_for(self, fd: int) -> None:
        """Return when this process has closed the file in every other place."""
        file = _identity(fd)
        with self._changed:
            self._changed.wait_for(lambda: file not in self._left)


_closes = _Closes()


def _identity(fd: int) -> tuple[int, int]:
    """Return a file's device and inode number."""
    stat = os.fstat(fd)
    return stat.st_dev, stat.st_ino


def _is_alone(fd: int) -> bool:
    """Say whether nobody else has the file of this descriptor open or mapped.

    A mapping made in passthrough has the backing file itself and outlives the handle, so the daemon knows nothing of it. The
    kernel does: it grants a lease for writing only to the one who has the file (F_SETLEASE in fcntl(2)). The daemon's own
    descriptor is closed a moment after it was sent here.
    """
    for seconds in _LEASE_PAUSES_SECONDS:
        time.sleep(seconds)
        with suppress(BlockingIOError):
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            return True
    return False


def _rename(source_fd: int, old: bytes, new: bytes, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(source_fd, old, source_fd, new, ctypes.c_uint(flags)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _link(source_fd: int, old: bytes, target_fd: int, new: bytes) -> None:
    os.link(old, new, src_dir_fd=source_fd, dst_dir_fd=target_fd, follow_symlinks=False)


_CALLS: dict[str, Callable[..., int | None]] = {
    "probe": probe,
    "probe_directory": probe_directory,
    "unlink": lambda descriptors, name: os.unlink(name, dir_fd=descriptors[0]),
    "rename": rename,
    "link": lambda descriptors, old, new: _link(descriptors[0], old, descriptors[1], new),
    "shelter": shelter,
    "discard": discard,
    "chmod": lambda descriptors, mode: os.fchmod(descriptors[0], mode),
    "chown": lambda descriptors, uid, gid: os.fchown(descriptors[0], uid, gid),
    "utime": lambda descriptors, atime_ns, mtime_ns: os.utime(descriptors[0], ns=(atime_ns, mtime_ns)),
    "setxattr": lambda descriptors, name, value, flags: os.setxattr(descriptors[0], name, value, flags),
    "removexattr": lambda descriptors, name: os.removexattr(descriptors[0], name),
    "truncate": truncate,
    "fallocate": fallocate,
    "free": free,
    "close": close,
}
"""The calls by name, each with the descriptors and the arguments that were sent."""


class _Job(NamedTuple):
    """A call, its arguments, and its descriptors, the first of which gets the answer."""

    call: str
    arguments: tuple[int | bytes, ...]
    descriptors: list[int]


class _Threads:
    """Carries out jobs, each in a thread, up to ``most`` at once."""

    def __init__(self, most: int, room: threading.Semaphore) -> None:
        self._most = most
        self._room = room
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = self._threads = 0

    def add(self, job: _Job) -> None:
        """Begin a job; if no thread can be had for it, it waits for another job's thread."""
        with self._lock:
            starts = self._idle <= self._jobs.qsize() and self._threads < self._most
            self._threads += starts
        self._jobs.put(job)
        if starts:
            try:
                threading.Thread(target=self._run).start()
            except RuntimeError:  # the system has no more
                with self._lock:
                    self._threads -= 1

    def _run(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            job = self._jobs.get()
            with self._lock:
                self._idle -= 1
            _carry_out(job)
            self._room.release()


def _carry_out(job: _Job) -> None:
    answer_to, *descriptors = job.descriptors
    number, value = 0, 0
    try:
        value = _CALLS[job.call](descriptors, *job.arguments) or 0
    except OSError as problem:
        number = problem.errno or errno.EIO
    closed = _identity(descriptors[0]) if job.call == close.__name__ else None
    for fd in descriptors:
        os.close(fd)
    if closed is not None:
        _closes.end(closed)
    with suppress(OSError):  # nobody waits any more
        os.write(answer_to, RESULT.pack(number, value))
    os.close(answer_to)


def main() -> None:
    """Run until the daemon ends."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    threading.stack_size(_STACK_BYTES)
    # What has not been received stays in the channel. A call for which there are no descriptors would be lost.
    most_descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = threading.Semaphore(max(1, (most_descriptors - _OTHER_DESCRIPTORS) // _DESCRIPTORS_OF_A_CALL))
    threads = _Threads(_MOST_CALLS, room)
    pools = {free.__name__: _Threads(_FREED_AT_ONCE, room), close.__name__: _Threads(_CLOSED_AT_ONCE, room)}
    while True:
        room.acquire()
        message, descriptors, _, _ = socket.recv_fds(channel, _LARGEST_MESSAGE_BYTES, 1 + _MOST_DESCRIPTORS)
        if not message:
            os._exit(0)
        call, arguments = marshal.loads(message)
        if call == close.__name__:  # in the order in which they come, so that whoever frees it later knows
            _closes.begin(descriptors[1])
        pools.get(call, threads).add(_Job(call, arguments, list(descriptors)))


if __name__ == "__main__":
    main()
