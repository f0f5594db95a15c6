"""What outlives the daemon is right after every step, and refused when it is of somebody else."""

from __future__ import annotations

import array
import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.errors import ConfigurationError, SessionFullError, StoreInUseError, TakeoverError
from holdfast.session import (
    ExecutionMark,
    Identity,
    NodeRecord,
    OpenRecord,
    OpenTable,
    SessionArea,
    SessionRecords,
    version_mark,
)
from holdfast.system.file_id import NO_FILE, FileId
from tests.support.disks.mounts import mounted
from tests.support.users.privileges import needs_root

IDENTITY = Identity(mountpoint="/mnt/real", asked_for="/mnt/link", device=41, store="store-1")


@pytest.fixture
def area(tmp_path: Path) -> Iterator[SessionArea]:
    made = SessionArea.beside(tmp_path / "run/control.sock")
    made.begin()
    yield made
    made.end()


# --- area ------------------------------------------------------------------------------------------------------------


def test_an_area_lies_beside_its_socket(area: SessionArea, tmp_path: Path) -> None:
    assert area.directory == tmp_path / "run/control.session"
    assert area.directory.stat().st_mode & 0o777 == 0o700
    assert area.read() is None


def test_a_signed_area_says_whose_it_is(area: SessionArea) -> None:
    area.sign(IDENTITY)
    assert area.read() == IDENTITY
    assert SessionArea(area.directory).read() == IDENTITY


def test_a_disowned_area_counts_for_nothing(area: SessionArea) -> None:
    area.sign(IDENTITY)
    area.disown()
    assert area.read() is None


@pytest.mark.parametrize(
    "text", ["", "{", '{"format": 1}', '{"mountpoint":"/m","asked_for":"/m","device":1,"store":"s","format":3}']
)
def test_an_area_of_another_version_is_refused(text: str, area: SessionArea) -> None:
    (area.directory / "mount").write_text(text)
    with pytest.raises(TakeoverError, match=r"another version, or damaged"):
        area.read()


def test_an_area_of_the_version_before_is_gone_on_with_and_then_refused_there(area: SessionArea) -> None:
    """By what that version reads: its number is 1."""
    before = msgspec.structs.replace(IDENTITY, format=1)
    area.sign(before)
    assert area.read() == before
    area.sign_anew(before)
    assert area.read() == IDENTITY
    assert json.loads((area.directory / "mount").read_bytes())["format"] == 2


def test_what_was_left_unsigned_counts_for_nothing(area: SessionArea) -> None:
    tables = area.open_tables()
    tables.opens.count(tables.opens.add(7, 1, writes=True, exclusive=False, uid=0), 1, 5)
    tables.close()
    assert area.read() is None
    area.begin()
    tables = area.open_tables()
    assert list(tables.opens.records()) == []
    tables.close()


@pytest.mark.promise("one-daemon")
def test_an_area_belongs_to_one_daemon(area: SessionArea) -> None:
    area.open_tables().close()
    area.sign(IDENTITY)
    other = SessionArea(area.directory)
    with pytest.raises(StoreInUseError, match="--socket"):
        other.claim()
    with pytest.raises(StoreInUseError, match="--socket"):
        other.begin()
    assert area.read() == IDENTITY
    assert (area.directory / "opens").exists()
    area.end()
    other.claim()
    other.begin()
    with pytest.raises(StoreInUseError, match="--socket"):
        SessionArea(area.directory).claim()
    other.end()


def test_an_area_that_ends_leaves_nothing(area: SessionArea) -> None:
    area.open_tables().close()
    area.sign(IDENTITY)
    area.end()
    assert not area.directory.exists()
    area.end()


def test_a_place_where_no_area_can_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"control\.socket: .*file/control\.session"):
        SessionArea.beside(tmp_path / "file/control.sock").begin()


# --- open files ------------------------------------------------------------------------------------------------------


