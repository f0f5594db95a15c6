"""Freshness of the cached view of a store: if an answer needs a newer one, the store is asked.

A positive answer may be older than a negative one, which is too important to be given from the cache. Names that may be
replaced are checked again after the metadata TTL. Names in a working directory for which the store is only the fallback are
checked again after the fallback TTL.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from holdfast.config import Durability
from holdfast.errors import NameNotStorableError, RemoteUnavailableError
from holdfast.fs.inodes.name_policy import NamePolicy
from holdfast.fs.inodes.time_to_live import TimeToLive
from holdfast.fs.remote_view.store_view import StoreView
from holdfast.fs.remote_view.whiteouts import Whiteouts
from holdfast.telemetry import EventLog
from holdfast.transfer import CachedListing, KnownObject
from holdfast.zones import ZonePath


class Revalidation:
    """Cached names in zones with a store. Raises ``RemoteError`` if the store has to be asked."""

    def __init__(self, view: StoreView, policy: NamePolicy, whiteouts: Whiteouts, ttl: TimeToLive, events: EventLog) -> None:
        self._view = view
        self._policy = policy
        self._whiteouts = whiteouts
        self._events = events
        self._ttl = ttl

    def fresh_listing(self, place: ZonePath) -> CachedListing:
        """Return the cached listing of a directory. Raises ``trio.WouldBlock`` if it is too old."""
        listing = self._view.listing(place)
        if listing.listed_at < self._ttl.oldest_listing(place):
            raise trio.WouldBlock
        return listing

    async def refreshed(self, place: ZonePath, name: bytes) -> CachedListing:
        """Return a listing that is fresh enough for ``name``. Asks the store at most once."""
        listing = self._view.listing(place)
        await self.ask(place, listing, name, self._ttl.oldest_listing(place), for_others=True, insist=False)
        return listing

    async def known_object(self, place: ZonePath, name: bytes) -> KnownObject | None:
        """Return the store's current version of the object ``name``. Always asks the store."""
        try:
            await self.ask(place, self._view.listing(place), name, trio.current_time(), for_others=False)
            return self._view.listing(place).object(name)
        except NameNotStorableError:
            return None

    async def ask(
        self,
        place: ZonePath,
        listing: CachedListing,
        name: bytes,
        not_before: float,
        *,
        for_others: bool,
        insist: bool = True,
    ) -> None:
        """Make what is cached about ``name`` at least as new as ``not_before``.

        With ``for_others``, further names of the directory will be asked for: a LIST may be cheaper than a HEAD.
        """
        if listing.listed_at >= not_before:
            return
        if listing.is_worth_listing(for_others=for_others):
            await listing.ask(not_before, insist=insist)
        else:
            await listing.ask_about(name, self._view.object_at(place, name).key, insist=insist)

    async def learn(self, place: ZonePath, name: bytes) -> None:
        """Make what is cached about a name that is not local as fresh as its kind requires."""
        listing = self._view.listing(place)
        if not place.zone.is_store:
            await self.ask(place, listing, name, self._ttl.oldest_listing(place), for_others=True)
        elif listing.object(name) is None and not listing.has_directory(name):
            with self._asking(place, listing, name) as insist:
                await self.ask(place, listing, name, trio.current_time(), for_others=False, insist=insist)
        elif self._policy.of(place, name).revalidated and not listing.has_directory(name):
            await self.ask(place, listing, name, self._ttl.oldest_listing(place), for_others=True)

    async def is_removed_directory(self, place: ZonePath, name: bytes) -> bool:
        """Say whether the store has nothing of the name but an empty directory that was removed here."""
        if not place.zone.is_store or not self._view.listing(place).has_directory(name):
            return False
        child = ZonePath(place.zone, place.child_path(name))
        with self._asking(place, self._view.listing(child), name) as insist:
            return await self._whiteouts.hides(child, trio.current_time(), insist=insist)
        return True  # the zone serves without the store

    @contextmanager
    def _asking(self, place: ZonePath, listing: CachedListing, name: bytes) -> Iterator[bool]:
        """Context for asking the store about an unknown name; yields whether an unavailable store is an error.

        An ``async`` zone serves without the store in directories that it has listed.
        """
        goes_on = place.zone.durability is Durability.ASYNC and listing.is_known
        try:
            yield not goes_on
        except RemoteUnavailableError:
            if not goes_on:
                raise
            self._events.emit("served-unchecked", path=os.fsdecode(place.child_path(name)))
