"""Events that one user can bring about as often as it likes."""

from __future__ import annotations

from holdfast.telemetry import EventLog, JoinedEvents, RareEvents


def test_they_are_told_once_a_minute_with_how_often_it_was() -> None:
    seconds = [0.0]
    events = EventLog(lambda: seconds[0])
    rare = RareEvents(events, lambda: seconds[0])
    for seconds[0] in (0.0, 1.0, 59.0, 60.0, 200.0):
        rare.emit("limit-reached", uid=7, what="requests")
    assert [event.fields["times"] for event in events.since(0)] == [1, 3, 1]


def test_those_of_many_users_are_not_kept_for_ever() -> None:
    seconds = [0.0]
    events = EventLog(lambda: seconds[0])
    rare = RareEvents(events, lambda: seconds[0])
    rare.emit("limit-reached", uid=1)
    rare.emit("limit-reached", uid=1)
    for uid in range(2, 5000):
        seconds[0] = uid * 60.0
        rare.emit("limit-reached", uid=uid)
        assert len(rare._told) <= 1000  # memory shows nowhere else
    rare.emit("limit-reached", uid=1)
    assert events.since(0)[-1].fields["times"] == 2


def test_those_that_come_in_series_are_joined_once_a_minute() -> None:
    seconds = [0.0]
    events = EventLog(lambda: seconds[0])
    joined = JoinedEvents(events, "evicted", lambda: seconds[0])
    for seconds[0] in (0.0, 1.0, 59.0):
        joined.add(bytes=5, inodes=1)
    assert [event.fields for event in events.since(0)] == [{"bytes": 5, "inodes": 1}]
    seconds[0] = 60.0
    joined.tell()
    joined.tell()
    seconds[0] = 61.0
    joined.add(bytes=7, inodes=2)
    assert [event.fields for event in events.since(1)] == [{"bytes": 10, "inodes": 2}]
    joined.tell(all_of_it=True)
    assert [event.fields for event in events.since(2)] == [{"bytes": 7, "inodes": 2}]
