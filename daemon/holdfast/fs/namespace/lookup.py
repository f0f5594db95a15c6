"""LOOKUP: from a directory and a name to a node, in the tree first, then in the zone's store.

A negative answer is too important to be given from the cache: the store is asked, unless the caller is plainly about to
create the name (``create_hints``). A local file is revalidated only if its name may be replaced and the listing is older
than the metadata TTL.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import trio

from holdfast.config import Durability
from holdfast.errors import NameNotStorableError, RemoteUnavailableError
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes import attributes
from holdfast.fs.inodes.attributes import Stat
from holdfast.fs.inodes.caller import NOBODY, Caller
from holdfast.fs.inodes.name_policy import Name
from holdfast.fs.inodes.node import Node
from holdfast.fs.remote_view.views import Views
from holdfast.fs.remote_view.visibility import RESERVED
from holdfast.system.file_id import FileStat
from holdfast.transfer import CachedListing, KnownObject


class Found(NamedTuple):
    """A node, its attributes, and for how many seconds the kernel may cache the name and the attributes."""

    node: Node
    stat: Stat
    seconds: float


class Lookup:
    """Finds entries. Does not count references; the code that replies to the kernel does."""

    def __init__(self, base: Foundation, views: Views) -> None:
        self._directories, self._nodes, self._policy, self._ttl = base.directories, base.nodes, base.policy, base.ttl
        self._view, self._events = base.view, base.parts.events
        self._visibility, self._guard, self._revalidation = views.visibility, views.guard, views.revalidation
        self._hints, self._times, self._copies = views.hints, views.times, views.object_copies

    async def find(self, directory: Node, name: bytes, caller: Caller) -> Found | float:
        """Return the entry of ``name``, or for how many seconds the kernel may cache that there is none.

        Raises ``RemoteError`` if only the store knows and it does not answer.
        """
        place = self._directories.place(directory)
        if place.zone.remote is not None:
            resolved = self._policy.name(directory, name)
            over_store = await self._find_over_store(resolved, caller)
            if over_store is None:
                return self._missing_seconds(resolved)
            found = over_store
        else:
            stat = self._directories.stat(directory, name)
            if stat is None:
                return self._ttl.of_missing_name_in_kernel(place, None)
            found = self.local(directory, name, stat, self._ttl.of_name_in_kernel(place, None, stat.st_mode))
        if directory is self._nodes.root or not await self._learn_times(found.node):
            return found
        stat = self._directories.stat(directory, name)
        return found if stat is None else self.local(directory, name, stat, found.seconds)

    async def _find_over_store(self, name: Name, caller: Caller) -> Found | None:
        stat = self._directories.stat(name.directory, name.name)
        if name.name == RESERVED and self._visibility.is_reserved(name):
            return None
        if caller.uid and not name.zone.is_store and self._guard.hides(name, stat, caller):
            return None
        is_here = stat is not None
        if stat is not None:
            stat = await self._current(name, stat)
            if stat is not None:
                return self._local(name, stat)
        if name.policy.stays_here or self._visibility.hides_object(name):
            return None
        try:
            listing = self._view.listing(name.place)
            if not is_here and self._is_being_created(name, listing, caller):
                self._hints.answered_creator(name.place.path, name.name, caller.pid)
                return None
            was_asked = await self._revalidation.learn(name, listing)
            may_be_removed = self._visibility.may_hide_directory(name)
            is_removed = may_be_removed and await self._revalidation.is_removed_directory(name)
        except NameNotStorableError:
            return None
        if was_asked or may_be_removed:
            stat = self._directories.stat(name.directory, name.name)  # may have been fetched while the store was asked
            if stat is not None:
                return self._local(name, stat)
        listing = self._view.listing(name.place)
        known = listing.object(name.name)
        if known is None and (is_removed or not listing.has_directory(name.name)):
            is_sure = was_asked and name.zone.durability is Durability.COMMIT  # ``async`` goes on without the store
            self._hints.answered_missing(name.place.path, name.name, caller.pid, was_asked=is_sure)
            return None
        return self.remote(name, known)

    def _missing_seconds(self, name: Name) -> float:
        """Return how long the kernel may cache that there is no such name in a zone with a store."""
        if self._directories.place(name.directory) is not name.place:  # it was renamed while the store was asked
            name = self._policy.name(name.directory, name.name)
        return self._ttl.of_missing_name_in_kernel(name.place, None if name.zone.remote is None else name.kind)

    def _is_being_created(self, name: Name, listing: CachedListing, caller: Caller) -> bool:
        """Say whether the caller looks up an unknown name of a store's zone because it is about to create it."""
        if not name.zone.is_store or name.name in listing:
            return False
        age_seconds = trio.current_time() - listing.listed_at
        return self._hints.is_creating(name.place.path, name.name, name.kind, caller.pid, age_seconds)

    async def _current(self, name: Name, stat: FileStat) -> FileStat | None:
        """Return the attributes of a local file if it is the current version of its object. Drops a copy of an older one."""
        if not self._copies.may_be_old(name, stat):
            is_spoilt = self._nodes.of_backing(stat.st_ino) is None and self._copies.is_spoilt(name.path, stat)
            return None if is_spoilt else stat
        try:
            listing = await self._revalidation.refreshed(name)
            is_current = self._copies.reconcile(name, stat, listing.object(name.name))
        except RemoteUnavailableError:
            self._events.emit("served-unchecked", path=os.fsdecode(name.path))
            is_current = True
        # Its time may have been set by now, and it may have been evicted while the store was asked.
        return self._directories.stat(name.directory, name.name) if is_current else None

    async def _learn_times(self, node: Node) -> bool:
        """Ask the store for the times of a node if they are unknown, or old. Returns whether they may have changed."""
        if node.is_directory:
            place = self._directories.place(node)
            if not self._revalidation.is_outdated(place):
                return False
            await self._revalidation.renew(place)
        elif node.backing in self._times.awaited and self._times.is_unknown(node):
            await self._times.learn(node)
        else:
            return False
        return True

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

    def new(self, node: Node, stat: FileStat) -> Found:
        """Return the reply for a name that was just made, other than by CREATE."""
        return Found(node, self._shown(node, stat), self.seconds(node))

    def listed(self, directory: Node, name: bytes, stat: FileStat) -> Found:
        """Return an entry that has a file in the tree, for the reply to READDIRPLUS."""
        found = self.local(directory, name, stat, self._directories.seconds(directory))
        return found._replace(seconds=0.0) if found.node.backing in self._times.awaited else found

    def seconds(self, node: Node) -> float:
        """Return how long the kernel may cache attributes that are told without asking the store for a time.

        Not at all while the time of a file's object is awaited: the file would show this node's time, then the store's.
        """
        return 0.0 if node.backing in self._times.awaited else self._directories.seconds(node)

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
        """Look up a name that a request uses and that ``is_unknown``, as for a reader."""
        if not isinstance(await self.find(directory, name, NOBODY), Found):
            self._nodes.drop_path(self._directories.path(directory, name))

    def _local(self, name: Name, stat: FileStat) -> Found:
        kind = None if name.zone.remote is None else name.kind
        seconds = self._ttl.of_name_in_kernel(name.place, kind, stat.st_mode)
        return self.local(name.directory, name.name, stat, seconds)

    def local(self, directory: Node, name: bytes, stat: FileStat, seconds: float) -> Found:
        """Return an entry that has a file in the tree."""
        node = self._nodes.local(directory, name, stat.st_ino, stat.st_mode)
        return Found(node, self._shown(node, stat), seconds)

    def _shown(self, node: Node, stat: FileStat) -> Stat:
        return self._directories.shown(node, stat) if node.is_directory else attributes.of_file(node, stat)
