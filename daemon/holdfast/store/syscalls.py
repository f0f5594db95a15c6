"""System calls that Python's os module lacks."""

from __future__ import annotations

import ctypes
import os

RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2

_libc = ctypes.CDLL(None, use_errno=True)
_renameat2 = _libc.renameat2
_renameat2.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]


def rename_with_flags(source_fd: int, source: bytes, target_fd: int, target: bytes, flags: int) -> None:
    """renameat2(2): ``flags`` is 0, ``RENAME_NOREPLACE`` or ``RENAME_EXCHANGE``. Raises ``OSError``."""
    if _renameat2(source_fd, source, target_fd, target, flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), source, None, target)
