"""LOOKUP: from a directory and a name to a node, in the tree first, then in the zone's store.

A negative answer is too important to be given from the cache: the store is asked, unless the caller is plainly about to
create the name (``create_hints``). A local file is revalidated only if its name may be replaced and the listing is older
than the metadata TTL.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

import trio

from holdfast.errors import NameNotStorableError, RemoteUnavailableError
from holdfast.fs.inodes import attributes
from holdfast.fs.inodes.attributes import Stat
from holdfast.fs.inodes.caller import NOBODY, Caller
from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.name_policy import Name, NamePolicy
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.fs.inodes.time_to_live import TimeToLive
from holdfast.fs.namespace.object_copies import ObjectCopies
from holdfast.fs.remote_view.create_hints import CreateHints
from holdfast.fs.remote_view.fallback_guard import FallbackGuard
from holdfast.fs.remote_view.object_times import ObjectTimes
from holdfast.fs.remote_view.revalidation import Revalidation
from holdfast.fs.remote_view.store_view import StoreView
from holdfast.fs.remote_view.visibility import Visibility
from holdfast.telemetry import EventLog
from holdfast.transfer import KnownObject


class Found(NamedTuple):
    """A node, its attributes, and for how many seconds the kernel may cache the name and the attributes."""

    node: Node
    stat: Stat
    seconds: float


@dataclass(eq=False)
class Lookup:
    """Finds entries. Does not count references; the code that replies to the kernel does."""

    _directories: Directories
    _nodes: NodeTable
    _policy: NamePolicy
    _ttl: TimeToLive
    _view: StoreView
    _visibility: Visibility
    _guard: FallbackGuard
    _revalidation: Revalidation
    _hints: CreateHints
    _copies: ObjectCopies
    _events: EventLog
    _times: ObjectTimes

    async def find(self, directory: Node, name: bytes, caller: Caller) -> Found | None:
        """Return the entry of ``name``, or None. Raises ``RemoteError`` if only the store knows and it does not answer."""
        try:
            return self.find_nowait(directory, name, caller)
        except trio.WouldBlock:
            found = await self._find_in_zone(self._policy.name(directory, name), caller)
            if found is None:
                return found
            if found.node.is_directory:
                await self._revalidation.renew(self._directories.place(found.node))
            else:
                await self._times.learn(found.node)
            stat = self._directories.stat(directory, name)
            return found if stat is None else self.local(directory, name, stat, found.seconds)

    def find_nowait(self, directory: Node, name: bytes, caller: Caller) -> Found | None:
        """Do what ``find`` does if the store need not be asked. Raises ``trio.WouldBlock`` otherwise."""
        found = self._find_nowait(directory, name, caller)
        if found is None or directory is self._nodes.root:
            return found
        if not found.node.is_directory:
            if found.node.backing in self._times.awaited and self._times.is_unknown(found.node):
                raise trio.WouldBlock
            return found
        if self._revalidation.is_outdated(self._directories.place(found.node)):
            raise trio.WouldBlock
        return found

    def _find_nowait(self, directory: Node, name: bytes, caller: Caller) -> Found | None:
        place = self._directories.place(directory)
        if place.zone.remote is not None:
            return self._find_over_store(self._policy.name(directory, name), caller)
        stat = self._directories.stat(directory, name)
        if stat is None:
            return None
        return self.local(directory, name, stat, self._ttl.of_name_in_kernel(place, None, stat.st_mode))

    def _find_over_store(self, name: Name, caller: Caller) -> Found | None:
        stat = self._directories.stat(name.directory, name.name)
        if self._visibility.is_reserved(name):
            return None
        if caller.uid and not name.zone.is_store and self._guard.hides(name, stat, caller):
            return None
        if stat is None:
            if name.policy.stays_here or self._visibility.hides_object(name):
                return None
            return self._find_cached(name, caller)
        if self._copies.may_be_old(name, stat):
            listing = self._revalidation.fresh_listing(name.place)
            if not self._copies.reconcile(name, stat, listing.object(name.name)):
                raise trio.WouldBlock
            stat = self._directories.stat(name.directory, name.name) or stat
        elif self._nodes.of_backing(stat.st_ino) is None and self._copies.is_spoilt(name.path, stat):
            raise trio.WouldBlock
        return self._local(name, stat)

    def remote(self, name: Name, known: KnownObject | None) -> Found:
        """Return an entry that exists only in the store: an object, or a directory if ``known`` is None."""
        ownership = self._view.ownership_of(name.zone)
        above = self._directories.nearest_stat(name.directory)
        node = self._nodes.remote(name.directory, name.name, name.path, known is None)
        if known is None:
            time_ns = self._directories.implied_times(name.path)
            stat = attributes.of_directory(node, ownership, above, time_ns)
        else:
            stat = attributes.of_object(node, known, ownership, above)
        is_time_known = known is None or known.modified_ns != 0
        return Found(node, stat, self._ttl.in_kernel(name.place) if is_time_known else 0.0)

    def new(self, node: Node, stat: os.stat_result) -> Found:
        """Return the reply for a name that was just created."""
        shown = self._directories.shown(node, stat) if node.is_directory else stat
        return Found(node, shown, self._directories.seconds(node))

    def missing_seconds(self, directory: Node, name: bytes) -> float:
        """Return how long the kernel may cache the answer that ``name`` is not in ``directory``."""
        missing = self._policy.name(directory, name)
        return self._ttl.of_missing_name_in_kernel(missing.place, None if missing.zone.remote is None else missing.kind)

    def is_unknown(self, directory: Node, name: bytes) -> bool:
        """Say whether a name in a zone with a store may be known to the kernel but is unknown here.

        An earlier daemon may have reported it, or its cached listing was dropped since.
        """
        place = self._directories.place(directory)
        if place.zone.remote is None or self._directories.stat(directory, name) is not None:
            return False
        is_known = self._nodes.of_path(place.child_path(name)) is not None
        return not is_known or (place.zone.is_store and name not in self._view.listing(place))

    async def learn(self, directory: Node, name: bytes) -> None:
        """Look up a name that a request uses and that is unknown here, as for a reader."""
        if self.is_unknown(directory, name) and await self.find(directory, name, NOBODY) is None:
            self._nodes.drop_path(self._directories.path(directory, name))

    def _find_cached(self, name: Name, caller: Caller) -> Found | None:
        """Return an entry from the cached listing. Raises ``trio.WouldBlock`` if the store must be asked."""
        place = name.place
        try:
            listing = self._view.listing(place)
        except NameNotStorableError:
            raise trio.WouldBlock from None
        known = listing.object(name.name)
        if known is None and not listing.has_directory(name.name):
            age_seconds = trio.current_time() - listing.listed_at
            if place.zone.is_store and self._hints.is_creating(place.path, name.name, name.kind, caller.pid, age_seconds):
                return None
            raise trio.WouldBlock
        if known is None and self._visibility.may_hide_directory(name):
            raise trio.WouldBlock
        if known is not None and not known.modified_ns:
            raise trio.WouldBlock
        if not place.zone.is_store or (name.policy.revalidated and known is not None):
            self._revalidation.fresh_listing(place)
        return self.remote(name, known)

    async def _find_in_zone(self, name: Name, caller: Caller) -> Found | None:
        stat = self._directories.stat(name.directory, name.name)
        if stat is not None and await self._is_current(name, stat):
            stat = self._directories.stat(name.directory, name.name)  # it may have been evicted while the store was asked
            if stat is not None:
                return self._local(name, stat)
        if name.policy.stays_here or self._visibility.hides_object(name):
            return None
        try:
            await self._revalidation.learn(name)
            is_removed = await self._revalidation.is_removed_directory(name)
        except NameNotStorableError:
            return None
        stat = self._directories.stat(name.directory, name.name)  # may have been fetched while the store was asked
        if stat is not None:
            return self._local(name, stat)
        listing = self._view.listing(name.place)
        known = listing.object(name.name)
        if known is None and (is_removed or not listing.has_directory(name.name)):
            self._hints.answered_missing(name.place.path, name.name, caller.pid)
            return None
        return self.remote(name, known)

    def _local(self, name: Name, stat: os.stat_result) -> Found:
        kind = None if name.zone.remote is None else name.kind
        seconds = self._ttl.of_name_in_kernel(name.place, kind, stat.st_mode)
        return self.local(name.directory, name.name, stat, seconds)

    def local(self, directory: Node, name: bytes, stat: os.stat_result, seconds: float) -> Found:
        """Return an entry that has a file in the tree."""
        node = self._nodes.local(directory, name, stat.st_ino, stat.st_mode)
        shown = self._directories.shown(node, stat) if node.is_directory else attributes.of_file(node, stat)
        return Found(node, shown, seconds)

    async def _is_current(self, name: Name, stat: os.stat_result) -> bool:
        """Say whether the local file is the current version of its object. Drops a copy of an older version."""
        if not self._copies.may_be_old(name, stat):
            return True
        try:
            listing = await self._revalidation.refreshed(name)
        except RemoteUnavailableError:
            self._events.emit("served-unchecked", path=os.fsdecode(name.path))
            return True
        return self._copies.reconcile(name, stat, listing.object(name.name))
