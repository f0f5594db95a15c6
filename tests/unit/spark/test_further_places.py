"""Tasks whose executor is lost go to their own node, if it has another executor, else to whoever has the state."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

import pytest

from holdfast_spark.placement.assignment import Held, places_with_state
from holdfast_spark.placement.driver import Driver, Executor, FurtherPlaces, words_of_further_places
from holdfast_spark.placement.further_places import NOWHERE, FurtherPlacesOfRuns, seconds_to_wait

QUERY = Path("/mnt/q")
EXECUTORS = [Executor("1", "10.88.0.2", 1, "node-b"), Executor("0", "h1", 1)]
COUNTS = {2, 1}
PLACED = ["h1", "node-b"]
COPY = {0: {"h1": Held(7, 100, ran_last=True), "node-b": Held(7, 100, missing_bytes=0)}}


def test_the_nodes_with_most_of_the_state_come_first_after_its_own() -> None:
    holders = {
        "own": Held(8, 90, ran_last=True),
        "standby": Held(8, 100, missing_bytes=0),
        "behind": Held(8, 95, missing_bytes=5),
        "earlier": Held(3, 80),
        "stranger": Held(8, 4),
    }
    assert places_with_state(holders, "own") == ["own", "standby", "behind", "earlier"]


def test_who_holds_nothing_is_no_place_to_go_on() -> None:
    assert places_with_state({}, "own") == ["own"]
    assert places_with_state({"empty": Held(0, 0)}, None) == []


def test_the_words_name_executors_and_then_each_partitions_places() -> None:
    further = FurtherPlaces(EXECUTORS, [1, 2], [["h1", "node-b"], ["node-b"]], 3)
    words = list(words_of_further_places("run", further))
    assert words[:5] == ["run", "3000", "2", "1", "2"]
    assert words[5:12] == ["2", "node-b", "10.88.0.2", "1", "h1", "h1", "0"]
    assert words[12:] == ["2", "h1", "node-b", "1", "node-b"]


@pytest.mark.parametrize(
    ("sizes_bytes", "seconds"),
    [
        ([], 0),
        ([15 * 2**20], 0),
        ([2**20, 256 * 2**20], 16),
        ([2**40], 30),
    ],
)
def test_the_more_state_a_partition_has_where_it_belongs_the_longer_its_task_waits(
    sizes_bytes: list[int], seconds: int
) -> None:
    placed = ["h1"] * len(sizes_bytes)
    held = {partition: {"h1": Held(7, size), "h2": Held(7, 2**50)} for partition, size in enumerate(sizes_bytes)}
    assert seconds_to_wait(placed, held) == seconds


def test_nobody_waits_for_an_executor_that_would_fetch_as_well() -> None:
    assert seconds_to_wait(["h1"], {0: {"h2": Held(7, 2**40)}}) == 0


class ListeningDriver:
    """A driver that keeps what it is told, by run, and refuses if it should."""

    def __init__(self) -> None:
        self.told: list[tuple[str, FurtherPlaces]] = []
        self.refuses: Exception | None = None

    def tell_further_places(self, run_id: str, further: FurtherPlaces) -> None:
        self.told.append((run_id, further))
        if self.refuses is not None:
            raise self.refuses


class Trial:
    def __init__(self) -> None:
        self.driver = ListeningDriver()
        self.now = 1000.0
        self.further = FurtherPlacesOfRuns(cast(Driver, self.driver), lambda: self.now)

    def tell(self, held: Mapping[int, Mapping[str, Held]], executors: Iterable[Executor] = EXECUTORS) -> None:
        self.further.tell("run", QUERY, executors, COUNTS, PLACED, held)

    def seconds_until_due(self) -> float:
        began = self.now
        while not self.further.is_due("run"):
            self.now += 1
        return self.now - began


@pytest.fixture
def trial() -> Trial:
    return Trial()


def test_a_driver_is_told_once_and_again_when_a_copy_is_there(trial: Trial, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast.placement")
    for held in ({}, {}, COPY, COPY):
        trial.tell(held)
    assert trial.driver.told == [
        ("run", FurtherPlaces(sorted(EXECUTORS), [1, 2], [["h1"], ["node-b"]])),
        ("run", FurtherPlaces(sorted(EXECUTORS), [1, 2], [["h1", "node-b"], ["node-b"]])),
    ]
    assert caplog.messages == ["/mnt/q: 1 of 2 partitions can go on elsewhere"]


def test_who_holds_what_is_asked_less_and_less_often_until_executors_change(trial: Trial) -> None:
    assert not trial.further.is_due("run"), "nobody has told of it"
    pauses = []
    for executors in (EXECUTORS, EXECUTORS, EXECUTORS, EXECUTORS[:1]):
        trial.tell({}, executors)
        pauses.append(trial.seconds_until_due())
    assert pauses == [15, 30, 60, 15]
    for _ in range(12):
        trial.tell({}, EXECUTORS[:1])
    assert trial.seconds_until_due() == 3600


def test_a_driver_without_the_class_is_asked_once_and_the_log_says_so(
    trial: Trial, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast.placement")
    trial.driver.refuses = TypeError("there is no such class")
    trial.tell({})
    trial.tell(COPY)
    trial.further.forget("run")
    assert len(trial.driver.told) == 1
    assert caplog.messages == ["tasks of lost executors go to any other: there is no such class"]
    trial.now += 10_000
    assert not trial.further.is_due("run")


def test_a_driver_that_does_not_answer_in_time_is_told_again(trial: Trial, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast.placement")
    trial.driver.refuses = TimeoutError()
    trial.tell(COPY)
    assert caplog.messages == ["tasks of lost executors go to any other: TimeoutError"]
    trial.driver.refuses = None
    assert trial.seconds_until_due() == 15
    trial.tell(COPY)
    trial.tell(COPY)
    assert len(trial.driver.told) == 2


def test_a_run_that_has_ended_is_forgotten_by_the_driver_too(trial: Trial) -> None:
    trial.tell(COPY)
    trial.further.forget("run")
    trial.further.forget("another")
    assert trial.driver.told[1:] == [("run", NOWHERE)]
    assert not trial.further.is_due("run")


def test_a_driver_that_has_gone_when_a_run_ends_is_no_fault(trial: Trial, caplog: pytest.LogCaptureFixture) -> None:
    trial.tell(COPY)
    caplog.set_level(logging.INFO, "holdfast.placement")
    trial.driver.refuses = TypeError("there is no such class")
    trial.further.forget("run")
    assert caplog.messages == []
