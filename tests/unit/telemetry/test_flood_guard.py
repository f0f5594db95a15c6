"""Which events are recorded one by one, and which are only counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.telemetry.flood_guard import BURST, MOST_SUBJECTS, REFILL_SECONDS, SUMMARY_SECONDS, FloodGuard, Summary


def test_events_up_to_the_burst_are_recorded_and_the_rest_is_counted() -> None:
    guard = FloodGuard()
    admitted = [guard.admits("x", 1, 0.0) for _ in range(BURST + 5)]
    assert admitted == [True] * BURST + [False] * 5
    assert guard.summaries(SUMMARY_SECONDS - 1) == []
    assert guard.summaries(SUMMARY_SECONDS) == [Summary("x", 1, 5, SUMMARY_SECONDS)]
    assert guard.summaries(2 * SUMMARY_SECONDS) == []
    assert guard.admits("x", 1, 2 * SUMMARY_SECONDS)


def test_each_subject_and_kind_has_an_allowance_of_its_own() -> None:
    guard = FloodGuard()
    for _ in range(BURST + 1):
        guard.admits("x", 1, 0.0)
    assert guard.admits("x", 2, 0.0)
    assert guard.admits("y", 1, 0.0)


def test_subjects_without_number_take_no_memory_without_bound() -> None:
    guard = FloodGuard()
    admitted = sum(guard.admits("x", uid, 0.0) for uid in range(10 * MOST_SUBJECTS))
    assert admitted == MOST_SUBJECTS + BURST
    assert [each.subject for each in guard.summaries(0.0, all_of_them=True)] == ["others"]
    guard.summaries(BURST * REFILL_SECONDS)
    assert guard.admits("x", 10 * MOST_SUBJECTS, BURST * REFILL_SECONDS), "allowances that are full are forgotten"


@given(st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 2), st.floats(-5, 100)), max_size=400))
def test_every_event_is_recorded_or_counted(happened: list[tuple[str, int, float]]) -> None:
    guard = FloodGuard()
    now, recorded, counted = 0.0, 0, 0
    for kind, uid, passed in happened:
        now += passed  # a clock that is set back takes nothing away
        recorded += guard.admits(kind, uid, now)
        counted += sum(each.more for each in guard.summaries(now))
    counted += sum(each.more for each in guard.summaries(now, all_of_them=True))
    assert recorded + counted == len(happened)
