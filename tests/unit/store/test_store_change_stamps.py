"""Stamps: a write after one is always seen, whatever the clock of the file system."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store import Stamps, stamp_of


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


def tried(directory: Path) -> Stamps:
    directory_fd = os.open(directory, os.O_RDONLY)
    try:
        return Stamps.tried(directory_fd)
    finally:
        os.close(directory_fd)


@pytest.mark.parametrize("coarse", [False, True])
def test_a_write_changes_what_was_taken_before_it(tmp_path: Path, fd: int, coarse: bool) -> None:
    stamps = Stamps(are_fine=False) if coarse else tried(tmp_path)
    for _ in range(1000):
        os.pwrite(fd, b"1", 0)
        taken = stamps.take(fd)
        assert stamp_of(os.fstat(fd)) == taken
        os.pwrite(fd, b"2", 0)
        assert stamp_of(os.fstat(fd)) != taken


def test_an_empty_file_that_is_about_to_be_written_keeps_its_time(fd: int) -> None:
    stamps = Stamps(are_fine=False)
    os.pwrite(fd, b"1", 0)
    os.truncate(fd, 0)
    taken = stamps.take_before_writes(fd)
    assert taken == stamp_of(os.fstat(fd))
    os.pwrite(fd, b"2", 0)
    written = os.fstat(fd)
    assert stamp_of(written) != taken
    assert written.st_mtime_ns >= taken[1]
    assert stamps.take_before_writes(fd)[1] < written.st_mtime_ns, "bytes, and the present tick: the next write must show"


@pytest.mark.parametrize("mtime_ns", [5, 1 << 62])
def test_a_time_that_no_write_gives_stays(fd: int, mtime_ns: int) -> None:
    os.utime(fd, ns=(0, mtime_ns))
    before = os.fstat(fd)
    Stamps(are_fine=False).take(fd)
    assert os.fstat(fd).st_mtime_ns == before.st_mtime_ns


def test_two_stamps_in_one_tick_differ(fd: int) -> None:
    stamps = Stamps(are_fine=False)
    taken = []
    for _ in range(20):
        os.pwrite(fd, b"1", 0)
        taken.append(stamps.take(fd))
    assert len(set(taken)) == len(taken)


def test_where_it_can_not_be_tried_the_worse_is_assumed(tmp_path: Path, fd: int) -> None:
    assert not Stamps.tried(fd).are_fine
    assert tried(tmp_path).take(fd) == stamp_of(os.fstat(fd))
