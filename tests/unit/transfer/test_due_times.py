"""Which files are tried again, and when."""

from __future__ import annotations

import math

from holdfast.transfer.due_times import DueTimes


def test_paths_are_due_in_the_order_of_their_times() -> None:
    due = DueTimes()
    assert due.next() == math.inf
    for path, time in ((b"c", 3.0), (b"a", 1.0), (b"b", 2.0)):
        due.put(path, time)
    assert (due.next(), len(due), b"b" in due) == (1.0, 3, True)
    assert due.take(0.5, 10) == []
    assert due.take(2.0, 10) == [b"a", b"b"]
    assert (due.next(), len(due), b"b" in due) == (3.0, 1, False)


def test_no_more_are_taken_than_asked_for() -> None:
    due = DueTimes()
    for number in range(5):
        due.put(b"%d" % number, 1.0)
    assert due.take(1.0, 3) == [b"0", b"1", b"2"]
    assert due.take(1.0, 3) == [b"3", b"4"]


def test_a_path_has_the_last_time_that_it_was_given_and_none_once_it_is_removed() -> None:
    due = DueTimes()
    due.put(b"a", 1.0)
    due.put(b"a", 5.0)
    due.put(b"b", 2.0)
    due.discard(b"b")
    due.discard(b"absent")
    assert (due.next(), len(due)) == (5.0, 1)
    assert due.take(9.0, 10) == [b"a"]
    assert due.next() == math.inf


def test_a_path_that_was_removed_comes_back_at_its_new_time_alone() -> None:
    due = DueTimes()
    due.put(b"a", 1.0)
    due.discard(b"a")
    due.put(b"a", 3.0)
    assert due.take(2.0, 10) == []
    assert due.take(3.0, 10) == [b"a"]
    assert due.take(9.0, 10) == []


def test_many_removed_paths_are_passed_over_in_portions() -> None:
    due = DueTimes()
    for number in range(2500):
        due.put(b"removed %d" % number, number / 2500)
        due.discard(b"removed %d" % number)
    due.put(b"left", 9.0)
    assert due.take(1.0, 10) == [], "the first thousand"
    assert due.next() < 1.0, "the second: whoever waits until then looks again"
    assert due.next() == 9.0
    assert due.take(9.0, 10) == [b"left"]
