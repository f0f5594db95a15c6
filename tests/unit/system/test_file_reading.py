"""Reads where the kernel takes the inode's lock for each of them, as XFS does, and a user may hold it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.digest import fingerprint_of_buffer, fingerprint_of_file
from holdfast.system import file_reading
from holdfast.system.file_reading import FileReader, ask_for, reading
from tests.support.disks.mounts import mounted_image

BYTES = os.urandom(300_000)
Preadv = Callable[..., int]
_real_preadv = os.preadv


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    """A file with ``BYTES``."""
    (tmp_path / "file").write_bytes(BYTES)
    fd = os.open(tmp_path / "file", os.O_RDWR)
    yield fd
    os.close(fd)


def refusing(number: int, times: float) -> Preadv:
    """Return a preadv(2) whose first reads that may not wait fail; 0: they find nothing, as on XFS in Linux 5.9 and 5.10."""
    left = [times]

    def preadv(fd: int, buffers: list[Any], offset: int, flags: int = 0) -> int:
        if flags & os.RWF_NOWAIT and left[0] > 0:
            left[0] -= 1
            if number:
                raise OSError(number, os.strerror(number))
            return 0
        return _real_preadv(fd, buffers, offset, flags)

    return preadv


@pytest.fixture(autouse=True)
def locked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_reading, "locks_reads", lambda _: True)
    monkeypatch.setattr(file_reading, "PATIENCE_SECONDS", 0.2)


@pytest.mark.parametrize("number", [0, errno.EAGAIN, errno.EOPNOTSUPP])
@pytest.mark.parametrize("times", [0, 1, 5])
def test_all_bytes_are_read_whatever_is_in_memory(fd: int, monkeypatch: pytest.MonkeyPatch, number: int, times: int) -> None:
    monkeypatch.setattr(os, "preadv", refusing(number, times))
    assert fingerprint_of_file(fd) == fingerprint_of_buffer(BYTES)
    monkeypatch.setattr(os, "preadv", refusing(number, times))
    assert FileReader(fd).read(1000, 299_500) == BYTES[299_500:]
    monkeypatch.setattr(os, "preadv", refusing(number, times))
    with reading(os.dup(fd)) as file:
        assert file.read(10) == BYTES[:10]
        file.seek(-5, os.SEEK_END)
        assert file.read() == BYTES[-5:]
        assert file.tell() == len(BYTES)


@pytest.mark.parametrize("number", [0, errno.EAGAIN])
def test_a_file_that_is_held_is_busy(fd: int, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(os, "preadv", refusing(number, float("inf")))
    for read in (lambda: fingerprint_of_file(fd), lambda: FileReader(fd).read(10, 0), lambda: reading(os.dup(fd)).read()):
        with pytest.raises(OSError, match="has held the lock of the file") as problem:
            read()
        assert problem.value.errno == errno.EBUSY
    ask_for(fd, 0, 1000)


def test_whoever_waits_for_a_lock_can_be_cancelled(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_reading, "PATIENCE_SECONDS", float("inf"))
    monkeypatch.setattr(os, "preadv", refusing(errno.EAGAIN, float("inf")))
    with pytest.raises(KeyboardInterrupt):
        fingerprint_of_file(fd, may_go_on=_cancelled)


def _cancelled() -> None:
    raise KeyboardInterrupt


def test_a_file_that_is_cut_while_it_is_read_ends_there(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    preadv = refusing(errno.EAGAIN, 1)

    def cut(*arguments: Any) -> int:
        os.ftruncate(fd, 10)
        return preadv(*arguments)

    monkeypatch.setattr(os, "preadv", cut)
    assert FileReader(fd).read(1000, 200_000) == b""


def test_a_file_on_xfs_that_is_not_in_memory_is_read(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with mounted_image("xfs", workspace / "disk", 320 * 2**20) as disk:
        content = os.urandom(5_000_001)
        (disk / "file").write_bytes(content)
        fd = os.open(disk / "file", os.O_RDWR)
        os.ftruncate(fd, 6_000_000)  # with a hole
        os.fsync(fd)
        assert file_reading.locks_reads(fd)
        for _ in range(2):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            ask_for(fd, 5_900_000, 2**17)
            assert fingerprint_of_file(fd) == fingerprint_of_buffer(content + bytes(999_999))
        with reading(fd) as file:
            assert file.read() == content + bytes(999_999)
