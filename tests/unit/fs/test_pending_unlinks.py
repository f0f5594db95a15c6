"""For how long the kernel may be about to finish a removal, and what a next daemon knows of those of an earlier one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import TakeoverError
from holdfast.fs.inodes.pending_unlinks import PendingUnlinks, RecentInodes
from holdfast.session import UnlinkTable
from holdfast.system.file_id import FileId


class Clock:
    """Seconds, as a test sets them."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(tmp_path: Path) -> Iterator[UnlinkTable]:
    made = UnlinkTable(tmp_path / "removals")
    yield made
    made.close()


def test_an_inode_stays_for_some_seconds_after_it_was_added_last(clock: Clock) -> None:
    recent = RecentInodes(clock)
    assert 1 not in recent
    recent.add(1)
    clock.now += 1
    recent.add(2)
    assert 1 in recent
    assert 3 not in recent
    clock.now += 8
    recent.add(1)
    clock.now += 5
    assert 1 in recent
    assert 2 not in recent
    recent.discard(1)
    recent.discard(2)
    assert 1 not in recent


def test_however_many_expire_at_once_few_go_at_a_time(clock: Clock) -> None:
    """The event loop would stop for as long as it takes to remove a hundred thousand."""
    recent = RecentInodes(clock)
    for inode in range(1000):
        recent.add(inode)
    clock.now += 11
    recent.add(1000)
    assert len(recent.candidates) == 1000 - 2 + 1
    assert [inode in recent for inode in (0, 999, 1000)] == [False, False, True]
    for inode in range(1001, 2000):
        recent.add(inode)
    assert set(recent.candidates) == set(range(1000, 2000))


def test_a_file_with_other_names_loses_one(table: UnlinkTable, clock: Clock) -> None:
    removals = PendingUnlinks(table, clock)
    removals.begin(FileId(1), is_last=False)
    removals.begin(FileId(2), is_last=True)
    assert [inode in removals.losing for inode in (1, 2)] == [True, False]


def test_the_next_daemon_knows_what_was_begun_and_what_of_it_was_not_done(tmp_path: Path, clock: Clock) -> None:
    table = UnlinkTable(tmp_path / "removals")
    removals = PendingUnlinks(table, clock)
    for inode, is_last in ((1, False), (2, True), (3, True)):
        removals.begin(FileId(inode), is_last=is_last)
    table.close()
    table = UnlinkTable(tmp_path / "removals")
    removals = PendingUnlinks(table, clock)
    removals.inherit({FileId(1), FileId(3)})
    assert [inode for inode in range(1, 4) if inode in removals.losing] == [1]
    assert [inode for inode in range(1, 4) if inode in removals.gone] == [2]
    table.close()


def test_the_table_keeps_the_latest_over_daemons(tmp_path: Path) -> None:
    for begin in range(0, 900, 300):
        table = UnlinkTable(tmp_path / "removals")
        for inode in range(begin, begin + 300):
            table.note(FileId(inode + 1), is_last=bool(inode % 2))
        table.close()
    table = UnlinkTable(tmp_path / "removals")
    assert sorted(table.records()) == [(inode + 1, bool(inode % 2)) for inode in range(390, 900)]
    table.close()


def test_a_table_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "removals").write_bytes(b"something else")
    with pytest.raises(TakeoverError, match="no table of removals"):
        UnlinkTable(tmp_path / "removals")
