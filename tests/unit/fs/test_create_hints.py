"""Who is about to create what."""

from __future__ import annotations

import math

import pytest

from holdfast.fs.remote_view.create_hints import CreateHints
from holdfast.zones import NameKind


@pytest.mark.parametrize(("thread", "is_known"), [(7, True), (0, False)])
def test_threads_that_have_no_number_here_are_nobody(thread: int, is_known: bool) -> None:
    hints = CreateHints(clock=lambda: 0.0)
    hints.created(b"offsets", NameKind.WRITE_ONCE, thread)
    assert hints.is_creating(b"offsets", b"1", NameKind.WRITE_ONCE, thread, 0.0) is is_known
    assert not hints.is_creating(b"offsets", b"1", NameKind.WRITE_ONCE, 8, 0.0)


@pytest.mark.parametrize(
    ("won", "asked", "is_driver"),
    [
        (b"checkpoints/a/sources/0", b"checkpoints/a/offsets", True),
        (b"checkpoints/a/offsets", b"checkpoints/a/commits", True),
        (b"checkpoints/a/offsets", b"checkpoints/b/commits", False),
        (b"checkpoints/a/offsets", b"checkpoints/a/b/commits", False),
        (b"checkpoints/a/offsets", b"checkpoints/a", False),
        (b"checkpoints/a", b"checkpoints/a/offsets", False),
        (b"checkpoints/a/offsets", b"checkpoints/a/state/0/_metadata", True),
        (b"checkpoints/a/offsets", b"checkpoints/a/state/0/_metadata/v2", False),
        (b"checkpoints/a/offsets", b"checkpoints/a/state/0/0", False),
        (b"offsets", b"commits", False),
    ],
)
def test_who_wins_one_log_of_a_checkpoint_writes_the_others(won: bytes, asked: bytes, is_driver: bool) -> None:
    hints = CreateHints(clock=lambda: 0.0)
    hints.created(won, NameKind.WRITE_ONCE, 7)
    assert hints.is_creating(asked, b"1", NameKind.WRITE_ONCE, 7, 60.0) is is_driver
    assert not hints.is_creating(asked, b"2", NameKind.WRITE_ONCE, 7, 60.1), "listed too long ago"
    assert not hints.is_creating(asked, b"1", NameKind.WRITE_ONCE, 8, 0.0)
    assert not hints.is_creating(asked, b"1", NameKind.REPLACEABLE, 7, 0.0)


def test_two_threads_that_write_different_logs_are_both_known() -> None:
    hints = CreateHints(clock=lambda: 0.0)
    hints.created(b"a/offsets", NameKind.WRITE_ONCE, 7)
    hints.created(b"a/sources/0", NameKind.WRITE_ONCE, 8)
    assert hints.is_creating(b"a/offsets", b"1", NameKind.WRITE_ONCE, 7, 1000.0)
    assert hints.is_creating(b"a/sources/0", b"1", NameKind.WRITE_ONCE, 8, 1000.0)


def test_a_writer_is_not_told_of_a_directory_that_nobody_has_listed() -> None:
    hints = CreateHints(clock=lambda: 0.0)
    hints.created(b"a/offsets", NameKind.WRITE_ONCE, 7)
    assert not hints.is_creating(b"a/offsets", b"1", NameKind.WRITE_ONCE, 7, math.inf)


@pytest.mark.parametrize("kind", [NameKind.IMMUTABLE, NameKind.REPLACEABLE])
def test_who_has_created_a_file_may_read_the_next_one(kind: NameKind) -> None:
    hints = CreateHints(clock=lambda: 0.0)
    hints.created(b"state/SSTs", kind, 7)
    assert not hints.is_creating(b"state/SSTs", b"1", kind, 7, 0.0)


def test_who_wrote_in_a_directory_is_not_about_to_create_names_in_it_once_it_was_removed() -> None:
    hints = CreateHints(clock=lambda: 0.0)
    hints.created(b"made", NameKind.WRITE_ONCE, 7)
    hints.directory_gone(b"made")
    assert not hints.is_creating(b"made", b"1", NameKind.WRITE_ONCE, 7, 0.0)


