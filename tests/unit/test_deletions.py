"""Deletions: held back, sent in bulk, dropped when a PUT replaces the object, kept when the store does not answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from holdfast.errors import IndexFullError, NameNotStorableError, RemoteRefusedError, RemoteUnavailableError
from holdfast.index import Index
from holdfast.telemetry import EventLog
from holdfast.transfer import Deletions, RemoteDirectories
from tests.support.scripted_access import ScriptedAccess

DELAY = 0.2
DOWN = RemoteUnavailableError("down")
REFUSED = RemoteRefusedError("refused")


@pytest.fixture
def access(events: EventLog) -> ScriptedAccess:
    return ScriptedAccess(events)


@pytest.fixture
def directories(access: ScriptedAccess) -> RemoteDirectories:
    return RemoteDirectories(access)


@pytest.fixture
def deletions(access: ScriptedAccess, index: Index, events: EventLog, directories: RemoteDirectories) -> Deletions:
    return Deletions(access, index.marks, key_of, DELAY, events, directories.deleted)


def key_of(path: bytes) -> str:
    return path.removeprefix(b"checkpoints/").decode()


@asynccontextmanager
async def running(deletions: Deletions) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deletions.run)
        await trio.testing.wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()


def sent(access: ScriptedAccess) -> list[tuple[float, object]]:
    return [(round(time, 3), what) for time, kind, what in access.asked if kind == "DELETE"]


# --- held back and sent -----------------------------------------------------------------------------------------------


async def test_a_deletion_is_held_back_for_a_moment(
    deletions: Deletions, access: ScriptedAccess, index: Index, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        deletions.schedule(b"checkpoints/a")
        assert deletions.pending(b"checkpoints/a")
        assert index.marks.deletions() == [b"checkpoints/a"]
        assert deletions.paths() == [b"checkpoints/a"]
        await trio.sleep(DELAY / 2)
        assert sent(access) == []
        await trio.sleep(DELAY)
        assert sent(access) == [(DELAY, ["a"])]
        assert deletions.pending(b"checkpoints/a"), "until the store has answered"
        assert len(deletions) == 1
        await trio.sleep(access.seconds)
        assert not deletions.pending(b"checkpoints/a")
        assert (len(deletions), deletions.paths(), index.marks.deletions()) == (0, [], [])


async def test_neighbours_go_in_one_request(deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock) -> None:
    async with running(deletions):
        for name in (b"a", b"b", b"c"):
            deletions.schedule(b"checkpoints/" + name)
        await trio.sleep(1)
        assert sent(access) == [(DELAY, ["a", "b", "c"])]


async def test_each_deletion_is_held_back_as_long(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.seconds = 0
    async with running(deletions):
        deletions.schedule(b"checkpoints/a")
        await trio.sleep(DELAY / 2)
        deletions.schedule(b"checkpoints/b")
        await trio.sleep(1)
        assert sent(access) == [(DELAY, ["a"]), (0.3, ["b"])]


async def test_a_request_has_at_most_1000_names(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        for number in range(2500):
            deletions.schedule(b"checkpoints/%d" % number)
        await deletions.flush()
        batches = [what for _, _, what in access.asked if isinstance(what, list)]
        assert [len(batch) for batch in batches] == [1000, 1000, 500]
        assert [key for batch in batches for key in batch] == [str(number) for number in range(2500)]


async def test_a_list_under_way_does_not_bring_back_what_was_deleted_meanwhile(
    deletions: Deletions, directories: RemoteDirectories, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.put("a")
    access.put("b")
    async with running(deletions):
        deletions.schedule(b"checkpoints/a")
        await trio.sleep(DELAY + access.seconds / 2)
        assert sent(access), "the deletion is under way"
        await directories.get("").ask(trio.current_time())
        assert not deletions.pending(b"checkpoints/a")
        assert [name for name, _ in directories.get("").names()] == [b"b"]


async def test_a_deletion_that_can_not_be_noted_as_done_is_tried_again(
    deletions: Deletions, access: ScriptedAccess, index: Index, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted, clear = [], index.marks.clear_deleted

    def full_once(path: bytes) -> None:
        noted.append(path)
        if noted.count(path) == 1 and path == b"checkpoints/b":
            raise IndexFullError("the disk is full")
        clear(path)

    monkeypatch.setattr(index.marks, "clear_deleted", full_once)
    async with running(deletions):
        for name in (b"a", b"b", b"c"):
            deletions.schedule(b"checkpoints/" + name)
        await trio.sleep(DELAY + access.seconds + 1)
        assert deletions.paths() == [b"checkpoints/b", b"checkpoints/c"]
        await trio.sleep(60)
        assert [what for _, what in sent(access)] == [["a", "b", "c"], ["b", "c"]]
        assert (deletions.paths(), index.marks.deletions()) == ([], [])


# --- flush ------------------------------------------------------------------------------------------------------------


async def test_who_flushes_does_not_wait_for_the_delay(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        for name in (b"a", b"b", b"later"):
            deletions.schedule(b"checkpoints/" + name)
        await deletions.flush([b"checkpoints/a", b"checkpoints/b", b"checkpoints/never there"])
        assert sent(access)[0] == (0, ["a", "b"])
        assert trio.current_time() == access.seconds
        assert deletions.paths() == [b"checkpoints/later"]


async def test_who_flushes_during_a_request_waits_for_it(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        deletions.schedule(b"checkpoints/a")
        await trio.sleep(DELAY + access.seconds / 2)
        await deletions.flush()
        assert trio.current_time() == pytest.approx(DELAY + access.seconds)
        assert len(access.asked) == 1


async def test_a_flush_of_nothing_returns_at_once(deletions: Deletions) -> None:
    await deletions.flush()
    await deletions.flush([b"checkpoints/never there"])


async def test_a_flush_that_is_cancelled_leaves_the_deletion_to_be_sent(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        deletions.schedule(b"checkpoints/a")
        with trio.move_on_after(access.seconds / 2):
            await deletions.flush()
        await trio.sleep(access.seconds)
        assert not deletions.pending(b"checkpoints/a")


# --- settle -----------------------------------------------------------------------------------------------------------


async def test_a_name_that_is_put_again_costs_no_deletion(
    deletions: Deletions, access: ScriptedAccess, index: Index, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        deletions.schedule(b"checkpoints/a")
        deletions.schedule(b"checkpoints/b")
        await deletions.settle(b"checkpoints/a", replace=True)
        assert trio.current_time() == 0
        assert not deletions.pending(b"checkpoints/a")
        assert index.marks.deletions() == [b"checkpoints/b"]
        await trio.sleep(5)
        assert sent(access) == [(DELAY, ["b"])]


async def test_a_name_that_is_to_be_created_is_deleted_first(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        deletions.schedule(b"checkpoints/a")
        await deletions.settle(b"checkpoints/a", replace=False)
        assert sent(access) == [(0, ["a"])]
        assert not deletions.pending(b"checkpoints/a")


async def test_a_put_waits_for_a_deletion_that_is_on_its_way(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        deletions.schedule(b"checkpoints/a")
        await trio.sleep(DELAY + 0.1)
        await deletions.settle(b"checkpoints/a", replace=True)
        assert trio.current_time() == pytest.approx(DELAY + access.seconds)
        assert not deletions.pending(b"checkpoints/a")


async def test_who_waits_for_a_deletion_hears_that_it_was_dropped(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    deletions.schedule(b"checkpoints/a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deletions.flush)
        await trio.testing.wait_all_tasks_blocked()
        await deletions.settle(b"checkpoints/a", replace=True)
    assert access.asked == []


async def test_a_name_can_be_deleted_again_after_it_was_put(
    deletions: Deletions, access: ScriptedAccess, index: Index, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        deletions.schedule(b"checkpoints/a")
        await deletions.settle(b"checkpoints/a", replace=True)
        deletions.schedule(b"checkpoints/a")
        await trio.sleep(5)
        assert len(access.asked) == 1
        assert index.marks.deletions() == []


async def test_a_second_deletion_is_not_taken_for_done_by_the_first(
    deletions: Deletions, access: ScriptedAccess, index: Index, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        deletions.schedule(b"checkpoints/a")
        await trio.sleep(DELAY + 0.1)
        deletions.schedule(b"checkpoints/a")
        await trio.sleep(access.seconds - 0.05)
        assert deletions.pending(b"checkpoints/a")
        assert index.marks.deletions() == [b"checkpoints/a"]
        await trio.sleep(5)
        assert len(access.asked) == 2
        assert index.marks.deletions() == []


# --- failures ---------------------------------------------------------------------------------------------------------


async def test_a_failure_is_an_event_and_is_tried_again(
    deletions: Deletions, access: ScriptedAccess, index: Index, events: EventLog, autojump_clock: MockClock
) -> None:
    access.failures.extend([DOWN, REFUSED])
    async with running(deletions):
        deletions.schedule(b"checkpoints/a")
        deletions.schedule(b"checkpoints/b")
        await trio.sleep(5)
        assert deletions.pending(b"checkpoints/a")
        assert sorted(index.marks.deletions()) == [b"checkpoints/a", b"checkpoints/b"]
        await trio.sleep(60)
        assert len(deletions) == 0
        assert index.marks.deletions() == []
        assert [event.fields["problem"] for event in events.since(0)] == ["down", "refused"]
        assert {event.kind for event in events.since(0)} == {"delete-delayed"}
        assert events.since(0)[0].fields["objects"] == 2
        first, second, third = access.times("DELETE")
        assert second - first >= 10
        assert third - second >= 10


async def test_a_deletion_that_fails_holds_no_new_one_up(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.failures.append(DOWN)
    async with running(deletions):
        deletions.schedule(b"checkpoints/a")
        await trio.sleep(5)
        deletions.schedule(b"checkpoints/b")
        await trio.sleep(1)
        assert sent(access)[1] == (5 + DELAY, ["b"])


async def test_who_waits_for_a_deletion_hears_that_it_failed(
    deletions: Deletions, access: ScriptedAccess, index: Index, autojump_clock: MockClock
) -> None:
    access.failures.extend([DOWN, DOWN])
    async with running(deletions):
        deletions.schedule(b"checkpoints/a")
        with pytest.raises(RemoteUnavailableError, match="down"):
            await deletions.flush()
        with pytest.raises(RemoteUnavailableError, match="down"):
            await deletions.settle(b"checkpoints/a", replace=False)
        assert index.marks.deletions() == [b"checkpoints/a"]
        assert len(access.asked) == 2
        await deletions.flush()
        assert index.marks.deletions() == []
        assert trio.current_time() == 3, "who asks again does not wait for the next try"


async def test_a_put_goes_ahead_where_deletions_are_refused(
    deletions: Deletions, access: ScriptedAccess, index: Index, autojump_clock: MockClock
) -> None:
    access.failures.append(REFUSED)
    async with running(deletions):
        deletions.schedule(b"checkpoints/a")
        await trio.sleep(DELAY + 0.1)
        await deletions.settle(b"checkpoints/a", replace=True)
        assert not deletions.pending(b"checkpoints/a")
        assert index.marks.deletions() == []
        await trio.sleep(60)
        assert len(access.asked) == 1


async def test_a_put_does_not_go_ahead_of_a_deletion_whose_end_is_unknown(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.failures.append(DOWN)
    async with running(deletions):
        deletions.schedule(b"checkpoints/a")
        await trio.sleep(DELAY + 0.1)
        with pytest.raises(RemoteUnavailableError):
            await deletions.settle(b"checkpoints/a", replace=True)


async def test_an_error_that_is_not_the_stores_does_not_end_the_daemon(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.failures.append(NameNotStorableError("odd"))
    async with running(deletions):
        deletions.schedule(b"checkpoints/a")
        await trio.sleep(60)
        assert len(deletions) == 0


# --- over the end of the daemon ---------------------------------------------------------------------------------------


async def test_deletions_of_an_earlier_run_are_sent_at_once(
    deletions: Deletions, access: ScriptedAccess, index: Index, events: EventLog, autojump_clock: MockClock
) -> None:
    deletions.schedule(b"checkpoints/a")
    deletions.schedule(b"checkpoints/b")
    later = Deletions(access, index.marks, key_of, DELAY, events, RemoteDirectories(access).deleted)
    for path in index.marks.deletions():
        later.restore(path)
    assert later.pending(b"checkpoints/a")
    async with running(later):
        await trio.sleep(access.seconds)
        assert sent(access) == [(0, ["a", "b"])]
        await trio.sleep(access.seconds)
        assert index.marks.deletions() == []


async def test_a_deletion_that_the_end_of_the_daemon_cut_short_is_kept(
    deletions: Deletions, access: ScriptedAccess, index: Index, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        deletions.schedule(b"checkpoints/a")
        await trio.sleep(DELAY + 0.1)
        assert len(access.asked) == 1
    assert index.marks.deletions() == [b"checkpoints/a"]
    assert deletions.pending(b"checkpoints/a")
    async with running(deletions):
        await deletions.flush()
    assert index.marks.deletions() == []
