"""A cache miss: the fetch behind an open of a node that has no file here.

1. The listing tells what the store has, or the store is asked.
2. The fetch of the object is joined or started (``transfer.fetch``).
3. A small file is awaited until it is complete and in the tree, a large one only until it has a descriptor to read from.
4. If the object turns out to be another version, or gone, the store is asked again, and the caller retries.
"""

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
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.node import Node, path_of
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.fs.remote_view.revalidation import Revalidation
from holdfast.system.file_id import file_stat
from holdfast.system.waits import before_waiting
from holdfast.telemetry import OBSERVED, waiting_for
from holdfast.transfer import KnownObject, PartialFetch

TRIES = 3


class CacheMiss:
    """Fetches what an open needs. The caller holds the node's lock.

    Files of at least ``read_while_arriving_bytes`` can be read during the fetch.
    """

    def __init__(self, base: Foundation, revalidation: Revalidation) -> None:
        self._view, self._policy, self._nodes, self._fetcher = base.view, base.policy, base.nodes, base.fetcher
        self._revalidation = revalidation
        self._counters = base.parts.counters
        self._read_while_arriving_bytes = int(base.parts.config.remote.read_while_arriving_bytes)

    async def open(self, node: Node, *, truncate: bool, was_corrupt: bool) -> bool:
        """Fetch a node that has no file. Returns True if it is open, or bound to its file; False if the caller must retry.

        Small files are fetched whole. Raises ``NoSuchEntryError``, ``RemoteError``, and ``CorruptEntryError`` if the only
        copy ``was_corrupt``.
        """
        try:
            arrival = await self._fetch(node)
            arrival.hold()
            try:
                if arrival.known.size_bytes < self._read_while_arriving_bytes or truncate:
                    with waiting_for("fetch"):
                        await arrival.wait_whole()
                    if arrival.detached or (node.opened is None and node.backing == arrival.inode):
                        _open_arrival(node, arrival)
                else:
                    with waiting_for("fetch"):
                        await arrival.wait_staged()
                    _open_arrival(node, arrival)
            except (ObjectChangedError, ObjectMissingError):
                await self.refresh(node)
                return False
            finally:
                arrival.let_go()
        except NoSuchEntryError:
            raise _no_copy(node, was_corrupt) from None
        self._counters.misses += 1
        if (notes := OBSERVED.get()) is not None:
            notes.is_miss, notes.fetched_bytes = True, arrival.known.size_bytes
        return True

    async def fetch_whole(self, node: Node, *, was_corrupt: bool) -> None:
        """Return when the node is bound to its file, in whichever version the store has then. Raises as ``open`` does."""
        for _ in range(TRIES):
            try:
                arrival = await self._fetch(node)
                try:
                    return await arrival.wait_whole()
                except (ObjectChangedError, ObjectMissingError):
                    await self.refresh(node)
            except NoSuchEntryError:
                raise _no_copy(node, was_corrupt) from None
        raise changes_too_fast(node)

    async def fetch_again(self, opened: OpenFile) -> None:
        """Replace the failed fetch behind an open file by a new one, for all its handles.

        Raises ``StaleNodeError`` if the store has another version and part of the old one was read. The two must not be
        mixed, so the name gets a new node.
        """
        arrival = await self._fetch(opened.node)
        if opened.served and opened.arrival is not None and arrival.known.etag != opened.arrival.known.etag:
            self.drop_name(opened.node)
            raise StaleNodeError("the file was replaced while it was read")
        arrival.hold()
        try:
            await arrival.wait_staged()
            opened.arrives_anew_by(arrival)
        finally:
            arrival.let_go()

    async def refresh(self, node: Node) -> KnownObject:
        """Ask the store again about an object that differs from the cached listing. Raises ``NoSuchEntryError``."""
        if node.parent is None:
            raise StaleNodeError("the file was removed")
        known = await self._revalidation.known_object_of(node)
        if known is None:
            self.drop_name(node)
            raise NoSuchEntryError(f"{os.fsdecode(node.name)} is no longer in the store")
        return known

    def drop_name(self, node: Node) -> None:
        """Drop the name, which now stands for another object. Its next lookup makes a new node."""
        path = path_of(node)
        if path is not None:
            self._nodes.drop_path(path)

    async def _fetch(self, node: Node) -> PartialFetch:
        """Return the fetch of the node's object, started or joined."""
        await before_waiting()
        if node.parent is None:
            raise StaleNodeError("the file was removed")
        name = self._policy.name(node.parent, node.name)
        known = self._view.listing(name.place).object(name.name) or await self.refresh(node)
        return self._fetcher.fetch(self._view.object_of(name), known)


def _open_arrival(node: Node, arrival: PartialFetch) -> None:
    opened = OpenFile(node, os.dup(arrival.fd), file_stat(arrival.fd), writable=True)
    if not arrival.finished:
        opened.arrives_by(arrival)
    node.opened = opened
    node.cache_is_stale = True  # the kernel's pages may be of another version


def _no_copy(node: Node, was_corrupt: bool) -> HoldfastError:
    if was_corrupt:
        return CorruptEntryError(f"{os.fsdecode(node.name)} was corrupt, and there is no other copy")
    return NoSuchEntryError(f"{os.fsdecode(node.name)} is no longer in the store")


def changes_too_fast(node: Node) -> ObjectChangedError:
    """Return the error for a node whose object has changed during each of ``TRIES``."""
    return ObjectChangedError(f"{os.fsdecode(node.name)} changes faster than it can be fetched")
