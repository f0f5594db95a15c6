"""Bodies of requests and replies, byte for byte as in ``include/uapi/linux/fuse.h``."""

from __future__ import annotations

import os
from struct import pack

import pytest

from holdfast.fs.fuse import wire_format
from holdfast.fs.namespace.attr_ops import Changes

_MODE, _UID, _GID, _SIZE, _ATIME, _MTIME, _FH, _ATIME_NOW = (1 << bit for bit in range(8))
_LOCKOWNER, _CTIME, _KILL_SUIDGID = (1 << bit for bit in range(9, 12))


def setattr_in(valid: int) -> bytes:
    """Return a ``struct fuse_setattr_in``: each number says what it is; the times are before 1970."""
    handle, size_bytes, lock_owner = 11, 12, 13
    atime, mtime, ctime = -2, -3, -4
    return pack(
        "=IIQQQqqqIIIIIIII", valid, 0, handle, size_bytes, lock_owner, atime, mtime, ctime, 2, 3, 4, 0o640, 0, 5, 6, 0
    )


def test_what_a_setattr_changes_is_what_its_bits_say() -> None:
    everything = wire_format.changes(setattr_in(_MODE | _UID | _GID | _ATIME | _MTIME | _FH | _LOCKOWNER))
    assert everything == Changes(mode=0o640, uid=5, gid=6, atime_ns=-1_999_999_998, mtime_ns=-2_999_999_997)
    assert wire_format.changes(setattr_in(_MTIME)) == Changes(mtime_ns=-2_999_999_997)


@pytest.mark.parametrize("more", [_SIZE, _ATIME_NOW, _CTIME, _KILL_SUIDGID])
def test_a_setattr_with_more_to_it_is_left_to_pyfuse3(more: int) -> None:
    assert wire_format.changes(setattr_in(_MODE | more)) is None


def test_a_setattr_that_changes_nothing_is_left_to_pyfuse3() -> None:
    assert wire_format.changes(setattr_in(_FH)) is None


def test_what_statfs_tells() -> None:
    stats = os.statvfs_result((4096, 512, 100, 50, 40, 30, 20, 15, 0, 77))
    assert wire_format.file_system(stats) == pack("=QQQQQIIII6I", 100, 50, 40, 30, 20, 4096, 255, 512, 0, *[0] * 6)
