"""Deletions: held back, sent in bulk, dropped when a PUT replaces the object, kept when the store does not answer."""

from __future__ import annotations

import dataclasses
import gc
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from holdfast.errors import (
    HoldfastError,
    IndexFullError,
    NameNotStorableError,
    ObjectExistsError,
    RemoteError,
    RemoteRefusedError,
    RemoteUnavailableError,
)
from holdfast.index import CachedName, Index
from holdfast.remote import ObjectInfo
from holdfast.telemetry import EventLog
from holdfast.transfer import Deletions, ListingCache
from holdfast.transfer.conditional_delete import delete_unchanged
from tests.support.stores.scripted_access import ScriptedAccess

DELAY = 0.2
DOWN = RemoteUnavailableError("down")
OWNER = "this node"
REFUSED = RemoteRefusedError("refused")


@pytest.fixture
def access(events: EventLog) -> ScriptedAccess:
    return ScriptedAccess(events, deadline_seconds=0)


@pytest.fixture
def directories(access: ScriptedAccess) -> ListingCache:
    return ListingCache(access)


@pytest.fixture
def deletions(access: ScriptedAccess, index: Index, events: EventLog, directories: ListingCache) -> Deletions:
    return Deletions(access, index.marks, key_of, DELAY, events, directories, OWNER)


def known(path: bytes, etag: str = "", modified_ns: int = 0) -> CachedName:
    return CachedName(path, etag, modified_ns)


def version_of(info: ObjectInfo) -> CachedName:
    return known(b"checkpoints/" + info.key.encode(), info.etag, info.modified_ns)


def noted(index: Index) -> list[bytes]:
    return [version.path for version in index.marks.deletions()]


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
        deletions.schedule(known(b"checkpoints/a"))
        assert deletions.pending(b"checkpoints/a")
        assert noted(index) == [b"checkpoints/a"]
        assert deletions.paths() == [b"checkpoints/a"]
        await trio.sleep(DELAY / 2)
        assert sent(access) == []
        await trio.sleep(DELAY)
        assert sent(access) == [(DELAY, ["a"])]
        assert deletions.pending(b"checkpoints/a"), "until the store has answered"
        assert len(deletions) == 1
        await trio.sleep(access.seconds)
        assert not deletions.pending(b"checkpoints/a")
        assert (len(deletions), deletions.paths(), noted(index)) == (0, [], [])


async def test_neighbours_go_in_one_request(deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock) -> None:
    async with running(deletions):
        for name in (b"a", b"b", b"c"):
            deletions.schedule(known(b"checkpoints/" + name))
        await trio.sleep(1)
        assert sent(access) == [(DELAY, ["a", "b", "c"])]


