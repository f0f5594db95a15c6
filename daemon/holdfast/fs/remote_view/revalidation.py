"""Freshness of the cached view of a store: if an answer needs a newer one, the store is asked.

A positive answer may be older than a negative one, which is too important to be given from the cache. Names that may be
replaced are checked again after the metadata TTL. Names in a working directory for which the store is only the fallback are
checked again after the fallback TTL.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice

import trio

from holdfast.errors import NameNotStorableError, RemoteError, RemoteUnavailableError
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.node import Node
from holdfast.fs.remote_view.visibility import Whiteouts
from holdfast.transfer import CachedListing, KnownObject
from holdfast.zones import ZoneName, ZonePath

_QUIET_SECONDS = 60.0
"""The time without writes after which a directory counts as quiet. A batch of a job in the same directory takes less."""
_LOOKED_AT = 16
_SPARED_SECONDS = 10.0
"""The time for which a store that did not answer is not asked, so that not everybody who walks through a directory waits."""


class Revalidation:
    """Keeps cached names fresh in zones with a store. Raises ``RemoteError`` if a request to the store fails."""

    def __init__(self, base: Foundation, whiteouts: Whiteouts) -> None:
        self._view, self._policy, self._ttl, self._events = base.view, base.policy, base.ttl, base.parts.events
        self._whiteouts = whiteouts
        self._spared_until: dict[str | None, float] = {}
        """The trio times until which directories are shown as they were last seen, by store that did not answer."""

    def is_outdated(self, place: ZonePath) -> bool:
        """Say whether the store is to be asked for the names in a directory before its times are told.

        It is where programs look whether there are new names, in directories of replaceable names that others write. Those
        that this node writes itself, and logs and state, whose names are learned as they are asked for, cost no request.
        """
        if not place.zone.is_store:
            return False
        now = trio.current_time()
        if now < self._spared_until.get(place.zone.remote, 0.0):
            return False
        with suppress(NameNotStorableError):
            listing = self._view.listing(place)
            is_quiet = now - listing.written_at > _QUIET_SECONDS
            is_old = listing.is_known and listing.listed_at < self._ttl.oldest_listing(place)
            return is_old and is_quiet and self._has_replaceable_names(place, listing)
        return False

    def _has_replaceable_names(self, place: ZonePath, listing: CachedListing) -> bool:
        """Say whether there are replaceable objects among the first ones, or nothing at all yet."""
        objects = (name for name, is_directory in listing.names() if not is_directory)
        looked_at = islice(objects, _LOOKED_AT)
        return not len(listing) or any(self._policy.at(place, name).policy.revalidated for name in looked_at)

    async def renew(self, place: ZonePath) -> None:
        """Ask the store for the names in a directory if they are outdated. If it does not answer, they stay as they are."""
        if self.is_outdated(place):
            try:
                await self._view.listing(place).ask(self._ttl.oldest_listing(place), retry=False)
            except RemoteError:
                self._spared_until[place.zone.remote] = trio.current_time() + _SPARED_SECONDS

    async def refreshed(self, name: ZoneName) -> CachedListing:
        """Return a listing that is fresh enough for ``name``. Asks the store at most once."""
        listing = self._view.listing(name.place)
        await self.ask(name, listing, self._ttl.oldest_listing(name.place), for_others=True, retry=False)
        return listing

    async def known_object(self, name: ZoneName) -> KnownObject | None:
        """Return the store's current version of the object ``name``. Always asks the store."""
        try:
            await self.ask(name, self._view.listing(name.place), trio.current_time(), for_others=False)
            return self._view.listing(name.place).object(name.name)
        except NameNotStorableError:
            return None

    async def known_object_of(self, node: Node) -> KnownObject | None:
        """Return the store's current version of the object of a node, which must have a name. Always asks the store."""
        assert node.parent is not None
        return await self.known_object(self._policy.name(node.parent, node.name))

    async def ask(
        self, name: ZoneName, listing: CachedListing, not_before: float, *, for_others: bool, retry: bool = True
    ) -> bool:
        """Make what is cached about ``name`` at least as new as ``not_before``. Returns whether the store was asked for it.

        With ``for_others``, further names of the directory will be asked for: a LIST may be cheaper than a HEAD.
        """
        if listing.listed_at >= not_before:
            return False
        if listing.is_worth_listing(for_others=for_others):
            await listing.ask(not_before, retry=retry)
        else:
            await listing.ask_about(name.name, self._view.object_of(name).key, retry=retry)
        return True

    async def learn(self, name: ZoneName, listing: CachedListing) -> bool:
        """Make what is cached about a name that is not local as fresh as its kind requires. Returns as ``ask`` does.

        ``listing`` is that of its directory now.
        """
        known, is_directory = listing.object(name.name), listing.has_directory(name.name)
        if not name.zone.is_store:
            return await self.ask(name, listing, self._ttl.oldest_listing(name.place), for_others=True)
        if known is None and not is_directory:
            with self._asking(name, listing) as retry:
                await self.ask(name, listing, trio.current_time(), for_others=False, retry=retry)
            return True
        if known is not None and not known.modified_ns:
            return await self.ask(name, listing, trio.current_time(), for_others=False, retry=False)
        if name.policy.revalidated and not is_directory:
            return await self.ask(name, listing, self._ttl.oldest_listing(name.place), for_others=True)
        return False

    async def is_removed_directory(self, name: ZoneName) -> bool:
        """Say whether the store has nothing of the name but an empty directory that was removed here."""
        if not name.zone.is_store or not self._view.listing(name.place).has_directory(name.name):
            return False
        child = ZonePath(name.zone, name.path)
        with self._asking(name, self._view.listing(child)) as retry:
            return await self._whiteouts.hides(child, trio.current_time(), retry=retry)
        return True  # the zone serves without the store

    @contextmanager
    def _asking(self, name: ZoneName, listing: CachedListing) -> Iterator[bool]:
        """Provide a context for asking the store about an unknown name; yield whether an unavailable store is an error.

        An ``async`` zone serves without the store in directories that it has listed.
        """
        goes_on = name.zone.sends_later and listing.is_known
        try:
            yield not goes_on
        except RemoteUnavailableError:
            if not goes_on:
                raise
            self._events.emit("served-unchecked", path=os.fsdecode(name.path))
