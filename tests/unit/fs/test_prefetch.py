"""Directories that are listed ahead when a query begins: which, and how often the store is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from holdfast.config import Durability
from holdfast.fs.file_io import prefetch
from holdfast.fs.file_io.prefetch import Prefetcher
from holdfast.telemetry import EventLog
from holdfast.transfer import CachedListing, ListingCache
from holdfast.zones import Fallbacks, ZoneMap, ZonePath
from tests.support.stores.scripted_access import ScriptedAccess

_TOGETHER = {f"query/{name}" for name in ("offsets", "commits", "sources/0", "state", "state/0/_metadata")}


class Query:
    """A query's directory in a store that answers after 30 ms and is believed for a second."""

    def __init__(self) -> None:
        self.access = ScriptedAccess(EventLog(lambda: 0.0))
        self.access.directories, self.access.seconds = {"offsets"}, 0.03
        self.partitions = [b"checkpoints/query/state/0/%d" % number for number in (0, 1, 2, 100)]
        self._listings = ListingCache(self.access)
        self._zones = ZoneMap({"checkpoints": Durability.COMMIT}, [b"work"], lambda _: Fallbacks(None, None))
        fake: Any = SimpleNamespace(
            listing=self.listing,
            place=lambda _: self.place(""),
            inode=lambda path: self.partitions.count(path),
            open_directory=self.open_directory,
            of_listing=lambda _: 1.0,
        )
        parts = SimpleNamespace(zones=self._zones, store=SimpleNamespace(tree=fake))
        base: Any = SimpleNamespace(view=fake, policy=None, directories=fake, parts=parts, fetcher=None, ttl=fake)
        self.prefetcher = Prefetcher(base)

    def open_directory(self, path: bytes) -> int:
        """There is nothing of the query's state on this node."""
        raise FileNotFoundError(path)

    def place(self, directory: str) -> ZonePath:
        place = self._zones.place_of(f"checkpoints/query/{directory}".rstrip("/").encode())
        assert place is not None
        return place

    def listing(self, place: ZonePath) -> CachedListing:
        return self._listings.get(place.zone.key_of(place.path).decode())

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """List the query's own directory, and open ``metadata`` in it."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.prefetcher.run)
            await self.listing(self.place("")).ask(trio.current_time())
            self.access.asked.clear()
            node: Any = SimpleNamespace(name=b"metadata", parent=self)
            self.prefetcher.opened(node, -1)
            yield
            nursery.cancel_scope.cancel()

    async def asked(self, directory: str) -> list[str]:
        """List a directory as a user does; return what the store was asked for that, and ahead of what comes."""
        self.access.asked.clear()
        self.prefetcher.listed(self.place(directory))
        await self.listing(self.place(directory)).ask(trio.current_time() - 1.0)
        await trio.testing.wait_all_tasks_blocked()
        return sorted(str(what) for _, _, what in self.access.asked)


async def test_what_is_listed_when_a_query_begins_is_listed_at_once(autojump_clock: MockClock) -> None:
    query = Query()
    async with query.open():
        await trio.testing.wait_all_tasks_blocked()
        assert {what for _, _, what in query.access.asked} == _TOGETHER
        await trio.sleep(0.4)
        assert await query.asked("commits") == []


async def test_a_listing_in_the_beginning_renews_the_others_before_they_are_too_old(autojump_clock: MockClock) -> None:
    query = Query()
    async with query.open():
        await trio.sleep(0.7)
        assert set(await query.asked("commits")) == _TOGETHER, "they are half as old as they may be"
        await trio.sleep(0.7)
        assert await query.asked("state") == []
        await trio.sleep(0.7)
        assert await query.asked("state") == ["query/state"], "on a busy machine each is listed when it is asked for"


async def test_partitions_that_are_here_are_listed_before_their_tasks_begin(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of other nodes cost nothing here, nor those whose turn is far off."""
    monkeypatch.setattr(prefetch, "_IN_TURN", 2)
    query = Query()
    async with query.open():
        await trio.sleep(3)
        assert await query.asked("state/0/0") == ["query/state/0/0", "query/state/0/1", "query/state/0/2"]
        assert await query.asked("state/0/1") == []
        await trio.sleep(0.9)
        assert await query.asked("state/0/2") == []
        assert await query.asked("state/1/0") == ["query/state/1/0"]


async def test_a_query_that_runs_lists_each_directory_for_itself(autojump_clock: MockClock) -> None:
    query = Query()
    async with query.open():
        await trio.sleep(30.1)
        assert await query.asked("offsets") == ["query/offsets"]
        assert await query.asked("state/0/0") == ["query/state/0/0"]
