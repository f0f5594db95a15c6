"""Records of working directories: where the index has lost one, the directory's own is taken."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.index import Index, WorkdirRecord
from holdfast.store import Tree
from holdfast.workdirs.records import Records
from holdfast.zones import WorkdirName

PATH = b"work/worker_1"
NAME = WorkdirName.checked("worker", "1")
HELD = WorkdirRecord("worker", "1", 1.5, 2.5, pid=42, pid_started_ticks=77, command="java", acquisitions=3)
GOLDEN = b"boot\n" + bytes.fromhex(
    "99" + "a6776f726b6572" + "a131" + "cb3ff8000000000000" + "cb4004000000000000" + "cb0000000000000000"
    "2a" + "4d" + "a46a617661" + "03"
)


@pytest.fixture
def directory(disk: Path) -> Iterator[Path]:
    """A working directory on a real disk: tmpfs has no attributes of users before Linux 6.6."""
    path = disk / "unit-records" / os.fsdecode(PATH)
    path.mkdir(parents=True)
    yield path
    path.rmdir()


@pytest.fixture
def tree(directory: Path) -> Iterator[Tree]:
    fd = os.open(directory.parents[1], os.O_RDONLY | os.O_DIRECTORY)
    yield Tree(fd)
    os.close(fd)


def test_a_record_that_the_index_has_lost_is_the_directorys(index: Index, tree: Tree) -> None:
    records = Records(index.workdirs, tree, b"boot")
    records.put(PATH, HELD)
    records.discard(PATH)
    assert list(records.listed()) == []
    records.restore(PATH, NAME)
    assert list(records.listed()) == [(PATH, HELD)]


def test_the_index_counts_where_it_has_a_record(index: Index, tree: Tree) -> None:
    records = Records(index.workdirs, tree, b"boot")
    records.put(PATH, HELD)
    newer = WorkdirRecord("worker", "1", 1.5, 3.5)
    index.workdirs.put(PATH, newer)
    records.restore(PATH, NAME)
    assert records.get(PATH) == newer


def test_the_process_of_an_earlier_boot_holds_nothing(index: Index, tree: Tree) -> None:
    Records(index.workdirs, tree, b"boot").put(PATH, HELD)
    index.workdirs.discard(PATH)
    records = Records(index.workdirs, tree, b"next boot")
    records.restore(PATH, NAME)
    restored = records.get(PATH)
    assert restored is not None
    assert (restored.pid, restored.acquisitions) == (0, 3)


def test_a_directory_that_says_nothing_counts_as_released_now(index: Index, tree: Tree, directory: Path) -> None:
    records = Records(index.workdirs, tree, b"boot")
    for said in (None, b"", b"boot", b"boot\n\x92\xa1\xff"):
        index.workdirs.discard(PATH)
        if said is not None:
            os.setxattr(directory, "user.holdfast.workdir", said)
        records.restore(PATH, NAME)
        restored = records.get(PATH)
        assert restored is not None
        assert restored.pid == 0
        assert restored.released_seconds > 0


def test_the_bytes_on_a_directory_never_change(index: Index, tree: Tree, directory: Path) -> None:
    Records(index.workdirs, tree, b"boot").put(PATH, HELD)
    assert os.getxattr(directory, "user.holdfast.workdir") == GOLDEN


def test_a_directory_that_is_gone_keeps_no_record_from_being_written(index: Index, tree: Tree) -> None:
    records = Records(index.workdirs, tree, b"boot")
    records.put(b"work/worker_2", HELD)
    assert records.get(b"work/worker_2") == HELD
