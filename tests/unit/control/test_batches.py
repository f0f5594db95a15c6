"""Batches of streaming queries: what drivers report, what is kept of it, and that no query ever waits for it."""

from __future__ import annotations

import json
import threading

import pytest

from holdfast.cli.observing import line
from holdfast.control.batches import Batches
from holdfast.control.messages import BatchReport
from holdfast.telemetry import Counters, EventLog
from holdfast_spark.batch_queue import BatchQueue, report_of

ALICE, MALLORY = 60_001, 60_666


def report(batch: int, *, query: str = "flights", run: str = "run 1", milliseconds: float = 9000) -> BatchReport:
    return BatchReport(query=query, run=run, batch=batch, milliseconds=milliseconds, rows=7, parts={"addBatch": 8000.0})


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture
def events() -> EventLog:
    return EventLog(lambda: 1000.0)


@pytest.fixture
def batches(counters: Counters, events: EventLog) -> Batches:
    return Batches(counters, events, lambda: 1000.0)


def test_a_batch_is_told_with_what_was_done_since_the_one_before(
    batches: Batches, counters: Counters, events: EventLog
) -> None:
    counters.misses = 5  # before the query began
    batches.report(ALICE, report(-1))
    counters.misses, counters.hits, counters.bytes_fetched = 19, 3, 310_000_000
    batches.report(ALICE, report(812))
    batches.report(ALICE, report(813))
    first, second = batches.since(0, None)
    assert (first.uid, first.batch, first.seconds, first.misses, first.hits) == (ALICE, 812, 9.0, 14, 3)
    assert (second.batch, second.misses, second.fetched_bytes) == (813, 0, 0)
    assert "batch 812 took 9.0 s (addBatch 8.0 s): 14 misses, 3 hits, 295.6 MiB from the stores" in line(first)
    told = [event.fields for event in events.since(0)]
    assert [(each["query"], each["batch"], each["misses"], each["uid"]) for each in told] == [
        ("flights", 812, 14, ALICE),
        ("flights", 813, 0, ALICE),
    ]


def test_a_user_reports_for_itself_alone(batches: Batches, counters: Counters) -> None:
    batches.report(ALICE, report(-1))
    counters.misses = 10
    batches.report(MALLORY, report(5))  # the same run, to have its counts begin anew
    batches.report(ALICE, report(6))
    found = list(batches.since(0, None))
    assert [(each.uid, each.batch, each.misses) for each in found] == [(MALLORY, 5, 0), (ALICE, 6, 10)]
    told = [line(each).split("  ")[1].partition(":")[0] for each in found]
    assert told == [f"flights (user {MALLORY})", f"flights (user {ALICE})"]


def test_who_reports_without_end_is_bounded_and_leaves_the_others_theirs(batches: Batches, events: EventLog) -> None:
    batches.report(ALICE, report(1))
    for number in range(3000):
        batches.report(MALLORY, report(number, run=f"run {number}"))
    kept = list(batches.since(0, None))
    assert (kept[0].uid, len(kept)) == (ALICE, 501)
    assert len(events.since(0)) <= 102


def test_batches_of_one_query_are_found_by_its_name(batches: Batches) -> None:
    batches.report(ALICE, report(1, query="a"))
    batches.report(ALICE, report(1, query="b"))
    assert [each.query for each in batches.since(0, "b")] == ["b"]
    assert list(batches.since(2, None)) == []


def progress(batch: int) -> str:
    state = {"commitTimeMs": 40, "customMetrics": {"rocksdbLoadLatencyMs": 25}}
    found = {
        "name": "flights",
        "id": "id",
        "runId": "run 1",
        "batchId": batch,
        "batchDuration": 9000,
        "numInputRows": 7,
        "durationMs": {"addBatch": 8000, "triggerExecution": 9000},
        "stateOperators": [state, state],
    }
    return json.dumps(found)


def test_batches_are_reported_with_their_parts_and_state_stores() -> None:
    sent: list[BatchReport] = []
    reports = BatchQueue(sent.append)
    reports.started("flights", "run 1")
    reports.progressed(progress(812))
    reports.finish(60)
    started, batch = sent
    assert (started.batch, started.query) == (-1, "flights")
    assert (batch.batch, batch.milliseconds, batch.rows) == (812, 9000, 7)
    assert batch.parts == {"addBatch": 8000, "triggerExecution": 9000}
    assert (batch.load_milliseconds, batch.commit_milliseconds) == (50, 80)


def test_a_spark_that_writes_no_duration_of_a_batch_has_it_among_the_parts() -> None:
    of_spark_3 = json.loads(progress(812))
    del of_spark_3["batchDuration"]
    assert report_of(of_spark_3).milliseconds == 9000


def test_a_daemon_that_does_not_answer_holds_no_query_up_and_takes_no_memory() -> None:
    asked, may_answer = threading.Event(), threading.Event()
    sent: list[int] = []

    def answer_late(report: BatchReport) -> None:
        asked.set()
        assert may_answer.wait(60)
        sent.append(report.batch)

    reports = BatchQueue(answer_late)
    reports.progressed(progress(0))
    assert asked.wait(60)
    for number in range(1, 10_000):
        reports.progressed(progress(number))  # returns at once, or the test would never end
    may_answer.set()
    reports.finish(60)
    assert sent == [0, *range(9900, 10_000)]


def test_a_daemon_that_is_gone_is_told_of_once_and_nothing_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    def fail(report: BatchReport) -> None:
        raise OSError("there is no daemon")

    reports = BatchQueue(fail)
    with caplog.at_level("WARNING", "holdfast.batches"):
        for number in range(10):
            reports.progressed(progress(number))
        reports.finish(60)
        reports.progressed("{}")  # of a Spark with other fields
    assert [record.getMessage() for record in caplog.records] == ["the daemon is not told of batches: there is no daemon"]