async def test_each_deletion_is_held_back_as_long(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.seconds = 0
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a"))
        await trio.sleep(DELAY / 2)
        deletions.schedule(known(b"checkpoints/b"))
        await trio.sleep(1)
        assert sent(access) == [(DELAY, ["a"]), (0.3, ["b"])]


async def test_a_request_has_at_most_1000_names(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        for number in range(2500):
            deletions.schedule(known(b"checkpoints/%d" % number))
        await wait_all_tasks_blocked()  # it waits until they are due, not for its first turn
        await deletions.flush()
        batches = [what for _, _, what in access.asked if isinstance(what, list)]
        assert [len(batch) for batch in batches] == [1000, 1000, 500]
        assert [key for batch in batches for key in batch] == [str(number) for number in range(2500)]


async def test_a_list_under_way_does_not_bring_back_what_was_deleted_meanwhile(
    deletions: Deletions, directories: ListingCache, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.put("a")
    access.put("b")
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a"))
        await trio.sleep(DELAY + access.seconds / 2)
        assert sent(access), "the deletion is under way"
        await directories.get("").ask(trio.current_time())
        assert not deletions.pending(b"checkpoints/a")
        assert [name for name, _ in directories.get("").names()] == [b"b"]


async def test_a_deletion_that_can_not_be_noted_as_done_is_tried_again(
    deletions: Deletions, access: ScriptedAccess, index: Index, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleared, clear = [], index.marks.clear_deleted

    def full_once(path: bytes) -> None:
        cleared.append(path)
        if cleared.count(path) == 1 and path == b"checkpoints/b":
            raise IndexFullError("the disk is full")
        clear(path)

    monkeypatch.setattr(index.marks, "clear_deleted", full_once)
    async with running(deletions):
        for name in (b"a", b"b", b"c"):
            deletions.schedule(known(b"checkpoints/" + name))
        await trio.sleep(DELAY + access.seconds + 1)
        assert deletions.paths() == [b"checkpoints/b"]
        await trio.sleep(60)
        assert [what for _, what in sent(access)] == [["a", "b", "c"], ["b"]]
        assert (deletions.paths(), noted(index)) == ([], [])


# --- what was stored since then stays -----------------------------------------------------------------------------------


async def test_the_version_that_was_known_is_deleted(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    info = access.put("a", "1")
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a", "1", info.modified_ns))
        await deletions.flush()
    assert access.objects == {}
    assert [kind for _, kind, _ in access.asked] == ["HEAD", "DELETE"]


async def test_what_another_node_has_put_in_its_place_stays(
    deletions: Deletions,
    access: ScriptedAccess,
    directories: ListingCache,
    index: Index,
    events: EventLog,
    autojump_clock: MockClock,
) -> None:
    other = access.put("a", "2")
    await directories.get("").ask(trio.current_time())
    directories.get("").remove(b"a")
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a", "1"))
        deletions.schedule(known(b"checkpoints/gone", "1"))
        await deletions.flush()
    assert access.objects == {"a": other}
    assert sent(access) == []
    assert (deletions.paths(), noted(index)) == ([], [])
    assert directories.get("").object(b"a") is not None, "the name is there again"
    assert [event.fields["key"] for event in events.since(0) if event.kind == "delete-superseded"] == ["a"]


@pytest.mark.parametrize(("stored_by", "stays"), [(OWNER, False), ("another node", True), (None, True)])
async def test_the_same_bytes_at_another_time_are_another_version_unless_they_are_ours(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock, *, stored_by: str | None, stays: bool
) -> None:
    access.put("a", "1", stored_by=stored_by)
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a", "1", 17))
        await deletions.flush()
    assert ("a" in access.objects) == stays


@pytest.mark.parametrize("stored_by", [OWNER, "another node"])
@pytest.mark.parametrize("names", [1, 20])
async def test_what_this_node_has_just_stored_is_deleted_as_its_own_whatever_etag_and_time_say(
    deletions: Deletions, access: ScriptedAccess, index: Index, autojump_clock: MockClock, stored_by: str, names: int
) -> None:
    paths = [b"checkpoints/%d" % number for number in range(names)]
    for path in paths:
        async with deletions.replaced(path, by_version=False):
            info = access.put(key_of(path), "1", stored_by=stored_by)  # the same bytes in the same second
        deletions.stored(path, "1")
        assert deletions.schedule(known(path, "1", info.modified_ns)) == known(path, "1")
    assert {(version.path, version.modified_ns) for version in index.marks.deletions()} == {(path, 0) for path in paths}
    async with running(deletions):
        await deletions.flush()
    assert len(access.objects) == (0 if stored_by == OWNER else names)


async def test_what_this_node_stored_a_while_ago_is_deleted_by_its_time(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    async with deletions.replaced(b"checkpoints/a", by_version=False):
        info = access.put("a", "1", stored_by=OWNER)
    deletions.stored(b"checkpoints/a", "1")
    await trio.sleep(3)
    assert deletions.schedule(version_of(info)) == version_of(info)


async def test_a_time_that_is_more_precise_than_a_second_tells_the_version(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    deletions.stored(b"checkpoints/a", "1")
    precise = known(b"checkpoints/a", "1", 10**18 + 10**6)
    assert deletions.schedule(precise) == precise


async def test_what_another_node_has_stored_over_ours_just_now_is_deleted_if_it_was_seen(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    deletions.stored(b"checkpoints/a", "1")
    seen = access.put("a", "2", stored_by="another node")
    async with running(deletions):
        assert deletions.schedule(version_of(seen)) == version_of(seen)
        await deletions.flush()
    assert access.objects == {}


async def test_without_metadata_the_etag_tells(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    capabilities = dataclasses.replace(access.store.capabilities, metadata=False)
    monkeypatch.setattr(access.store, "capabilities", capabilities)
    access.put("a", "1")
    access.put("b", "2")
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a", "1", 0))
        deletions.schedule(known(b"checkpoints/b", "1", 0))
        await deletions.flush()
    assert set(access.objects) == {"b"}


async def test_what_this_node_stored_without_an_answer_goes(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.put("a", "2", stored_by=OWNER)
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a", "1", 0))
        await deletions.flush()
    assert access.objects == {}


@pytest.mark.parametrize("stored_by", [OWNER, "another node"])
async def test_of_many_names_in_a_directory_one_list_tells(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock, stored_by: str
) -> None:
    access.seconds = 0
    modified_ns = [access.put(f"{number}", "1", stored_by=stored_by).modified_ns for number in range(20)]
    access.put("3", "another", stored_by=stored_by)
    async with running(deletions):
        for number in range(30):
            at = modified_ns[number] if number < 18 else 17
            deletions.schedule(known(b"checkpoints/%d" % number, "1", at))
        await deletions.flush()
    assert set(access.objects) == (set() if stored_by == OWNER else {"3", "18", "19"})
    assert (len(access.times("LIST")), len(access.times("HEAD"))) == (1, 3)


async def test_after_a_lost_answer_there_is_a_new_look(
    deletions: Deletions, access: ScriptedAccess, index: Index, autojump_clock: MockClock
) -> None:
    info = access.put("a", "1")
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a", "1", info.modified_ns))
        await trio.sleep(DELAY + 1.5 * access.seconds)
        assert sent(access)
        access.failures.append(DOWN)
        await trio.sleep(access.seconds)
        other = access.put("a", "2")
        await trio.sleep(60)
    assert access.objects == {"a": other}
    assert len(sent(access)) == 1
    assert noted(index) == []


async def test_what_can_not_be_looked_at_holds_up_nothing_else(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    infos = [access.put(name) for name in ("a", "b")]
    access.seconds = 0
    head = access.head

    async def refuse_a(key: str, *, retry: bool = True) -> ObjectInfo:
        if key == "a":
            raise REFUSED
        return await head(key, retry=retry)

    access.head = refuse_a  # type: ignore[method-assign]
    async with running(deletions):
        for info in infos:
            deletions.schedule(version_of(info))
        await deletions.flush([b"checkpoints/b"])
        assert (set(access.objects), deletions.paths()) == ({"a"}, [b"checkpoints/a"])
        with pytest.raises(RemoteRefusedError):
            await deletions.settle(b"checkpoints/a")


async def test_a_few_names_of_a_huge_directory_are_asked_about(
    deletions: Deletions, directories: ListingCache, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.seconds = 0
    infos = [access.put(f"{number}") for number in range(5000)]
    await directories.get("").ask(trio.current_time())
    async with running(deletions):
        for info in infos[:12]:
            deletions.schedule(version_of(info))
        await deletions.flush()
    assert (len(access.times("LIST")), len(access.times("HEAD"))) == (1, 12), "the one LIST is the belief's"


async def test_a_look_that_fails_deletes_nothing(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    info = access.put("a", "1")
    access.failures.append(REFUSED)
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a", "1", info.modified_ns))
        with pytest.raises(RemoteRefusedError):
            await deletions.flush()
        assert set(access.objects) == {"a"}
        assert deletions.paths() == [b"checkpoints/a"]


# --- flush ------------------------------------------------------------------------------------------------------------


async def test_who_flushes_does_not_wait_for_the_delay(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        for name in (b"a", b"b", b"later"):
            deletions.schedule(known(b"checkpoints/" + name))
        await deletions.flush([b"checkpoints/a", b"checkpoints/b", b"checkpoints/never there"])
        assert sent(access)[0] == (0, ["a", "b"])
        assert trio.current_time() == access.seconds
        assert deletions.paths() == [b"checkpoints/later"]


async def test_who_flushes_during_a_request_waits_for_it(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a"))
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
        deletions.schedule(known(b"checkpoints/a"))
        with trio.move_on_after(access.seconds / 2):
            await deletions.flush()
        await trio.sleep(access.seconds)
        assert not deletions.pending(b"checkpoints/a")


# --- settle -----------------------------------------------------------------------------------------------------------


async def test_a_name_that_is_put_again_costs_no_deletion(
    deletions: Deletions, access: ScriptedAccess, index: Index, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a"))
        deletions.schedule(known(b"checkpoints/b"))
        async with deletions.replaced(b"checkpoints/a", by_version=False):
            pass
        assert trio.current_time() == 0
        assert not deletions.pending(b"checkpoints/a")
        assert noted(index) == [b"checkpoints/b"]
        await trio.sleep(5)
        assert sent(access) == [(DELAY, ["b"])]


async def test_a_name_that_is_to_be_created_is_deleted_first(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a"))
        await deletions.settle(b"checkpoints/a")
        assert sent(access) == [(0, ["a"])]
        assert not deletions.pending(b"checkpoints/a")


async def test_a_put_waits_for_a_deletion_that_is_on_its_way(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a"))
        await trio.sleep(DELAY + 0.1)
        async with deletions.replaced(b"checkpoints/a", by_version=False):
            pass
        assert trio.current_time() == pytest.approx(DELAY + access.seconds)
        assert not deletions.pending(b"checkpoints/a")


async def test_a_deletion_waits_for_a_put_that_was_on_its_way_before_it(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    """The name was removed during its PUT. Who waits for that waits for the deletion of the object that was stored, too."""
    old, new = known(b"checkpoints/a", "old"), known(b"checkpoints/a")
    told: list[float] = []

    async def wait_until_deleted() -> None:
        await deletions.flush()
        told.append(trio.current_time())

    async with running(deletions), trio.open_nursery() as nursery:
        async with deletions.replaced(b"checkpoints/a", by_version=False):
            deletions.schedule(old)
            nursery.start_soon(wait_until_deleted)
            await trio.sleep(10 * DELAY)
            assert (sent(access), told) == ([], [])
        deletions.schedule(new)
    assert sent(access) == [(10 * DELAY, ["a"])]
    assert told == [pytest.approx(10 * DELAY + access.seconds)]


async def test_who_waits_for_a_deletion_hears_that_it_was_dropped(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    deletions.schedule(known(b"checkpoints/a"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deletions.flush)
        await trio.testing.wait_all_tasks_blocked()
        async with deletions.replaced(b"checkpoints/a", by_version=False):
            pass
    assert access.asked == []


async def test_a_name_can_be_deleted_again_after_it_was_put(
    deletions: Deletions, access: ScriptedAccess, index: Index, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a"))
        async with deletions.replaced(b"checkpoints/a", by_version=False):
            pass
        deletions.schedule(known(b"checkpoints/a"))
        await trio.sleep(5)
        assert len(access.asked) == 1
        assert noted(index) == []


async def test_a_second_deletion_is_not_taken_for_done_by_the_first(
    deletions: Deletions, access: ScriptedAccess, index: Index, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a"))
        await trio.sleep(DELAY + 0.1)
        deletions.schedule(known(b"checkpoints/a"))
        await trio.sleep(access.seconds - 0.05)
        assert deletions.pending(b"checkpoints/a")
        assert noted(index) == [b"checkpoints/a"]
        await trio.sleep(5)
        assert len(access.asked) == 2
        assert noted(index) == []


async def test_a_put_in_place_of_a_version_is_told_which(
    deletions: Deletions, access: ScriptedAccess, index: Index, autojump_clock: MockClock
) -> None:
    info = access.put("a", "1")
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a", "1", info.modified_ns))
        async with deletions.replaced(b"checkpoints/a", by_version=True) as version:
            assert version == "1"
            await trio.sleep(10 * DELAY)
            assert deletions.pending(b"checkpoints/a"), "until the new object is there"
            assert noted(index) == [b"checkpoints/a"]
        assert (deletions.paths(), noted(index)) == ([], [])
        async with deletions.replaced(b"checkpoints/a", by_version=True) as version:
            assert version == ""
    assert [kind for _, kind, _ in access.asked] == ["HEAD"]


@pytest.mark.parametrize("stored_by", [None, OWNER, "another node"])
async def test_the_same_bytes_stored_anew_by_another_node_are_not_replaced(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock, stored_by: str | None
) -> None:
    deletions.schedule(known(b"checkpoints/a", "1", 17))  # of another time
    if stored_by is not None:
        access.put("a", "1", stored_by=stored_by)
    async with deletions.replaced(b"checkpoints/a", by_version=True) as version:
        assert version == ("1" if stored_by == OWNER else "")


async def test_who_waits_for_a_deletion_that_is_noted_anew_waits_for_the_new_one(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    deletions.schedule(known(b"checkpoints/a"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deletions.flush)
        await trio.testing.wait_all_tasks_blocked()
        deletions.schedule(known(b"checkpoints/a"))
        with trio.fail_after(60):
            async with running(deletions):
                await deletions.flush()
    assert len(sent(access)) == 1


async def test_a_version_that_is_not_known_is_deleted_before_a_name_is_created(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a"))
        async with deletions.replaced(b"checkpoints/a", by_version=True) as version:
            assert version == ""
            assert sent(access) == [(0, ["a"])]
            assert not deletions.pending(b"checkpoints/a")


async def test_after_a_put_that_finds_another_object_nothing_is_deleted(
    deletions: Deletions, access: ScriptedAccess, index: Index, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a", "1"))
        with pytest.raises(ObjectExistsError):
            async with deletions.replaced(b"checkpoints/a", by_version=True):
                raise ObjectExistsError("a")
        assert (deletions.paths(), noted(index)) == ([], [])


async def test_after_a_put_that_fails_the_deletion_is_sent(
    deletions: Deletions, access: ScriptedAccess, index: Index, autojump_clock: MockClock
) -> None:
    info = access.put("a", "1")
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a", "1", info.modified_ns))
        with pytest.raises(RemoteUnavailableError):
            async with deletions.replaced(b"checkpoints/a", by_version=True):
                raise DOWN
        assert deletions.pending(b"checkpoints/a")
        await trio.sleep(60)
        assert access.objects == {}
        assert noted(index) == []


@pytest.mark.parametrize(("stored_by", "goes"), [(OWNER, True), ("another node", False), (None, False)])
async def test_of_a_version_that_nobody_knows_only_this_nodes_own_goes(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock, stored_by: str | None, *, goes: bool
) -> None:
    access.put("a", "1", stored_by=stored_by)
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a", "own", 0))
        await deletions.flush()
    assert ("a" not in access.objects) == goes


# --- failures ---------------------------------------------------------------------------------------------------------


async def test_a_failure_is_an_event_and_is_tried_again(
    deletions: Deletions, access: ScriptedAccess, index: Index, events: EventLog, autojump_clock: MockClock
) -> None:
    for name in ("a", "b"):
        access.put(name)
    access.failures.append(DOWN)
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a"))
        deletions.schedule(known(b"checkpoints/b"))
        await trio.sleep(5)
        assert deletions.pending(b"checkpoints/a")
        assert sorted(noted(index)) == [b"checkpoints/a", b"checkpoints/b"]
        access.failures.append(REFUSED)
        await trio.sleep(60)
        assert len(deletions) == 0
        assert noted(index) == []
        down, refused = (event.fields["problem"] for event in events.since(0))
        assert str(down).startswith("down; gave up")
        assert refused == "refused"
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
        deletions.schedule(known(b"checkpoints/a"))
        await trio.sleep(5)
        deletions.schedule(known(b"checkpoints/b"))
        await trio.sleep(1)
        assert sent(access)[1] == (5 + DELAY, ["b"])


async def test_who_waits_for_a_deletion_hears_that_it_failed(
    deletions: Deletions, access: ScriptedAccess, index: Index, autojump_clock: MockClock
) -> None:
    access.failures.extend([DOWN, DOWN])
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a"))
        with pytest.raises(RemoteUnavailableError, match="down"):
            await deletions.flush()
        with pytest.raises(RemoteUnavailableError, match="down"):
            await deletions.settle(b"checkpoints/a")
        assert noted(index) == [b"checkpoints/a"]
        assert len(access.asked) == 2
        await deletions.flush()
        assert noted(index) == []
        assert trio.current_time() == 3, "who asks again does not wait for the next try"


async def test_a_put_goes_ahead_where_deletions_are_refused(
    deletions: Deletions, access: ScriptedAccess, index: Index, autojump_clock: MockClock
) -> None:
    access.failures.append(REFUSED)
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a"))
        await trio.sleep(DELAY + 0.1)
        async with deletions.replaced(b"checkpoints/a", by_version=False):
            pass
        assert not deletions.pending(b"checkpoints/a")
        assert noted(index) == []
        await trio.sleep(60)
        assert len(access.asked) == 1


async def test_a_put_does_not_go_ahead_of_a_deletion_whose_end_is_unknown(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.failures.append(DOWN)
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a"))
        await trio.sleep(DELAY + 0.1)
        with pytest.raises(RemoteUnavailableError):
            async with deletions.replaced(b"checkpoints/a", by_version=False):
                pass


async def test_an_error_that_is_not_the_stores_does_not_end_the_daemon(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.failures.append(NameNotStorableError("odd"))
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a"))
        await trio.sleep(60)
        assert len(deletions) == 0


async def test_a_name_that_can_not_be_deleted_holds_up_no_other(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    for key in ("bad", "a", "b"):
        access.put(key)
    access.immortal.add("bad")
    async with running(deletions):
        for name in (b"bad", b"a", b"b"):
            deletions.schedule(known(b"checkpoints/" + name))
        await deletions.flush([b"checkpoints/a", b"checkpoints/b"])
        assert (set(access.objects), deletions.paths()) == ({"bad"}, [b"checkpoints/bad"])
        with pytest.raises(RemoteRefusedError):
            await deletions.flush()


OF_SOME = RemoteRefusedError("refused for one of them", of_store=False)


def refusing(access: ScriptedAccess, poison: set[str], problem: HoldfastError = OF_SOME) -> None:
    """Let ``access`` refuse every request for one of these keys as a whole."""
    delete = access.delete

    async def refuse(keys: list[str], *, retry: bool = True) -> None:
        if poison.intersection(keys):
            access.asked.append((trio.current_time(), "REFUSED", list(keys)))
            raise problem
        await delete(keys, retry=retry)

    access.delete = refuse  # type: ignore[method-assign]


@pytest.mark.parametrize("problem", [OF_SOME, NameNotStorableError("odd"), RemoteError("the answer makes no sense")])
@pytest.mark.parametrize("count", [2, 3, 1000])
async def test_a_refused_request_is_divided_until_the_refused_key_stands_alone(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock, count: int, problem: HoldfastError
) -> None:
    access.seconds = 0
    names = [f"{number}" for number in range(count)]
    infos = [access.put(name) for name in names]
    refusing(access, {names[1]}, problem)
    async with running(deletions):
        for info in infos:
            deletions.schedule(version_of(info))
        with pytest.raises(type(problem)):
            await deletions.flush()
        assert (set(access.objects), deletions.paths(), deletions.refused) == ({"1"}, [b"checkpoints/1"], 1)
        assert len(access.times("REFUSED")) <= 2 + count.bit_length(), "whoever waits has it tried once more"
        assert len(access.times("DELETE")) <= count.bit_length()


async def test_what_another_node_stores_during_a_division_stays(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    infos = [access.put(name) for name in ("poison", "other")]
    delete = access.delete

    async def refuse_but_carry_out(keys: list[str], *, retry: bool = True) -> None:
        if "poison" in keys:
            if "other" in keys:  # the store deletes it, and another node stores it anew, before it refuses the rest
                access.put("other", "anew", stored_by="another node")
            raise OF_SOME
        await delete(keys, retry=retry)

    access.delete = refuse_but_carry_out  # type: ignore[method-assign]
    async with running(deletions):
        for info in infos:
            deletions.schedule(version_of(info))
        with pytest.raises(RemoteRefusedError):
            await deletions.flush()
    assert access.objects["other"].etag == "anew"
    assert deletions.paths() == [b"checkpoints/poison"]


@pytest.mark.parametrize("problem", [REFUSED, DOWN])
async def test_a_store_that_is_down_is_not_asked_for_each_key(
    deletions: Deletions, access: ScriptedAccess, autojump_clock: MockClock, problem: HoldfastError
) -> None:
    for number in range(100):
        access.put(f"{number}")
    refusing(access, {f"{number}" for number in range(100)}, problem)
    async with running(deletions):
        for info in list(access.objects.values()):
            deletions.schedule(version_of(info))
        await trio.sleep(5)
    assert len(access.times("REFUSED")) == 1
    assert deletions.refused == 0


@pytest.mark.promise("refused-again")
async def test_a_key_that_is_refused_is_tried_more_and_more_rarely_and_when_somebody_waits(
    deletions: Deletions, access: ScriptedAccess, index: Index, autojump_clock: MockClock
) -> None:
    access.seconds = 0
    info = access.put("held")
    poison = {"held"}
    refusing(access, poison)
    async with running(deletions):
        deletions.schedule(version_of(info))
        await trio.sleep(24 * 3600)
        tries = access.times("REFUSED")
        pauses = [round(later - earlier) for earlier, later in itertools.pairwise(tries)]
        assert pauses == sorted(pauses)
        assert (pauses[0], pauses[-1]) == (10, 3600)
        deletions.schedule(version_of(access.put("new")))
        await deletions.flush([b"checkpoints/new"])
        assert len(access.times("REFUSED")) == len(tries), "it is in no batch with others"
        poison.clear()
        await deletions.flush()
        assert (access.objects, deletions.refused, noted(index)) == ({}, 0, [])


async def test_a_name_that_is_tried_again_holds_up_no_other(
    index: Index, events: EventLog, directories: ListingCache, autojump_clock: MockClock
) -> None:
    patient = ScriptedAccess(events, deadline_seconds=120)
    deletions = Deletions(patient, index.marks, key_of, DELAY, events, directories, OWNER)
    infos = [patient.put(name) for name in ("slow", "good")]
    head = patient.head

    async def fail_slow(key: str, *, retry: bool = True) -> ObjectInfo:
        if key == "slow":
            raise DOWN
        return await head(key, retry=retry)

    patient.head = fail_slow  # type: ignore[method-assign]
    async with running(deletions):
        for info in infos:
            deletions.schedule(version_of(info))
        await deletions.flush([b"checkpoints/good"])
        assert trio.current_time() < 10
        with pytest.raises(RemoteUnavailableError, match=r"down; gave up after 120 s"):
            await deletions.flush()
        assert 60 < trio.current_time() < 130
        assert noted(index) == [b"checkpoints/slow"]


async def test_nothing_is_put_in_place_of_what_the_store_may_still_delete(
    index: Index, events: EventLog, directories: ListingCache, autojump_clock: MockClock
) -> None:
    patient = ScriptedAccess(events, deadline_seconds=120)
    deletions = Deletions(patient, index.marks, key_of, DELAY, events, directories, OWNER)
    patient.failures.extend([DOWN, DOWN])
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a"))
        await trio.sleep(DELAY + patient.seconds + 0.01)
        assert len(sent(patient)) == 1
        async with deletions.replaced(b"checkpoints/a", by_version=False):
            assert len(sent(patient)) == 3, "it was deleted first"


# --- over the end of the daemon ---------------------------------------------------------------------------------------


async def test_deletions_of_an_earlier_run_are_sent_at_once(
    deletions: Deletions, access: ScriptedAccess, index: Index, events: EventLog, autojump_clock: MockClock
) -> None:
    deletions.schedule(known(b"checkpoints/a"))
    deletions.schedule(known(b"checkpoints/b"))
    later = Deletions(access, index.marks, key_of, DELAY, events, ListingCache(access), OWNER)
    for version in index.marks.deletions():
        later.restore(version)
    assert later.pending(b"checkpoints/a")
    async with running(later):
        await trio.sleep(access.seconds)
        assert sent(access) == [(0, ["a", "b"])]
        await trio.sleep(access.seconds)
        assert noted(index) == []


async def test_a_deletion_that_the_end_of_the_daemon_cut_short_is_kept(
    deletions: Deletions, access: ScriptedAccess, index: Index, autojump_clock: MockClock
) -> None:
    async with running(deletions):
        deletions.schedule(known(b"checkpoints/a"))
        await trio.sleep(DELAY + 0.1)
        assert len(access.asked) == 1
    assert noted(index) == [b"checkpoints/a"]
    assert deletions.pending(b"checkpoints/a")
    async with running(deletions):
        await deletions.flush()
    assert noted(index) == []


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("etag", ["", "1"], ids=["DELETE", "HEAD"])
async def test_a_failure_that_was_dealt_with_is_not_kept_either(
    access: ScriptedAccess, autojump_clock: MockClock, without_collector: None, etag: str
) -> None:
    class TracedError(RemoteUnavailableError):
        pass

    access.failures.append(TracedError("down"))
    access.seconds = 0.0  # from Python 3.13 on, a sleep that ends keeps the frames of its callers until the collector comes
    outcome = await delete_unchanged(access, {"key": known(b"checkpoints/key", etag)}, OWNER, lambda _: 0)
    assert list(outcome.problems) == ["key"]
    del outcome
    assert not [each for each in gc.get_objects() if isinstance(each, TracedError)]
