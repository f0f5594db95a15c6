"""Numbers of the FUSE protocol that the Python side uses.

Source: ``include/uapi/linux/fuse.h`` of Linux 6.9, protocol 7.40.
"""

from __future__ import annotations

import ctypes
import enum
import errno
import os
import struct
from dataclasses import dataclass

_REQUEST = struct.Struct("=QQQI4x")
_FREES = 0x02 | 0x08
"""FALLOC_FL_PUNCH_HOLE, FALLOC_FL_COLLAPSE_RANGE"""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class InitFlag(enum.IntFlag):
    """Flags of the INIT request and reply, on which kernel and daemon agree when the mount starts."""

    NONE = 0
    AUTO_INVALIDATE = 1 << 12
    """The kernel drops a file's pages when it sees another mtime, also that of its own write. libfuse asks for this."""
    READDIRPLUS_WHEN_USED = 1 << 14
    PARALLEL_DIRECTORY_REQUESTS = 1 << 18
    """FUSE_PARALLEL_DIROPS: the kernel sends lookups and listings of one directory side by side, not one after the other."""
    EXPLICIT_INVALIDATE = 1 << 25
    """The kernel drops pages, and cached listings, only when it is told to: by the reply to an open or by a notification."""
    DROP_PRIVILEGES = 1 << 28
    """FUSE_HANDLE_KILLPRIV_V2: the daemon removes set-id bits and capabilities, and the kernel says when. Without it, the
    kernel removes them, and sends a GETXATTR of ``security.capability`` before each write to find out."""
    PASSTHROUGH = 1 << 37
    RESEND = 1 << 39


class OpenFlag(enum.IntFlag):
    """Flags of the reply to OPEN, OPENDIR and CREATE: how the kernel treats this open file or directory."""

    NONE = 0
    KEEP_CACHE = 1 << 1
    CACHE_DIRECTORY = 1 << 3
    NO_FLUSH = 1 << 5
    PASSTHROUGH = 1 << 7
    """Set together with a backing id, never without."""


class Opcode(enum.IntEnum):
    """The kind of a request. ``OTHER`` stands for those that this table lacks."""

    OTHER = 0
    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    SETXATTR = 21
    GETXATTR = 22
    LISTXATTR = 23
    REMOVEXATTR = 24
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    GETLK = 31
    SETLK = 32
    SETLKW = 33
    ACCESS = 34
    CREATE = 35
    INTERRUPT = 36
    BMAP = 37
    DESTROY = 38
    IOCTL = 39
    POLL = 40
    NOTIFY_REPLY = 41
    BATCH_FORGET = 42
    FALLOCATE = 43
    READDIRPLUS = 44
    RENAME2 = 45
    LSEEK = 46
    COPY_FILE_RANGE = 47
    SETUPMAPPING = 48
    REMOVEMAPPING = 49
    SYNCFS = 50
    TMPFILE = 51
    STATX = 52


OPCODE_LIMIT = 64
"""A number above all opcodes (native/wire.h)."""

RESENT = 1 << 63
"""FUSE_UNIQUE_RESEND: set in the unique number of a request that the kernel sends again."""


@dataclass(frozen=True, slots=True)
class Fallocation:
    """A request to allocate, zero or free a range of an open file. ``mode`` has FALLOC_FL_* bits.

    pyfuse3 has no handler for it: the C module passes it on as a SETXATTR with an empty name. No system call can set an
    attribute with an empty name (the kernel answers ERANGE), so the two can't be confused.
    """

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
