"""The event journal, and the counters beside it."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from holdfast.telemetry import Counters, EventLog
from holdfast.telemetry import events as events_module
from tests.support.disks.mounts import mounted
from tests.support.users.privileges import needs_root


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        self.seconds += 1
        return self.seconds


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


@pytest.fixture
def events(file: Path) -> EventLog:
    return EventLog(Clock(), file, max_bytes=400)


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


# --- in memory --------------------------------------------------------------------------------------------------------


def test_events_have_numbers_times_and_fields(events: EventLog) -> None:
    events.emit("remote-down", store="blobs", problem="no answer")
    events.emit("evicted", bytes=5)
    first, second = events.since(0)
    assert (first.number, first.time, first.kind) == (1, 1001.0, "remote-down")
    assert first.fields == {"store": "blobs", "problem": "no answer"}
    assert first.text() == "remote-down store=blobs problem=no answer"
    assert events.since(1) == [second]
    assert events.since(2) == []


def test_only_the_last_events_are_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "_KEPT_IN_MEMORY", 3)
    events = EventLog(Clock())
    for _ in range(5):
        events.emit("x")
    assert [event.number for event in events.since(0)] == [3, 4, 5]


def test_the_text_of_an_event_is_one_line_whatever_is_in_it(events: EventLog) -> None:
    events.emit("quarantined", path="a\n2000-01-01 ERROR forged\x1b[31m\x85\u2028käse")
    text = events.since(0)[0].text()
    assert text == "quarantined path=a\\n2000-01-01 ERROR forged\\x1b[31m\\x85\\u2028käse"


@given(st.text(st.characters(exclude_categories=[])) | st.binary().map(os.fsdecode))
def test_any_file_name_can_be_told_of(name: str) -> None:
    events = EventLog(Clock())
    events.emit("quarantined", path=name)
    (event,) = events.since(0)
    assert msgspec.json.decode(msgspec.json.encode(event), type=type(event)) == event
    assert event.text().isprintable()


def test_a_name_that_is_not_utf8_is_shown_escaped(events: EventLog) -> None:
    events.emit("quarantined", path=os.fsdecode(b"work/\xff"))
    assert events.since(0)[0].fields == {"path": r"work/\udcff"}


def test_events_go_to_the_log_too(events: EventLog, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        events.emit("evicted", bytes=5)
    assert caplog.messages == ["evicted bytes=5"]


# --- waiting ----------------------------------------------------------------------------------------------------------


async def test_who_waits_is_woken_by_the_next_event(events: EventLog) -> None:
    seen: list[int] = []

    async def follow() -> None:
        number = 0
        while len(seen) < 3:
            await events.wait_beyond(number)
            for event in events.since(number):
                number = event.number
                seen.append(number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await wait_all_tasks_blocked()
        assert seen == []
        events.emit("a")
        await wait_all_tasks_blocked()
        assert seen == [1]
        events.emit("b")
        events.emit("c")
    assert seen == [1, 2, 3]


async def test_who_is_behind_does_not_wait(events: EventLog) -> None:
    events.emit("a")
    with trio.testing.assert_no_checkpoints():
        await events.wait_beyond(0)


async def test_who_waits_for_a_later_event_sleeps_through_earlier_ones(events: EventLog) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(events.wait_beyond, 2)
        for waiting in (1, 1, 1, 0):
            await wait_all_tasks_blocked()
            assert len(nursery.child_tasks) == waiting
            events.emit("x")


async def test_all_who_wait_are_woken(events: EventLog) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(events.wait_beyond, 0)
        await wait_all_tasks_blocked()
        events.emit("x")


# --- on the disk ------------------------------------------------------------------------------------------------------


def test_each_event_is_a_line_of_json(events: EventLog, file: Path) -> None:
    events.emit("remote-down", store="blobs", problem="line\nbreak")
    events.emit("evicted", bytes=5, all=True, share=0.5)
    assert lines(file) == [
        {"time": 1001.0, "kind": "remote-down", "store": "blobs", "problem": "line\nbreak"},
        {"time": 1002.0, "kind": "evicted", "bytes": 5, "all": True, "share": 0.5},
    ]
    assert file.stat().st_mode & 0o007 == 0


def test_a_field_does_not_take_the_place_of_the_time(events: EventLog, file: Path) -> None:
    events.emit("odd", time="noon")
    assert lines(file) == [{"time": 1001.0, "kind": "odd"}]


def test_a_full_file_becomes_the_old_one(events: EventLog, file: Path) -> None:
    old = file.with_name("events.jsonl.1")
    for number in range(100):
        events.emit("counted", number=number)
        size_bytes = sum(one.stat().st_size for one in (file, old) if one.exists())
        assert size_bytes < 2 * (400 + 100)
    kept = lines(old) + (lines(file) if file.exists() else [])
    numbers = [line["number"] for line in kept]
    assert numbers == list(range(100))[-len(numbers) :]
    assert len(numbers) >= 7
    assert sorted(os.listdir(file.parent)) in (["events.jsonl", "events.jsonl.1"], ["events.jsonl.1"])


def test_a_later_run_adds_to_the_file(events: EventLog, file: Path) -> None:
    events.emit("first")
    EventLog(Clock(), file).emit("second")
    assert [line["kind"] for line in lines(file)] == ["first", "second"]


def test_a_file_that_can_not_be_written_costs_no_event(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    events = EventLog(Clock(), tmp_path / "missing" / "events.jsonl")
    with caplog.at_level(logging.WARNING):
        events.emit("x")
    assert len(events.since(0)) == 1
    assert "can't write the event journal" in caplog.text


# --- counters ---------------------------------------------------------------------------------------------------------


@needs_root
def test_a_disk_that_gets_full_leaves_whole_lines(tmp_path: Path) -> None:
    with mounted("tmpfs", tmp_path / "disk", "-o", "size=8k") as disk:
        events = EventLog(Clock(), disk / "events.jsonl")
        for _ in range(100):
            events.emit("remote-down", problem="x" * 300)
        found = lines(disk / "events.jsonl")
        assert 10 < len(found) < 100
        assert {str(event["problem"]) for event in found} == {"x" * 300}


def test_counters_begin_at_zero_and_have_names() -> None:
    counters = Counters()
    counters.hits += 1
    counters.requests["GET"] += 2
    counted = counters.as_dict()
    assert counted["hits"] == 1
    assert counted["misses"] == 0
    assert counted["requests"] == {"GET": 2}
    counters.requests["GET"] += 1
    assert counted["requests"] == {"GET": 2}, "a copy"
    msgspec.json.encode(counted)


def test_counters_are_not_shared() -> None:
    Counters().requests["GET"] += 1
    assert Counters().requests == {}
