"""Entries of backing directories, as the C module makes READDIR's replies of them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.fs.fuse import wire_format
from holdfast.kernel.native_module import NATIVE_MODULE
from holdfast.system.file_id import FileId
from tests.support.disks.mounts import mounted

_KIND = slice(20, 24)
_PAGE = 4096
_LONGEST_ENTRY = 280
_NAMES = st.sets(st.binary(min_size=1, max_size=255).filter(lambda name: not {0, ord("/")} & set(name)), max_size=40)
_DOTS = {b".", b".."}


@contextmanager
def opened(directory: Path) -> Iterator[int]:
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def entries(
    fd: int, size: int, others: dict[FileId, int] | None = None, position: int = 0
) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, inode number and position of all entries, read in replies of at most ``size`` bytes."""
    assert NATIVE_MODULE.entries(fd, position, size, {}) is not None
    while body := NATIVE_MODULE.entries(fd, position, size, others or {}):
        assert len(body) <= size
        for name, entry in wire_format.directory_entries(body):
            assert len(entry) % 8 == 0
            inode, position = (int.from_bytes(entry[at : at + 8], "little") for at in (0, 8))
            yield name, inode, position


@given(_NAMES.filter(lambda names: not names & _DOTS), st.integers(min_value=_LONGEST_ENTRY, max_value=_PAGE))
def test_every_name_is_told_once_with_its_number(disk: Path, names: set[bytes], size: int) -> None:
    with tempfile.TemporaryDirectory(dir=disk) as directory, opened(Path(directory)) as fd:
        for name in names:
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        found = list(entries(fd, size))
        told = {name: inode for name, inode, _ in found}
        assert len(told) == len(found)
        assert told == {name: os.stat(name, dir_fd=fd).st_ino for name in names | _DOTS}


def test_a_reading_goes_on_after_any_entry(workspace: Path) -> None:
    for number in range(200):
        (workspace / f"{number}").touch()
    with opened(workspace) as fd, opened(workspace) as another:
        whole = list(entries(fd, _PAGE))
        assert len(whole) == 200 + len(_DOTS)
        for index in range(0, len(whole), 17):
            assert list(entries(another, _PAGE, position=whole[index][2])) == whole[index + 1 :]


def test_a_reading_that_began_at_the_end_begins_anew_at_the_start(workspace: Path) -> None:
    """ext4 forgets to, for a descriptor that was first read at its end (Linux 6.18)."""
    (workspace / "file").touch()
    with opened(workspace) as fd, opened(workspace) as another:
        end = list(entries(fd, _PAGE))[-1][2]
        assert list(entries(another, _PAGE, position=end)) == []
        assert {name for name, _, _ in entries(another, _PAGE)} == {b"file"} | _DOTS


def test_numbers_are_told_as_asked(workspace: Path) -> None:
    (workspace / "other").touch()
    (workspace / "same").touch()
    numbers = {name: FileId((workspace / name).stat().st_ino) for name in ("other", "same", "..")}
    with opened(workspace) as fd:
        told = {name: inode for name, inode, _ in entries(fd, _PAGE, {numbers["other"]: 2**64 - 1, numbers[".."]: 1})}
    assert (told[b"other"], told[b"same"], told[b".."]) == (2**64 - 1, numbers["same"], 1)


def test_kinds_are_those_of_the_files(workspace: Path) -> None:
    (workspace / "file").touch()
    (workspace / "link").symlink_to("file")
    os.mkfifo(workspace / "fifo")
    with opened(workspace) as fd:
        body = NATIVE_MODULE.entries(fd, 0, _PAGE, {}) or b""
    kinds = {name: int.from_bytes(entry[_KIND], "little") for name, entry in wire_format.directory_entries(body)}
    assert kinds == {b".": 4, b"..": 4, b"file": 8, b"link": 10, b"fifo": 1}


def test_a_file_system_whose_offsets_may_not_last_is_not_read(workspace: Path) -> None:
    with mounted("tmpfs", workspace) as directory, opened(directory) as fd:
        assert NATIVE_MODULE.entries(fd, 0, _PAGE, {}) is None


def test_a_number_that_is_none_is_an_error(workspace: Path) -> None:
    (workspace / "file").touch()
    with opened(workspace) as fd, pytest.raises(OverflowError):
        NATIVE_MODULE.entries(fd, 0, _PAGE, {FileId((workspace / "file").stat().st_ino): 2**64})


@pytest.mark.parametrize("position", [2**63, 2**64 - 1])
def test_a_position_that_is_none_is_an_error(workspace: Path, position: int) -> None:
    with opened(workspace) as fd, pytest.raises(OSError, match="Invalid argument"):
        NATIVE_MODULE.entries(fd, position, _PAGE, {})
