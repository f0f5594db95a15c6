"""Waiting for bytes: of open files that are still being fetched, and of nodes that must be local.

A local node is fetched whole, verified and in the tree, for operations that need the file itself.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from holdfast.errors import NoSuchEntryError, ObjectChangedError, ObjectMissingError, StaleNodeError
from holdfast.fs.file_io.cache_miss import TRIES, CacheMiss, changes_too_fast
from holdfast.fs.file_io.digest_check import DigestCheck
from holdfast.fs.file_io.passthrough import Passthrough
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.locks import NodeLocks
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.system.waits import before_waiting
from holdfast.transfer import PartialFetch


class ArrivingFiles:
    """Waits for fetches. The caller must not hold the node's lock: if the object is replaced, it is fetched again here."""

    def __init__(self, base: Foundation, misses: CacheMiss, passthrough: Passthrough) -> None:
        self._locks, self._invalidation, self._events = base.locks, base.invalidation, base.parts.events
        self._misses = misses
        self._passthrough = passthrough

    async def wait_for(self, opened: OpenFile, start: int, end: int) -> None:
        """Return when the bytes ``start`` to ``end`` may be read. Raises the error of the fetch (``HoldfastError``)."""
        await self._wait(opened, lambda arrival: arrival.wait_for(start, end))

    async def wait_whole(self, opened: OpenFile) -> None:
        """Return when all bytes are here and the file is in the tree with its entry. Raises the error of the fetch."""
        await self._wait(opened, PartialFetch.wait_whole)

    async def _wait(self, opened: OpenFile, wait: Callable[[PartialFetch], Awaitable[None]]) -> None:
        """Await ``wait`` on the fetch. If the object was replaced and nothing was read yet, fetch the new version."""
        for _ in range(TRIES):
            arrival = opened.arrival
            if arrival is None:
                return
            await before_waiting()
            try:
                await (wait(arrival) if opened.served or not arrival.outdated else arrival.wait_whole())
            except (ObjectChangedError, ObjectMissingError):
                await self._fetch_new_version(opened, arrival)
                self._invalidate_size(opened, arrival)
                continue
            if arrival.finished and opened.arrival is arrival:
                opened.arrived()
                self._passthrough.resume(opened)
            return
        raise changes_too_fast(opened.node)

    async def _fetch_new_version(self, opened: OpenFile, failed: PartialFetch) -> None:
        """Fetch the new version of an object that was replaced or removed while ``opened`` was fetched by ``failed``.

        Raises ``ObjectChangedError`` if there is none, or if part of the old version was read already; the name then gets a
        new node.
        """
        node = opened.node
        async with self._locks.of(node):
            if opened.arrival is not failed:
                return  # another reader has done it
            if not opened.served:
                try:
                    await self._misses.refresh(node)
                    await self._misses.fetch_again(opened)
                    return
                except (NoSuchEntryError, StaleNodeError):
                    pass  # it was removed
            if node.is_named:
                self._misses.drop_name(node)
            path = os.fsdecode(failed.target.path)
            if not failed.reported:
                failed.reported = True
                self._events.emit("replaced-while-read", path=path)
            raise ObjectChangedError(f"{path} was replaced or removed in the store while it was read; open it again")

    def _invalidate_size(self, opened: OpenFile, before: PartialFetch) -> None:
        """Invalidate the size if the new version is longer, so that the kernel reads to its end.

        Do nothing if it is shorter: the kernel sees the end itself, and an invalidation would make it distrust a short read
        under way.
        """
        if opened.arrival is not None and opened.arrival.known.size_bytes > before.known.size_bytes:
            self._invalidation.attributes_changed(opened.node.id)


@dataclass(eq=False)
class LocalFiles:
    """Makes nodes local for links, renames, changes of attributes and prefetches."""

    misses: CacheMiss
    arriving: ArrivingFiles
    check: DigestCheck
    _locks: NodeLocks

    def is_local(self, node: Node) -> bool:
        """Say whether ``make_local`` has nothing to do: the file is here, whole, and need not be read to be checked."""
        if node.is_directory:
            return True
        if node.backing == 0 or self._locks.is_held(node):
            return False
        opened = node.opened
        return self.check.is_closed_file_checked(node) if opened is None else opened.arrival is None

    async def make_local(self, node: Node) -> None:
        """Return when the node's bytes are whole, verified and in the tree. Raises ``HoldfastError``."""
        if self.is_local(node):
            return
        async with self._locks.of(node):
            was_corrupt = node.backing != 0 and node.opened is None and not await self.check.is_closed_file_intact(node)
            if node.backing == 0:
                await self.misses.fetch_whole(node, was_corrupt=was_corrupt)
                return
        if node.opened is not None:
            await self.arriving.wait_whole(node.opened)
