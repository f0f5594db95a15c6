"""The directories on another disk are read within a deadline when the daemon starts."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store import OtherDisk, disk_directories
from holdfast.store.disk_directories import directories, is_empty
from holdfast.store.disk_inspection import PARTITIONS


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[OtherDisk]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield OtherDisk(1, "id", tmp_path, "/", -1, {PARTITIONS: fd})
    os.close(fd)


def test_all_that_are_there_are_found_with_their_paths(disk: OtherDisk, tmp_path: Path) -> None:
    made = {b"%d" % number: b"checkpoints/q/state/0/%d" % number for number in range(250)}
    for name, path in made.items():
        (tmp_path / os.fsdecode(name)).mkdir()
        os.setxattr(tmp_path / os.fsdecode(name), "user.holdfast.place", path)
    (tmp_path / "of-no-path").mkdir()
    found = directories(disk, PARTITIONS)
    assert {name: path for name, path, _ in found} == {**made, b"of-no-path": None}
    assert all(os.path.samestat(stat, os.stat(tmp_path / os.fsdecode(name))) for name, _, stat in found)


def test_a_disk_that_stalls_on_one_directory_is_not_waited_for(
    disk: OtherDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stalls").mkdir()
    never = threading.Event()

    def stalls(*_: object) -> None:
        never.wait()

    monkeypatch.setattr(disk, "place_of", stalls)
    monkeypatch.setattr(disk_directories, "PATIENCE_SECONDS", 0.01)
    with pytest.raises(OSError, match="it has not answered") as raised:
        directories(disk, PARTITIONS)
    assert raised.value.errno == errno.ETIMEDOUT
    never.set()


def test_what_can_not_be_read_is_not_taken_for_empty(disk: OtherDisk, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full/deep").mkdir(parents=True)
    (tmp_path / "file").touch()
    assert [is_empty(disk, name, PARTITIONS) for name in (b"empty", b"full", b"file", b"gone")] == [
        True,
        False,
        False,
        False,
    ]
