"""fallocate(2), for which pyfuse3 has no handler: the C module passes it on as a SETXATTR with an empty name.

No system call can set an attribute with an empty name (the kernel answers ERANGE), so the two can't be confused.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from dataclasses import dataclass

_REQUEST = struct.Struct("=QQQI4x")
_FREES = 0x02 | 0x08
"""FALLOC_FL_PUNCH_HOLE, FALLOC_FL_COLLAPSE_RANGE"""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


@dataclass(frozen=True, slots=True)
class Fallocation:
    """A request to allocate, zero or free a range of an open file. ``mode`` has FALLOC_FL_* bits."""

    handle: int
    offset: int
    length_bytes: int
    mode: int

    @classmethod
    def of(cls, name: bytes, value: bytes) -> Fallocation | None:
        """Return the fallocate request behind a call of the setxattr handler; None if it really sets an attribute."""
        return None if name else cls(*_REQUEST.unpack(value))

    @property
    def most_bytes(self) -> int:
        """The upper limit of the disk space that it takes, in bytes."""
        return 0 if self.mode & _FREES else self.length_bytes

    def apply(self, fd: int) -> None:
        """Carry the request out on the file open at ``fd``. Raises ``OSError``, as fallocate(2) does. Blocks on the disk."""
        while _libc.fallocate(fd, self.mode, self.offset, self.length_bytes) != 0:
            number = ctypes.get_errno()
            if number != errno.EINTR:
                raise OSError(number, os.strerror(number))