def test_open_files_are_found_again(tmp_path: Path) -> None:
    table = OpenTable(tmp_path / "opens")
    first = table.add(7, 3, writes=False, exclusive=True, uid=2**32 - 2)
    second = table.add(8, 0, writes=True, exclusive=False, uid=0)
    table.count(first, 2, 100)
    table.count(first, -1, 101)
    table.note_writes(first)
    table.count_programs(first, 2)
    table.count_programs(first, -1)
    table.note_version(second, version_mark("etag"))
    table.close()
    table = OpenTable(tmp_path / "opens")
    mark = version_mark("etag")
    assert mark not in (0, version_mark("another"))
    assert list(table.records()) == [
        OpenRecord(first, 7, 1, 3, True, True, uid=2**32 - 2, programs=1, may_be_unanswered=True),
        OpenRecord(second, 8, 0, 0, True, False, mark),
    ]
    assert table.numbers() == {101}
    table.close()


def test_a_freed_slot_is_used_again_and_keeps_its_number_until_then(tmp_path: Path) -> None:
    table = OpenTable(tmp_path / "opens")
    slot = table.add(7, 3, writes=True, exclusive=True, uid=0)
    table.count(slot, 1, 100)
    table.count(slot, -1, 101)
    table.free(slot)
    assert list(table.records()) == []
    assert table.numbers() == {101}
    assert table.add(9, 0, writes=False, exclusive=False, uid=0) == slot
    assert list(table.records()) == [OpenRecord(slot, 9, 0, 0, False, False)]
    assert table.numbers() == set()
    table.close()


def test_only_the_request_that_was_counted_last_may_be_unanswered(tmp_path: Path) -> None:
    table = OpenTable(tmp_path / "opens")
    slots = [table.add(node_id, 0, writes=False, exclusive=False, uid=0) for node_id in (7, 8)]
    for number, slot in enumerate(slots, 100):
        table.count(slot, 1, number)
    assert [record.may_be_unanswered for record in table.records()] == [False, True]
    table.count(slots[0], -1, 102)
    assert [record.may_be_unanswered for record in table.records()] == [True, False]
    assert [table.clear(slot) for slot in slots] == [0, 1]
    assert [(record.handles, record.may_be_unanswered) for record in table.records()] == [(0, True), (0, False)]
    table.close()


def test_the_table_grows_and_keeps_what_is_in_it(tmp_path: Path) -> None:
    table = OpenTable(tmp_path / "opens")
    slots = [table.add(node_id, 0, writes=False, exclusive=False, uid=0) for node_id in range(1, 3001)]
    assert len(set(slots)) == 3000
    table.close()
    table = OpenTable(tmp_path / "opens")
    assert {record.slot: record.node_id for record in table.records()} == dict(zip(slots, range(1, 3001), strict=True))
    table.close()


@needs_root
def test_a_table_that_can_not_grow_goes_on_with_what_it_has(tmp_path: Path) -> None:
    with mounted("tmpfs", tmp_path / "small", "-o", "size=128k") as small:
        table = OpenTable(small / "opens")
        ballast = small / "ballast"
        ballast.write_bytes(bytes(64 * 1024))
        slots = [table.add(node_id, 0, writes=False, exclusive=False, uid=0) for node_id in range(1, 1025)]
        with pytest.raises(OSError, match="No space left"):
            table.add(1025, 0, writes=False, exclusive=False, uid=0)
        table.count(slots[0], 1, 5)
        assert sum(record.handles for record in table.records()) == 1
        ballast.unlink()
        assert table.add(1025, 0, writes=False, exclusive=False, uid=0) not in slots
        assert len(list(table.records())) == 1025
        table.close()


def test_a_table_without_users_is_read_and_has_them_from_then_on(tmp_path: Path) -> None:
    slots = [7, 2 << 40 | 100, 3 | 1 << 32], [0, 1 << 40 | 101, 5], [8, 3 << 40 | 102, 0]
    words = [int.from_bytes(b"HFOPENS1", "little"), 0, 0, *itertools.chain(*slots)]
    (tmp_path / "opens").write_bytes(array.array("Q", words).tobytes())
    table = OpenTable(tmp_path / "opens")
    found = [
        OpenRecord(1, 7, 2, 3, True, False, may_be_unanswered=True),
        OpenRecord(3, 8, 3, 0, False, False, may_be_unanswered=True),
    ]
    assert list(table.records()) == found
    assert table.numbers() == {100, 101, 102}
    slot = table.add(9, 0, writes=False, exclusive=False, uid=5)
    table.close()
    table = OpenTable(tmp_path / "opens")
    added = OpenRecord(slot, 9, 0, 0, False, False, uid=5, may_be_unanswered=True)
    assert sorted(table.records(), key=lambda record: record.slot) == sorted([*found, added], key=lambda record: record.slot)
    table.close()
    assert os.listdir(tmp_path) == ["opens"]


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "opens").write_bytes(bytes(48))
    with pytest.raises(TakeoverError, match="no table of open files"):
        OpenTable(tmp_path / "opens")


