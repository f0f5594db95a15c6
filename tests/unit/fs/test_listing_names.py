"""Which names a listing has if directory, store and cache change while it is made."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from holdfast.fs.namespace import listing as listing_module
from holdfast.fs.namespace.listing import Listings
from holdfast.transfer.computing import read

NODE: Any = SimpleNamespace(id=1, backing=1)
PLACE = SimpleNamespace(zone=SimpleNamespace(is_store=True))


class Cached:
    """A cached listing that knows the names of the store once it has asked."""

    def __init__(self, store: set[bytes]) -> None:
        self._store = store
        self._names: set[bytes] = set()
        self.is_known = False

    async def ask(self, not_before: float) -> None:
        del not_before
        self._names, self.is_known = self._store, True

    def all_names(self) -> list[bytes]:
        return list(self._names)


class World:
    """A directory here, and the same one in a store."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.in_store: set[bytes] = set()
        self.cached = Cached(self.in_store)
        self.while_looking_for_hidden: Callable[[], object] = lambda: None

    async def hidden_names(self, place: object) -> list[bytes]:
        del place
        self.while_looking_for_hidden()
        self.while_looking_for_hidden = lambda: None
        await trio.lowlevel.checkpoint()
        return []

    def forget(self) -> None:
        self.cached = Cached(self.in_store)

    def send_and_evict(self, name: bytes) -> None:
        self.in_store.add(name)
        os.unlink(self.directory / os.fsdecode(name))

    def listings(self, fd: int) -> Listings:
        base = SimpleNamespace(
            directories=SimpleNamespace(place=lambda _: PLACE, descriptor=lambda _: fd),
            nodes=None,
            policy=None,
            ttl=SimpleNamespace(oldest_listing=lambda _: 0.0),
            view=SimpleNamespace(listing=lambda _: self.cached),
            copies=None,
            parts=SimpleNamespace(index=SimpleNamespace(marks=None)),
        )
        visibility = SimpleNamespace(hidden_names=self.hidden_names, shown=lambda _, files: files)
        views = SimpleNamespace(visibility=visibility, object_copies=None)
        return Listings(*cast("tuple[Any, ...]", (base, views, SimpleNamespace(listed=lambda _: None), None)))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def listings(world: World) -> Iterator[Listings]:
    fd = os.open(world.directory, os.O_RDONLY | os.O_DIRECTORY)
    yield world.listings(fd)
    os.close(fd)


async def test_a_file_that_is_sent_and_evicted_while_a_large_directory_is_read_is_listed(
    world: World, listings: Listings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world.directory / "new").touch()

    async def read_late(some: Callable[[], object]) -> object:
        if not world.in_store:
            world.send_and_evict(b"new")
        return await read(some)

    monkeypatch.setattr(listing_module, "_LARGE_DIRECTORY_BYTES", -1)
    monkeypatch.setattr(listing_module, "read", read_late)
    assert set(await listings.names(NODE)) == {b"new"}


async def test_a_listing_that_is_forgotten_while_it_is_used_is_asked_for_again(world: World, listings: Listings) -> None:
    world.in_store.add(b"object")
    world.while_looking_for_hidden = world.forget
    assert set(await listings.names(NODE)) == {b"object"}


async def test_who_shares_a_listing_has_it_though_an_earlier_daemon_s_handle_is_released(
    world: World, listings: Listings
) -> None:
    """Such a handle is not counted. Without its snapshot, who came next got an error for his listing."""
    prepared: list[bool] = []

    async def share() -> None:
        await listings.prepare(NODE, 0)
        prepared.append(NODE.id in listings._snapshots)
        listings.release(NODE.id)

    async with trio.open_nursery() as nursery:

        def let_others_share() -> None:
            for _ in range(2):
                nursery.start_soon(share)

        world.while_looking_for_hidden = let_others_share
        await listings.prepare(NODE, 0)
    assert prepared == [True, True]
