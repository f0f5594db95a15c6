"""A daemon's journal read from positions: whole lines, across a change of files, and the same batch twice."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from holdfast.errors import ConfigurationError
from holdfast.telemetry import EventLog
from holdfast_spark.datasource.journal import Position, events_between

OLDEST = Position()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


async def log(file: Path, max_bytes: int = 10**6) -> EventLog:
    await trio.lowlevel.checkpoint()
    return EventLog(lambda: 1.5, file, max_bytes)


def kinds(file: Path, start: Position = OLDEST, end: Position | None = None) -> list[str]:
    return [event.kind for event in events_between(file, start, end)[0]]


async def test_what_the_daemon_writes_is_read(file: Path) -> None:
    (await log(file)).emit("swept", zone="checkpoints", removed=3, ratio=0.5, whole=True)
    (event,), _ = events_between(file, OLDEST)
    assert (event.time, event.kind) == (1.5, "swept")
    assert event.fields == {"zone": "checkpoints", "removed": "3", "ratio": "0.5", "whole": "true"}


async def test_reading_goes_on_where_it_stopped_and_a_batch_can_be_read_again(file: Path) -> None:
    events = await log(file)
    events.emit("one")
    _, first = events_between(file, OLDEST)
    events.emit("two")
    events.emit("three")
    _, second = events_between(file, first)
    events.emit("four")
    assert kinds(file, first) == ["two", "three", "four"]
    assert kinds(file, first, second) == ["two", "three"]
    assert kinds(file, second) == ["four"]


async def test_a_change_of_files_loses_nothing(file: Path) -> None:
    events = await log(file, max_bytes=120)
    events.emit("one")
    _, position = events_between(file, OLDEST)
    while not file.with_suffix(".jsonl.1").exists():
        events.emit("filler")
    events.emit("last")
    found, end = events_between(file, position)
    assert [event.kind for event in found][-1] == "last"
    assert "one" not in [event.kind for event in found]
    assert kinds(file, position, end) == [event.kind for event in found]
    assert kinds(file)[0] == "one"
    assert kinds(file, Position(inode=1, offset=99)) == kinds(file), "what is older than both files is lost, the rest is not"


def test_half_a_line_waits_and_a_damaged_one_is_left_out(file: Path) -> None:
    file.write_text('{"time": 1, "kind": "whole"}\n\x00\x00\n{"kind": "no time"}\n{"time": 2, "ki')
    assert kinds(file) == ["whole"]
    _, position = events_between(file, OLDEST)
    with file.open("a") as stream:
        stream.write('nd": "rest"}\n')
    assert kinds(file, position) == ["rest"]


def test_no_journal_is_told_in_one_line(file: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no journal; it is events\.jsonl in the daemon's store"):
        events_between(file, OLDEST)
