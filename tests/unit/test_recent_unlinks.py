"""How long a file counts as one that has lost a name just now."""

from __future__ import annotations

from holdfast.fs.unlinks import RecentUnlinks


class Clock:
    """Seconds, as a test sets them."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_file_counts_for_some_seconds_after_its_last_loss() -> None:
    clock = Clock()
    unlinks = RecentUnlinks(clock)
    assert not unlinks.is_recent(1)
    unlinks.note(1)
    clock.now += 1
    unlinks.note(2)
    assert unlinks.is_recent(1)
    assert not unlinks.is_recent(3)
    clock.now += 8
    unlinks.note(1)
    clock.now += 5
    assert unlinks.is_recent(1)
    assert not unlinks.is_recent(2)
    clock.now += 10
    assert not unlinks.is_recent(1)


def test_after_a_takeover_every_file_may_be_meant() -> None:
    clock = Clock()
    unlinks = RecentUnlinks(clock)
    unlinks.note_any()
    assert unlinks.is_recent(1)
    clock.now += 20
    assert not unlinks.is_recent(1)
