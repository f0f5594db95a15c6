"""Watchers of operations: what they see, and what becomes of those who are too slow."""

from __future__ import annotations

from holdfast.telemetry import Notes, Observed, OperationFeed


def operation(number: int) -> Observed:
    return Observed(number, "open", "work", b"work/file", b"", 1, 0, 1000, 0, False, 0, Notes())


def test_each_watcher_sees_what_came_since_it_asked_last() -> None:
    switched: list[bool] = []
    feed = OperationFeed(switched.append)
    with feed.watched() as early:
        feed.publish(operation(1))
        with feed.watched() as late:
            feed.publish(operation(2))
            assert [each.time_ns for each in late()[1]] == [2]
        assert [each.time_ns for each in early()[1]] == [1, 2]
        assert early() == (0, [])
        assert switched == [True]
    assert switched == [True, False]


def test_who_is_too_slow_is_told_how_much_it_has_lost_and_memory_is_bounded() -> None:
    feed = OperationFeed(lambda is_watched: None)
    with feed.watched() as more:
        for number in range(20_000):
            feed.publish(operation(number))
        lost, found = more()
        assert lost + len(found) == 20_000
        assert lost > 10_000
        assert found[-1].time_ns == 19_999


def test_who_follows_gets_each_operation_at_once_and_counts_as_a_watcher() -> None:
    switched: list[bool] = []
    feed = OperationFeed(switched.append)
    followed: list[Observed] = []
    feed.follow(followed.append)
    feed.follow(followed.append)
    with feed.watched():
        feed.publish(operation(1))
    assert (feed.is_watched, switched) == (True, [True])
    feed.follow(None)
    feed.follow(None)
    assert (feed.is_watched, switched) == (False, [True, False])
    assert [each.time_ns for each in followed] == [1]
