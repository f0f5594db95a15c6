"""Reads of files whose inode's lock a user may hold for as long as it likes (``fs.inodes.hot_files``).

On XFS each read takes that lock (shared), and where it is held for writing waits for it in the kernel, where nothing ends
it: a daemon that waits so does not end when it is killed, and the next one can't start. So files there are read by calls
that fail instead (RWF_NOWAIT). They also fail for what is not in memory. That is brought there through a mapping, which
does without the lock (MADV_POPULATE_READ, Linux 5.14; users can hold locks from 6.9 on, with passthrough), and read then.
Whatever still fails is held. On all other file systems that can be passed through, reads of the page cache take no lock.
"""

from __future__ import annotations

import ctypes
import errno
import io
import mmap
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from typing_extensions import Buffer

PATIENCE_SECONDS = 3.0
"""The time for which a read waits for a lock: longer than a write takes on a disk that works."""
_PAUSE_SECONDS = 0.002
_BUFFER_BYTES = 2**17
_STILL_HELD = "a process has held the lock of the file for long, with memory that does not come"
_XFS = 0x58465342  # linux/magic.h
_MADV_SEQUENTIAL, _MADV_POPULATE_READ = 2, 22
_STATFS_BYTES = 256  # more than struct statfs has anywhere; its first field is f_type
_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.fstatfs.argtypes = [ctypes.c_int, ctypes.c_void_p]


def locks_reads(fd: int) -> bool:
    """Say whether the file is on a file system whose reads take the lock of the inode."""
    kind = ctypes.create_string_buffer(_STATFS_BYTES)
    return _libc.fstatfs(fd, kind) == 0 and ctypes.c_long.from_buffer(kind).value == _XFS


class FileReader:
    """Reads a file that is open at ``fd``, in one thread. It waits for the disk, and for a lock as long as patience says.

    ``may_go_on`` is called while it waits for a lock, and may raise.
    """

    def __init__(self, fd: int, may_go_on: Callable[[], object] = lambda: None) -> None:
        self._fd = fd
        self._may_go_on = may_go_on
        self._locks_reads = locks_reads(fd)

    def read(self, size_bytes: int, offset: int) -> bytes:
        """Return up to so many bytes from ``offset`` on, as ``read_into`` fills a buffer."""
        if not self._locks_reads:
            return os.pread(self._fd, size_bytes, offset)
        buffer = bytearray(size_bytes)
        return bytes(memoryview(buffer)[: self.read_into(buffer, offset)])

    def read_into(self, buffer: Buffer, offset: int) -> int:
        """Fill the buffer from ``offset`` on, as far as one call does; return the number of bytes, 0 at the end of the file.

        Raises ``OSError``: EBUSY if the lock is held for too long.
        """
        if not self._locks_reads:
            return os.preadv(self._fd, [buffer], offset)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                count = _read_now(self._fd, buffer, offset)
                if count is None and _bring(self._fd, offset, memoryview(buffer).nbytes):
                    count = _read_now(self._fd, buffer, offset)
            except NotImplementedError:
                return os.preadv(self._fd, [buffer], offset)
            if count is not None:
                return count
            if time.monotonic() >= deadline:
                raise OSError(errno.EBUSY, _STILL_HELD)
            self._may_go_on()
            time.sleep(_PAUSE_SECONDS)


def _read_now(fd: int, buffer: Buffer, offset: int) -> int | None:
    """Read what is in memory; None if the read would wait. Raises ``NotImplementedError`` if that can't be told.

    In Linux 5.9 and 5.10 a read that would wait for memory returns 0 on XFS: only the size tells the end of a file.
    """
    try:
        count = os.preadv(fd, [buffer], offset, os.RWF_NOWAIT)
    except BlockingIOError:
        return None
    except OSError as problem:
        if problem.errno == errno.EOPNOTSUPP:
            raise NotImplementedError from None
        raise
    return count if count or offset >= os.fstat(fd).st_size else None


def _bring(fd: int, offset: int, size_bytes: int) -> bool:
    """Bring a part of a file into memory, without the lock of the inode; say whether there is such a part.

    Raises ``OSError`` (EIO), and ``NotImplementedError`` before Linux 5.14.
    """
    start = offset - offset % mmap.PAGESIZE
    end = min(offset + size_bytes, os.fstat(fd).st_size)
    if end <= offset:
        return False  # it was cut meanwhile
    address = _libc.mmap(None, end - start, mmap.PROT_READ, mmap.MAP_SHARED, fd, start)
    if address in (None, _FAILED):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    try:
        _libc.madvise(address, end - start, _MADV_SEQUENTIAL)
        failed: int = _libc.madvise(address, end - start, _MADV_POPULATE_READ)
        number = ctypes.get_errno()
    finally:
        _libc.munmap(address, end - start)
    if not failed:
        return True
    if number == errno.EINVAL:
        raise NotImplementedError
    if number == errno.EFAULT and os.fstat(fd).st_size < end:
        return False
    number = errno.EIO if number == errno.EFAULT else number
    raise OSError(number, os.strerror(number))


def reading(fd: int) -> BinaryIO:
    """Return a buffered file at the beginning of the file at ``fd``, which it closes; reads as ``FileReader`` does."""
    if not locks_reads(fd):
        return open(fd, "rb")
    return io.BufferedReader(_RawFile(open(fd, "rb", buffering=0)), _BUFFER_BYTES)


class _RawFile(io.RawIOBase):
    """A file at a position of its own."""

    def __init__(self, file: io.FileIO) -> None:
        super().__init__()
        self._file = file
        self._reader = FileReader(file.fileno())
        self._offset = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._file.fileno()

    def readinto(self, buffer: Buffer) -> int:
        count = self._reader.read_into(buffer, self._offset)
        self._offset += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._offset, os.SEEK_END: os.fstat(self.fileno()).st_size}[whence]
        self._offset = base + offset
        return self._offset

    def close(self) -> None:
        super().close()
        self._file.close()


def ask_for(fd: int, offset: int, size_bytes: int) -> None:
    """Have the kernel read a part of a file ahead, as far as it reads ahead at once. Raises ``OSError``."""
    if not locks_reads(fd):
        os.posix_fadvise(fd, offset, size_bytes, os.POSIX_FADV_WILLNEED)  # which takes the lock as well
        return
    try:
        os.preadv(fd, [bytearray(size_bytes)], offset, os.RWF_NOWAIT)  # it begins to read what it does not find
    except OSError as problem:
        if problem.errno not in (errno.EAGAIN, errno.EOPNOTSUPP):
            raise