def test_a_writer_that_goes_on_asking_for_a_name_waits_for_another_one() -> None:
    now = 0.0
    hints = CreateHints(clock=lambda: now)
    hints.created(b"a/offsets", NameKind.WRITE_ONCE, 7)

    def is_creating(name: bytes) -> bool:
        is_creating = hints.is_creating(b"a/offsets", name, NameKind.WRITE_ONCE, 7, 0.0)
        if is_creating:
            hints.answered_creator(b"a/offsets", name, 7)
        return is_creating

    assert is_creating(b"1")
    now = 0.9
    assert is_creating(b"1")
    now = 1.1
    assert not is_creating(b"1")
    assert is_creating(b"2")
    hints.answered_missing(b"a/offsets", b"1", 7, was_asked=True)
    now = 5.0
    assert not is_creating(b"1")


def test_a_question_that_is_not_answered_by_a_hint_does_not_begin_the_wait() -> None:
    now = 0.0
    hints = CreateHints(clock=lambda: now)
    hints.created(b"a/offsets", NameKind.WRITE_ONCE, 7)
    for _ in range(2):
        assert hints.is_creating(b"a/offsets", b"1", NameKind.WRITE_ONCE, 7, 0.0)
        now += 5.0
    hints.answered_creator(b"a/offsets", b"1", 7)
    now += 5.0
    assert not hints.is_creating(b"a/offsets", b"1", NameKind.WRITE_ONCE, 7, 0.0)


def test_when_objects_appear_nobody_is_creating_until_it_creates_again() -> None:
    hints = CreateHints(clock=lambda: 0.0)

    def is_creating() -> bool:
        return any(hints.is_creating(b"a/offsets", name, NameKind.WRITE_ONCE, 7, 0.0) for name in (b"1", b"2", b"3"))

    hints.created(b"a/offsets", NameKind.WRITE_ONCE, 7)
    hints.temporary_made(b"a/offsets", b".2.00000000-0000-0000-0000-000000000000.tmp", 7)
    hints.answered_missing(b"a/offsets", b"3", 7, was_asked=True)
    assert is_creating()
    hints.objects_appeared()
    assert not is_creating()
    hints.created(b"a/offsets", NameKind.WRITE_ONCE, 7)
    assert is_creating()


def test_the_answer_of_the_store_is_for_the_creation_that_looked_the_name_up() -> None:
    now = 0.0
    hints = CreateHints(clock=lambda: now)

    def looked_up(thread: int, *, was_asked: bool = True) -> None:
        hints.answered_missing(b"a", b"1", thread, was_asked=was_asked)

    looked_up(7, was_asked=False)
    assert not hints.was_just_asked(b"a", b"1", 7)
    looked_up(7)
    assert hints.was_just_asked(b"a", b"1", 7)
    assert not hints.was_just_asked(b"a", b"1", 8), "it was another's"
    assert not hints.was_just_asked(b"a", b"2", 7), "it was another name"
    assert hints.is_creating(b"a", b"1", NameKind.REPLACEABLE, 7, 0.0)
    assert hints.was_just_asked(b"a", b"1", 7), "a question changes nothing"
    hints.answered_creator(b"a", b"1", 7)
    assert not hints.was_just_asked(b"a", b"1", 7), "the later lookup did not ask the store"
    looked_up(7)
    looked_up(8)
    assert not hints.was_just_asked(b"a", b"1", 7)
    looked_up(7)
    now = 0.1
    assert not hints.was_just_asked(b"a", b"1", 7), "it was a while ago"


def test_nothing_was_just_asked_once_the_store_got_objects_from_elsewhere() -> None:
    hints = CreateHints(clock=lambda: 0.0)
    hints.answered_missing(b"a", b"1", 7, was_asked=True)
    hints.objects_appeared()
    assert not hints.was_just_asked(b"a", b"1", 7)
