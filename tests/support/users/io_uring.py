"""System calls by io_uring(7), which the kernel carries out in threads of its own."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from pathlib import Path
from types import TracebackType

_LIBC = ctypes.CDLL(None, use_errno=True)
_SETUP, _ENTER = 425, 426  # the same on all architectures
_GETEVENTS = 1
_SUBMISSIONS, _COMPLETIONS, _ENTRIES = 0, 0x800_0000, 0x1000_0000  # IORING_OFF_*
_ALWAYS_IN_A_THREAD = 1 << 4  # IOSQE_ASYNC
_PARAMETERS = struct.Struct("=7I3I10I10I")
_ENTRY = struct.Struct("=BBHiQQIIQHHIQ8x")
_AT_FDCWD = -100
_OPENAT, _STATX, _READ = 18, 21, 22  # linux/io_uring.h
_RENAMEAT, _UNLINKAT, _MKDIRAT, _LINKAT, _GETXATTR = 35, 36, 37, 39, 44
_BASIC_STATS = 0x7FF
_STATX_BYTES = 256


class Ring:
    """One request at a time. Raises ``OSError`` where the kernel, or its administrator, does not allow io_uring."""

    def __init__(self) -> None:
        parameters = ctypes.create_string_buffer(_PARAMETERS.size)
        self._fd = _called(_LIBC.syscall(_SETUP, 1, parameters))
        numbers = _PARAMETERS.unpack(parameters.raw)
        submissions, completions = numbers[10:20], numbers[20:30]
        self._sq_tail, self._sq_mask, self._sq_array = submissions[1], submissions[2], submissions[6]
        self._cq_head, self._cq_mask, self._cqes = completions[0], completions[2], completions[5]
        self._sq = mmap.mmap(self._fd, self._sq_array + 4 * numbers[0], offset=_SUBMISSIONS)
        self._cq = mmap.mmap(self._fd, self._cqes + 16 * numbers[1], offset=_COMPLETIONS)
        self._sqes = mmap.mmap(self._fd, _ENTRY.size * numbers[0], offset=_ENTRIES)

    def __enter__(self) -> Ring:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        for memory in (self._sqes, self._cq, self._sq):
            memory.close()
        os.close(self._fd)

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        """openat(2)."""
        return self._at(_OPENAT, path, length=mode, flags=flags)

    def stat(self, path: Path) -> int:
        """statx(2)."""
        found = ctypes.create_string_buffer(_STATX_BYTES)
        return self._at(_STATX, path, offset=ctypes.addressof(found), length=_BASIC_STATS)

    def read(self, fd: int, count: int) -> bytes:
        """pread(2) from the beginning."""
        data = ctypes.create_string_buffer(count)
        length = self._submit(_READ, fd, address=ctypes.addressof(data), length=count)
        return data.raw[:length]

    def mkdir(self, path: Path, mode: int = 0o755) -> int:
        """mkdirat(2)."""
        return self._at(_MKDIRAT, path, length=mode)

    def unlink(self, path: Path) -> int:
        """unlinkat(2)."""
        return self._at(_UNLINKAT, path)

    def rename(self, old: Path, new: Path) -> int:
        """renameat(2)."""
        return self._two(_RENAMEAT, old, new)

    def link(self, old: Path, new: Path) -> int:
        """linkat(2)."""
        return self._two(_LINKAT, old, new)

    def getxattr(self, path: Path, name: bytes) -> int:
        """getxattr(2)."""
        value, where = ctypes.create_string_buffer(100), ctypes.create_string_buffer(os.fsencode(path))
        wanted = ctypes.create_string_buffer(name)
        return self._submit(_GETXATTR, 0, ctypes.addressof(value), ctypes.addressof(wanted), 100, 0, ctypes.addressof(where))

    def _at(self, operation: int, path: Path, *, offset: int = 0, length: int = 0, flags: int = 0) -> int:
        name = ctypes.create_string_buffer(os.fsencode(path))
        return self._submit(operation, _AT_FDCWD, offset, ctypes.addressof(name), length, flags)

    def _two(self, operation: int, old: Path, new: Path) -> int:
        names = [ctypes.create_string_buffer(os.fsencode(path)) for path in (old, new)]
        return self._submit(
            operation, _AT_FDCWD, ctypes.addressof(names[1]), ctypes.addressof(names[0]), _AT_FDCWD & 0xFFFF_FFFF, 0
        )

    def _submit(
        self, operation: int, fd: int, offset: int = 0, address: int = 0, length: int = 0, flags: int = 0, third: int = 0
    ) -> int:
        """Carry a request out in a thread of the kernel; return its result. Raises ``OSError``."""
        _ENTRY.pack_into(
            self._sqes, 0, operation, _ALWAYS_IN_A_THREAD, 0, fd, offset, address, length, flags, 0, 0, 0, 0, third
        )
        tail = _number(self._sq, self._sq_tail)
        struct.pack_into("=I", self._sq, self._sq_array, 0)
        struct.pack_into("=I", self._sq, self._sq_tail, tail + 1)
        _called(_LIBC.syscall(_ENTER, self._fd, 1, 1, _GETEVENTS, None, 0))
        head = _number(self._cq, self._cq_head)
        at = self._cqes + 16 * (head & _number(self._cq, self._cq_mask))
        (result,) = struct.unpack_from("=i", self._cq, at + 8)
        struct.pack_into("=I", self._cq, self._cq_head, head + 1)
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        return int(result)


def _number(memory: mmap.mmap, at: int) -> int:
    return int(struct.unpack_from("=I", memory, at)[0])


def _called(result: int) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
