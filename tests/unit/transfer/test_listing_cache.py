"""Cached listings: how old one may be, when the store is asked, and what happens while a LIST is pending."""

from __future__ import annotations

import gc
import math
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from holdfast.errors import RemoteRefusedError, RemoteUnavailableError
from holdfast.remote import Capabilities, ObjectInfo
from holdfast.telemetry import EventLog
from holdfast.transfer import CachedListing, KnownObject, ListingCache, listing_cache
from tests.support.stores.scripted_access import ScriptedAccess

DOWN = RemoteUnavailableError("down")
REFUSED = RemoteRefusedError("refused")


@pytest.fixture
def access() -> ScriptedAccess:
    return ScriptedAccess(EventLog(lambda: 0.0))


@pytest.fixture
def directory(access: ScriptedAccess) -> CachedListing:
    return CachedListing(access, "query/offsets")


def info(name: str, etag: str = "mine") -> ObjectInfo:
    return ObjectInfo(f"query/offsets/{name}", 5, etag, 7)


def names(directory: CachedListing) -> dict[bytes, bool]:
    return dict(directory.names())


async def now() -> float:
    """Return the time, after letting some pass, so that nothing that came before is as young."""
    await trio.sleep(0.001)
    return trio.current_time()


# --- asking -----------------------------------------------------------------------------------------------------------


def test_a_new_listing_knows_nothing(directory: CachedListing) -> None:
    assert directory.listed_at == -math.inf
    assert not directory.exists
    assert len(directory) == 0
    assert directory.object(b"0") is None
    assert not directory.has_directory(b"0")