# --- records ---------------------------------------------------------------------------------------------------------


def test_records_are_found_again(tmp_path: Path) -> None:
    records = SessionRecords(tmp_path / "records")
    kept, dropped = NodeRecord(NO_FILE, True, 1, b"name"), NodeRecord(FileId(12), False, 0, b"")
    records.keep(2**63, kept)
    records.keep(11, dropped)
    records.drop(11)
    records.drop(12)
    records.note(100, b"text")
    records.add_numbers([5, 6])
    records.close()
    records = SessionRecords(tmp_path / "records")
    assert list(records.nodes()) == [(2**63, kept)]
    assert (records.noted(100), records.noted(101)) == (b"text", None)
    assert records.numbers() == {5, 6}
    records.drop(2**63)
    assert list(records.nodes()) == []
    records.close()


def test_the_oldest_notes_go_when_there_are_more_than_requests(tmp_path: Path) -> None:
    records = SessionRecords(tmp_path / "records")
    for number in range(5000):
        records.note(number)
    assert records.noted(0) is None
    assert records.noted(4999) == b""
    records.close()


@needs_root
def test_records_that_find_no_room_are_told_apart_from_faults(tmp_path: Path) -> None:
    with mounted("tmpfs", tmp_path / "small", "-o", "size=256k") as small:
        records = SessionRecords(small / "records")
        kept = NodeRecord(NO_FILE, False, 1, b"x" * 255)

        def keep_many() -> None:
            for node_id in range(10_000):
                records.keep(node_id, kept)

        with pytest.raises(SessionFullError, match="free some in it"):
            keep_many()
        assert next(iter(records.nodes())) == (0, kept)
        records.close()


def test_records_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "records/data.mdb").write_bytes(b"of another program" * 1000)
    with pytest.raises(TakeoverError, match="can't be read"):
        SessionRecords(tmp_path / "records")


# --- the request that is executed --------------------------------------------------------------------------------------


@pytest.fixture
def ended_during(tmp_path: Path) -> Callable[..., list[int]]:
    """To call: a daemon ends while it executes the request; returns what the next one refuses."""

    def end(number: int, *, hung: bool = False) -> list[int]:
        mark = ExecutionMark(tmp_path / "executed")
        mark.word[0] = number
        mark.close()
        following = ExecutionMark(tmp_path / "executed")
        following.count_end(hung=hung)
        assert following.word[0] == 0
        refused = following.refused()
        following.close()
        return refused

    return end


def test_a_request_in_which_a_daemon_hung_is_refused(ended_during: Callable[..., list[int]]) -> None:
    assert ended_during(40, hung=True) == [40]
    assert ended_during(0, hung=True) == [40]


def test_a_request_is_refused_when_three_daemons_have_ended_during_it(ended_during: Callable[..., list[int]]) -> None:
    found = [ended_during(number) for number in (40, 42, 40, 0, 40, 42)]
    assert found == [[], [], [], [], [40], [40]]


def test_the_oldest_requests_are_no_longer_refused_when_there_is_no_room(ended_during: Callable[..., list[int]]) -> None:
    for number in range(2, 602, 2):
        refused = ended_during(number, hung=True)
    assert len(refused) == 255
    assert set(refused) == set(range(92, 602, 2))


def test_a_mark_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "executed").write_bytes(b"another one".ljust(4096, b"."))
    with pytest.raises(TakeoverError, match="no mark of an executed request"):
        ExecutionMark(tmp_path / "executed")
