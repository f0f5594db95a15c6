"""Bodies of requests and replies, byte for byte as in ``include/uapi/linux/fuse.h``."""

from __future__ import annotations

import os
from pathlib import Path
from struct import pack
from typing import Any, cast

import pytest

from holdfast.fs.fuse import wire_format
from holdfast.fs.namespace.attr_ops import Changes
from holdfast.system.file_id import file_stat

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
    assert everything == Changes(mode=0o640, uid=5, gid=6, atime_ns=-1_999_999_998, mtime_ns=-2_999_999_997, are_chosen=True)
    assert wire_format.changes(setattr_in(_MTIME)) == Changes(mtime_ns=-2_999_999_997, are_chosen=True)


@pytest.mark.parametrize("more", [_SIZE, _ATIME_NOW, _CTIME, _KILL_SUIDGID])
def test_a_setattr_with_more_to_it_is_left_to_pyfuse3(more: int) -> None:
    assert wire_format.changes(setattr_in(_MODE | more)) is None


def test_a_setattr_that_changes_nothing_is_left_to_pyfuse3() -> None:
    assert wire_format.changes(setattr_in(_FH)) is None


class _Stat:
    """Attributes in which each number says what it is. The times are of 1969, of 2020 and of 2446, beyond 64 bits of ns."""

    st_ino, st_size, st_blocks = 1, 2**40 + 2, 3
    st_atime_ns, st_mtime_ns, st_ctime_ns = -1_500_000_000, 1_577_836_800_123_456_789, 15_000_000_000_987_654_321
    st_mode, st_nlink, st_uid, st_gid, st_rdev, st_blksize = 0o100640, 4, 5, 4_294_967_294, 6, 4096


_ATTRIBUTES = pack(
    "=QQQQQQIIIIIIIIII",
    *(77, 2**40 + 2, 3, 2**64 - 2, 1_577_836_800, 15_000_000_000, 500_000_000, 123_456_789, 987_654_321),
    *(0o100640, 4, 5, 4_294_967_294, 6, 4096, 0),
)


def test_attributes_for_a_time() -> None:
    assert wire_format.attributes(77, cast(Any, _Stat), 1.25) == pack("=QII", 1, 250_000_000, 0) + _ATTRIBUTES


def test_an_entry_for_a_time() -> None:
    head = pack("=QQQQII", 77, 0, 86_400, 86_400, 0, 0)
    assert wire_format.entry(77, cast(Any, _Stat), 86_400.0) == head + _ATTRIBUTES
    assert len(head + _ATTRIBUTES) == wire_format.ENTRY_BYTES


def test_attributes_of_a_real_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    os.utime(file, ns=(1_000_000_001, 2_000_000_002))
    stat = file_stat(str(file))
    times = (1, 2, stat.st_ctime_ns // 10**9, 1, 2, stat.st_ctime_ns % 10**9)
    numbers = (stat.st_mode, 1, stat.st_uid, stat.st_gid, 0, stat.st_blksize, 0)
    assert wire_format.attributes(9, stat, 0.0)[16:] == pack("=QQQQQQIIIIIIIIII", 9, 3, stat.st_blocks, *times, *numbers)


def test_attributes_that_lack_something_are_an_error() -> None:
    with pytest.raises(AttributeError, match="st_size"):
        wire_format.entry(1, cast(Any, object()), 0.0)


def test_what_statfs_tells() -> None:
    stats = os.statvfs_result((4096, 512, 100, 50, 40, 30, 20, 15, 0, 77))
    assert wire_format.file_system(stats) == pack("=QQQQQIIII6I", 100, 50, 40, 30, 20, 4096, 255, 512, 0, *[0] * 6)