async def test_one_list_tells_of_all_names(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.put("0", "etag-0", size_bytes=3)
    access.put("käse")
    access.directories = {"deeper", "both"}
    access.put("both")
    await directory.ask(trio.current_time())
    assert names(directory) == {b"0": False, "käse".encode(): False, b"deeper": True, b"both": True}
    assert directory.object(b"0") == KnownObject(3, 10**18, "etag-0")
    assert directory.object(b"deeper") is None
    assert directory.has_directory(b"deeper")
    assert not directory.has_directory(b"0")
    assert (directory.exists, len(directory)) == (True, 4)
    assert access.asked == [(0.0, "LIST", "query/offsets")]


@pytest.mark.parametrize(("marker", "exists"), [(False, False), (True, True)])
async def test_an_empty_directory_exists_if_the_store_says_so(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock, marker: bool, exists: bool
) -> None:
    access.marker = marker
    await directory.ask(trio.current_time())
    assert directory.exists is exists


async def test_a_listing_is_as_old_as_the_beginning_of_its_list(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.seconds = 10
    await trio.sleep(5)
    await directory.ask(5)
    assert (trio.current_time(), directory.listed_at) == (15, 5)
    await directory.ask(5)
    assert access.times("LIST") == [5]
    await directory.ask(5.1)
    assert access.times("LIST") == [5, 15]


async def test_a_listing_that_is_young_enough_costs_nothing(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    await directory.ask(trio.current_time())
    with trio.testing.assert_no_checkpoints():
        await directory.ask(trio.current_time() - 1.0)
    assert len(access.asked) == 1


async def test_many_who_ask_at_once_share_one_list(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(directory.ask, trio.current_time())
    assert access.times("LIST") == [0]
    assert trio.current_time() == 1


async def test_who_asks_during_a_list_needs_one_that_begins_later(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    async def ask_during() -> None:
        await trio.sleep(0.5)
        access.put("new")
        await directory.ask(trio.current_time())
        assert directory.object(b"new") is not None

    async with trio.open_nursery() as nursery:
        nursery.start_soon(directory.ask, 0.0)
        for _ in range(5):
            nursery.start_soon(ask_during)
    assert access.times("LIST") == [0, 1]


# --- stores that do not answer ----------------------------------------------------------------------------------------


async def test_who_retries_tries_again_until_the_store_answers(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.failures.extend([DOWN, DOWN, DOWN])
    await directory.ask(0.0)
    assert len(access.asked) == 4
    assert directory.listed_at == access.times("LIST")[-1]


async def test_who_retries_gives_up_at_the_deadline(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.failures.extend([DOWN] * 1000)
    with pytest.raises(RemoteUnavailableError, match=r"down; gave up after 120 s and \d+ tries"):
        await directory.ask(0.0)
    assert 110 <= trio.current_time() <= 121
    assert directory.listed_at == -math.inf


async def test_who_does_not_retry_asks_once(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.failures.append(DOWN)
    with pytest.raises(RemoteUnavailableError, match=r"down$"):
        await directory.ask(0.0, retry=False)
    assert len(access.asked) == 1


async def test_a_refusal_is_final(directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock) -> None:
    access.failures.append(REFUSED)
    with pytest.raises(RemoteRefusedError):
        await directory.ask(0.0)
    assert len(access.asked) == 1


async def test_who_does_not_retry_never_waits_for_those_who_do(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.failures.extend([DOWN] * 1000)
    async with trio.open_nursery() as nursery:

        async def ask_with_retries() -> None:
            with pytest.raises(RemoteUnavailableError):
                await directory.ask(0.0)

        nursery.start_soon(ask_with_retries)
        await trio.sleep(30)
        began = trio.current_time()
        with pytest.raises(RemoteUnavailableError):
            await directory.ask(began, retry=False)
        assert trio.current_time() - began <= 2 * access.seconds
        assert trio.current_time() < 35


async def test_many_who_do_not_retry_hear_of_one_failure_together(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.failures.append(DOWN)
    access.seconds = 60
    failed = 0

    async def ask() -> None:
        nonlocal failed
        with pytest.raises(RemoteUnavailableError):
            await directory.ask(0.0, retry=False)
        failed += 1

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(ask)
    assert (failed, len(access.asked), trio.current_time()) == (10, 1, 60)


async def test_a_failed_list_wakes_those_who_wait_for_a_later_one(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.failures.append(REFUSED)

    async def refused() -> None:
        with pytest.raises(RemoteRefusedError):
            await directory.ask(0.0)

    async def ask_during() -> None:
        await trio.sleep(0.5)
        await directory.ask(trio.current_time(), retry=False)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(refused)
        nursery.start_soon(ask_during)
        nursery.start_soon(ask_during)
    assert access.times("LIST") == [0, 1]
    assert directory.listed_at == 1


async def test_a_failure_that_was_dealt_with_is_not_kept(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock, without_collector: None
) -> None:
    class TracedError(RemoteUnavailableError):
        pass

    access.failures.append(TracedError("down"))
    access.seconds = 0.0  # from Python 3.13 on, a sleep that ends keeps the frames of its callers until the collector comes
    with suppress(TracedError):
        await directory.ask(trio.current_time(), retry=False)
    assert not [each for each in gc.get_objects() if isinstance(each, TracedError)]


async def test_those_who_wait_ask_themselves_when_the_one_who_asked_is_cancelled(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.put("0")

    async def ask_and_leave() -> None:
        with trio.move_on_after(0.5):
            await directory.ask(0.0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask_and_leave)
        await trio.sleep(0.1)
        for _ in range(3):
            nursery.start_soon(directory.ask, 0.0)
    assert access.times("LIST") == [0, 0.5]
    assert names(directory) == {b"0": False}


async def test_a_failure_leaves_the_listing_as_it_was(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.put("0")
    await directory.ask(0.0)
    access.objects.clear()
    access.failures.append(DOWN)
    with pytest.raises(RemoteUnavailableError):
        await directory.ask(trio.current_time(), retry=False)
    assert names(directory) == {b"0": False}
    assert directory.listed_at == 0


# --- changes of this node ---------------------------------------------------------------------------------------------


def test_what_this_node_does_counts_at_once(directory: CachedListing) -> None:
    directory.put(b"0", info("0"))
    directory.put_directory(b"deeper")
    assert directory.object(b"0") == KnownObject(5, 7, "mine")
    assert names(directory) == {b"0": False, b"deeper": True}
    assert directory.exists
    directory.remove(b"0")
    directory.remove(b"never there")
    assert names(directory) == {b"deeper": True}
    assert directory.listed_at == -math.inf, "it is no answer of the store's"


async def test_changes_made_during_a_list_are_played_over_its_answer(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.put("stays")
    access.put("removed")
    access.put("replaced", "old")
    access.put("came and went")
    access.directories = {"emptied"}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(directory.ask, 0.0)
        await trio.sleep(0.5)
        directory.put(b"made", info("made"))
        directory.remove(b"removed")
        directory.put(b"replaced", info("replaced"))
        directory.put(b"came and went", info("x"))
        directory.remove(b"came and went")
        directory.put_directory(b"new")
        directory.remove(b"emptied")
    assert names(directory) == {b"stays": False, b"made": False, b"replaced": False, b"new": True}
    known = directory.object(b"replaced")
    assert known is not None
    assert known.etag == "mine"


async def test_a_directory_that_was_known_already_is_noted_during_a_list_too(
    directory: CachedListing, autojump_clock: MockClock
) -> None:
    directory.put_directory(b"partition")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(directory.ask, 0.0)
        await trio.sleep(0.5)
        directory.put_directory(b"partition")  # something was stored below it just now: the LIST may not show it
    assert names(directory) == {b"partition": True}
    assert directory.exists


async def test_changes_are_played_over_one_list_only(directory: CachedListing, autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(directory.ask, 0.0)
        await trio.sleep(0.5)
        directory.put(b"0", info("0"))
    assert names(directory) == {b"0": False}
    await directory.ask(await now())
    assert names(directory) == {}, "another node has deleted it"


async def test_changes_are_not_lost_with_a_list_that_fails(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.failures.append(REFUSED)
    async with trio.open_nursery() as nursery:

        async def refused() -> None:
            with pytest.raises(RemoteRefusedError):
                await directory.ask(0.0)

        nursery.start_soon(refused)
        await trio.sleep(0.5)
        directory.put(b"0", info("0"))
    assert names(directory) == {b"0": False}


async def test_a_directory_made_here_is_known_to_be_empty(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.put("0")
    await directory.ask(0.0)
    await trio.sleep(1)
    directory.believe_empty()
    assert (names(directory), directory.exists, directory.listed_at) == ({}, False, trio.current_time())
    with trio.testing.assert_no_checkpoints():
        await directory.ask(trio.current_time())


steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "remove", "directory", "other puts", "other removes", "ask", "wait"]),
        st.sampled_from(["a", "b", "c"]),
        st.floats(0, 2, allow_nan=False),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
async def test_what_this_node_did_last_always_counts(
    access: ScriptedAccess, autojump_clock: MockClock, steps: list[tuple[str, str, float]]
) -> None:
    directory = CachedListing(access, "")
    access.objects, access.directories = {}, set()
    last: dict[str, str] = {}
    async with trio.open_nursery() as nursery:
        for kind, name, seconds in steps:
            if kind == "put":
                access.directories.discard(name)
                directory.put(name.encode(), access.put(name, "mine"))
                last[name] = "object"
            elif kind == "remove":
                access.objects.pop(name, None)
                access.directories.discard(name)
                directory.remove(name.encode())
                last[name] = "nothing"
            elif kind == "directory":
                access.objects.pop(name, None)
                access.directories.add(name)
                directory.put_directory(name.encode())
                last[name] = "directory"
            elif kind == "other puts" and name not in last:
                access.put(name, "theirs")
            elif kind == "other removes" and name not in last:
                access.objects.pop(name, None)
            elif kind == "ask":
                nursery.start_soon(directory.ask, trio.current_time())
            else:
                await trio.sleep(seconds)
            for mine, what in last.items():
                assert (directory.object(mine.encode()) is not None) is (what == "object")
                assert directory.has_directory(mine.encode()) is (what == "directory")
    await directory.ask(await now())
    assert names(directory) == {
        **{name.encode(): False for name in access.objects},
        **{name.encode(): True for name in access.directories},
    }


# --- many directories -------------------------------------------------------------------------------------------------


def test_a_directory_is_known_once(access: ScriptedAccess) -> None:
    known = ListingCache(access)
    assert known.get("a") is known.get("a")
    assert known.get("a") is not known.get("b")
    assert known.get("a").key == "a"


def test_a_directory_is_forgotten_with_all_below_it(access: ScriptedAccess) -> None:
    known = ListingCache(access)
    before = {key: known.get(key) for key in ("", "a", "a/b", "a/b/c", "ab", "b/a")}
    known.forget_below("a")
    assert {key for key, directory in before.items() if known.get(key) is directory} == {"", "ab", "b/a"}
    known.forget_below("")
    assert known.get("ab") is not before["ab"]


def test_the_longest_unused_directories_are_forgotten(access: ScriptedAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_cache, "_MOST_NAMES", 1000)
    known = ListingCache(access)
    for number in range(256):
        directory = known.get(str(number))
        for name in range(10):
            directory.put(b"%d" % name, info(str(name)))
    kept = known.get("0")
    known.get("256")
    assert known.get("0") is kept
    assert len(kept) == 10
    assert len(known.get("1")) == 0, "forgotten"
    assert len(known.get("255")) == 10


def test_directories_without_names_are_forgotten_too(access: ScriptedAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_cache, "_MOST_NAMES", 1000)
    known = ListingCache(access)
    first = known.get("0")
    for number in range(1, 2000):
        known.get(str(number))
    last = known.get("1999")
    assert known.get("1999") is last
    assert known.get("0") is not first, "forgotten"


def test_directories_in_use_are_kept_however_large_they_are(access: ScriptedAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_cache, "_MOST_NAMES", 5)
    known = ListingCache(access)
    for number in range(255):
        known.get(str(number))
    large = known.get("large")
    for name in range(10):
        large.put(b"%d" % name, info(str(name)))
    known.get("next")
    assert known.get("large") is large


# --- asking about one name --------------------------------------------------------------------------------------------


async def test_one_name_is_asked_about_with_a_head(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.put("0", "etag-0", size_bytes=3)
    await directory.ask_about(b"0", "query/offsets/0", retry=False)
    assert directory.object(b"0") == KnownObject(3, 10**18, "etag-0")
    assert access.asked == [(0.0, "HEAD", "query/offsets/0")]


@pytest.mark.parametrize("is_there", [False, True])
async def test_what_is_no_object_may_be_a_directory(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock, is_there: bool
) -> None:
    access.directories = {"deeper"} if is_there else set()
    directory.put(b"deeper", info("deeper"))
    await directory.ask_about(b"deeper", "query/offsets/deeper", retry=False)
    assert directory.object(b"deeper") is None
    assert directory.has_directory(b"deeper") is is_there
    assert [kind for _, kind, _ in access.asked] == ["HEAD", "LIST"]


async def test_what_this_node_did_meanwhile_counts_more_than_the_head(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(directory.ask_about, b"0", "query/offsets/0", retry=False))
        await trio.sleep(access.seconds / 2)
        directory.put(b"0", info("0", "mine"))
    assert directory.object(b"0") == KnownObject(5, 7, "mine")


async def test_what_this_node_has_stored_and_removed_meanwhile_is_not_brought_back_by_the_head(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    access.put("0", "mine")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(directory.ask_about, b"0", "query/offsets/0", retry=False))
        await trio.sleep(access.seconds / 2)
        directory.put(b"0", info("0", "mine"))
        directory.remove(b"0")
    assert b"0" not in directory


async def test_of_two_questions_about_a_name_the_later_one_counts_whichever_is_answered_first(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    for seconds_of_first in (0.3, 3.0):
        access.objects.clear()
        directory.put(b"0", info("0", "old"))
        access.seconds = seconds_of_first
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(directory.ask_about, b"0", "query/offsets/0", retry=False))
            await trio.sleep(0.5)
            access.put("0", "new", size_bytes=3)
            access.seconds = 1.0
            nursery.start_soon(partial(directory.ask_about, b"0", "query/offsets/0", retry=False))
        assert directory.object(b"0") == KnownObject(3, 10**18, "new")


@pytest.mark.parametrize(("of_head", "of_list"), [(3.0, 1.0), (1.0, 3.0)], ids=["list first", "head first"])
async def test_a_list_that_began_later_counts_more_than_the_head_whichever_answers_first(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock, of_head: float, of_list: float
) -> None:
    access.put("0", "old")
    access.seconds = of_head
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(directory.ask_about, b"0", "query/offsets/0", retry=False))
        await trio.sleep(0.5)
        access.put("0", "new", size_bytes=3)
        access.seconds = of_list
        await directory.ask(trio.current_time())
    assert directory.object(b"0") == KnownObject(3, 10**18, "new")


async def test_a_name_that_can_not_be_asked_about_stays_as_it_was(
    directory: CachedListing, access: ScriptedAccess, autojump_clock: MockClock
) -> None:
    directory.put(b"0", info("0"))
    access.failures.append(DOWN)
    with pytest.raises(RemoteUnavailableError):
        await directory.ask_about(b"0", "query/offsets/0", retry=False)
    assert directory.object(b"0") == KnownObject(5, 7, "mine")


def listing_is_worth(access: ScriptedAccess, names: int, *, for_others: bool, cheap_head: bool = False) -> bool:
    access.store = cast(Any, SimpleNamespace(capabilities=Capabilities(True, True, True, True, cheap_head)))
    directory = CachedListing(access, "query")
    for number in range(names):
        directory.put(b"%d" % number, info("0"))
    return directory.is_worth_listing(for_others=for_others)


def test_a_list_that_serves_others_is_worth_more(access: ScriptedAccess) -> None:
    assert listing_is_worth(access, 4999, for_others=True)
    assert not listing_is_worth(access, 5000, for_others=True)
    assert listing_is_worth(access, 999, for_others=False)
    assert not listing_is_worth(access, 1000, for_others=False)


def test_a_list_is_worth_little_where_a_head_is_cheap(access: ScriptedAccess) -> None:
    assert listing_is_worth(access, 63, for_others=False, cheap_head=True)
    assert not listing_is_worth(access, 64, for_others=False, cheap_head=True)
    assert listing_is_worth(access, 4999, for_others=True, cheap_head=True)
