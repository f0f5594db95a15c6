"""System calls that Python's os module lacks."""

from __future__ import annotations

import ctypes
import errno
import os

RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2

_OPENAT2 = 437
"""The number of openat2(2), the same on all architectures: it is younger than the common table (Linux 5.6)."""
_NO_SYMLINKS, _BENEATH = 0x04, 0x08
REFUSALS = (errno.EIO, errno.ENOSPC, errno.EDQUOT)
"""The errors by which the kernel tells that the disk has refused what was written before."""
_BEYOND_ALL = 2**62
_WAIT_BEFORE = 1  # SYNC_FILE_RANGE_WAIT_BEFORE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
_syscall = _libc.syscall
_syscall.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t]


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_without_links(directory_fd: int, path: bytes, flags: int, *, beneath: bool = False) -> int:
    """openat2(2) of a path of less than 4 KiB, on which nothing may be a symbolic link. Raises ``OSError``.

    ``beneath``: nor may it lead out of the directory. Raises ``NotImplementedError`` where the kernel, or a filter of system
    calls, does not know it.
    """
    how = _OpenHow(flags, 0, _NO_SYMLINKS | _BENEATH if beneath else _NO_SYMLINKS)
    fd: int = _syscall(_OPENAT2, directory_fd, path, ctypes.byref(how), ctypes.sizeof(how))
    if fd >= 0:
        return fd
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EPERM):
        raise NotImplementedError
    number = errno.ENOTDIR if number == errno.ELOOP else number
    raise OSError(number, os.strerror(number), path)


def was_refused(fd: int) -> bool:
    """Say whether the disk has refused bytes of the file since ``fd`` was opened, or since this was asked of it last.

    It neither writes nor waits: of a page that no file has, sync_file_range(2) only tells what became of those before. A
    refusal that nobody was told of is told to a descriptor that was opened later too, while the kernel knows the inode.
    """
    failed: int = _libc.sync_file_range(fd, _BEYOND_ALL, 1, _WAIT_BEFORE)
    return failed != 0 and ctypes.get_errno() in REFUSALS


def rewound(directory_fd: int) -> int:
    """Return the descriptor of a directory that is kept open, for a listing of what is there now.

    Through one descriptor btrfs lists what was there when it was opened or last rewound; Python rewinds after a listing, and
    so leaves out what comes between two of them. No other thread may list through the descriptor meanwhile.
    """
    os.lseek(directory_fd, 0, os.SEEK_SET)
    return directory_fd


def rename_with_flags(source_fd: int, source: bytes, target_fd: int, target: bytes, flags: int) -> None:
    """renameat2(2): ``flags`` is 0, ``RENAME_NOREPLACE`` or ``RENAME_EXCHANGE``. Raises ``OSError``."""
    if _libc.renameat2(source_fd, source, target_fd, target, flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), source, None, target)
