"""Nodes that have no file here: the fetch behind an open, whole first or while it is read."""

from __future__ import annotations

import os

from holdfast.errors import (
    CorruptEntryError,
    HoldfastError,
    NoSuchEntryError,
    ObjectChangedError,
    ObjectMissingError,
    StaleNodeError,
)
from holdfast.fs.inodes.core import Core
from holdfast.fs.inodes.nodes import Node, path_of
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.fs.remote_view.revalidation import Revalidation
from holdfast.transfer import KnownObject, PartialFetch

TRIES = 3


class CacheMiss:
    """Fetches what an open needs. The caller holds the node's lock, but for ``go_on``."""

    def __init__(self, core: Core, beliefs: Revalidation) -> None:
        self._core = core
        self._beliefs = beliefs

    async def open(self, node: Node, truncate: bool, was_corrupt: bool) -> bool:
        """Fetch a node that has no file; True when it is open, or bound to its file, now. A small one is fetched whole.

        Raises ``NoSuchEntryError``, ``CorruptEntryError`` when the copy that ``was_corrupt`` was the only one, and
        ``RemoteError``.
        """
        try:
            return await self._open(node, truncate)
        except NoSuchEntryError:
            raise _no_copy(node, was_corrupt) from None

    async def fetch_whole(self, node: Node, was_corrupt: bool) -> None:
        """Return when the node is bound to its file, in whichever version the store has by then. Raises as ``open`` does."""
        for _ in range(TRIES):
            try:
                arrival = await self._arrival(node)
                try:
                    return await arrival.wait_whole()
                except (ObjectChangedError, ObjectMissingError):
                    await self._refresh(node)
            except NoSuchEntryError:
                raise _no_copy(node, was_corrupt) from None
        raise restless(node)

    async def _open(self, node: Node, truncate: bool) -> bool:
        arrival = await self._arrival(node)
        arrival.hold()
        try:
            if arrival.known.size_bytes < self._core.config.remote.read_while_arriving_bytes or truncate:
                await arrival.wait_whole()
                if arrival.detached:
                    _open_arrival(node, arrival)
            else:
                await arrival.wait_staged()
                _open_arrival(node, arrival)
        except (ObjectChangedError, ObjectMissingError):
            await self._refresh(node)
            return False
        finally:
            arrival.let_go()
        self._core.counters.misses += 1
        return True

    async def fetch_again(self, opened: OpenFile) -> None:
        """The fetch behind an open file failed: let all its handles go on with a new one.

        Raises ``StaleNodeError`` when the store has another version by now, and somebody has read of the old one: they must
        not be mixed, so the name gets a new node.
        """
        arrival = await self._arrival(opened.node)
        if opened.served and opened.arrival is not None and arrival.known.etag != opened.arrival.known.etag:
            self._take_name(opened.node)
            raise StaleNodeError("the file was replaced while it was read")
        arrival.hold()
        try:
            await arrival.wait_staged()
            opened.change_arrival(arrival)
        finally:
            arrival.let_go()

    async def go_on(self, opened: OpenFile, failed: PartialFetch) -> None:
        """The object was replaced in the store, or removed, while ``opened`` arrived by ``failed``: fetch the new version.

        Raises ``ObjectChangedError`` when there is none, or when some of the old one was read already; the name leads to a
        new node then.
        """
        node = opened.node
        async with self._core.lock(node):
            if opened.arrival is not failed:
                return  # another reader was here first
            if not opened.served:
                try:
                    await self._refresh(node)
                    await self.fetch_again(opened)
                    return
                except (NoSuchEntryError, StaleNodeError):
                    pass  # there is none any more
            if node.is_named:
                self._take_name(node)
            path = os.fsdecode(failed.target.path)
            if not failed.reported:
                failed.reported = True
                self._core.events.emit("replaced-while-read", path=path)
            raise ObjectChangedError(f"{path} was replaced or removed in the store while it was read; open it again")

    def _take_name(self, node: Node) -> None:
        path = path_of(node)
        if path is not None:
            self._core.nodes.drop_path(path)

    async def _arrival(self, node: Node) -> PartialFetch:
        core = self._core
        if node.parent is None:
            raise StaleNodeError("the file was removed")
        place = core.directories.place(node.parent)
        known = core.listing(place).object(node.name) or await self._refresh(node)
        return core.fetcher.fetch(core.object_at(place, node.name), known)

    async def _refresh(self, node: Node) -> KnownObject:
        """Ask the store again about an object that is not what was believed. Raises ``NoSuchEntryError``."""
        if node.parent is None:
            raise StaleNodeError("the file was removed")
        place = self._core.directories.place(node.parent)
        known = await self._beliefs.known_object(place, node.name)
        if known is None:
            self._take_name(node)
            raise NoSuchEntryError(f"{os.fsdecode(node.name)} is no longer in the store")
        return known


def _open_arrival(node: Node, arrival: PartialFetch) -> None:
    opened = OpenFile(node, os.dup(arrival.fd), os.fstat(arrival.fd), writable=True)
    if not arrival.finished:
        opened.arrival = arrival
        arrival.hold()
        node.cache_is_stale = True  # what is read from now on is of this version
    node.opened = opened


def _no_copy(node: Node, was_corrupt: bool) -> HoldfastError:
    if was_corrupt:
        return CorruptEntryError(f"{os.fsdecode(node.name)} was corrupt, and there is no other copy")
    return NoSuchEntryError(f"{os.fsdecode(node.name)} is no longer in the store")


def restless(node: Node) -> ObjectChangedError:
    """Return the error of a node whose object is another one after each of ``TRIES``."""
    return ObjectChangedError(f"{os.fsdecode(node.name)} changes faster than it can be fetched")
