"""How fresh a belief about the store must be for an answer to rest on it; where it is not, the store is asked.

A name that is believed to be there needs less than one that is not: a negative answer decides too much to be given from a
belief. Names that may be replaced are asked about again after the metadata TTL, what only shines through in a working
directory after the fallback TTL.
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
    """What is believed of names in zones with a store. Raises ``RemoteError`` where the store is asked."""

    def __init__(self, view: StoreView, policy: NamePolicy, whiteouts: Whiteouts, ttl: TimeToLive, events: EventLog) -> None:
        self._view = view
        self._policy = policy
        self._whiteouts = whiteouts
        self._events = events
        self._ttl = ttl

    def fresh_listing(self, place: ZonePath) -> CachedListing:
        """Return what is believed of a directory. Raises ``trio.WouldBlock`` when that is too old."""
        listing = self._view.listing(place)
        if listing.listed_at < self._ttl.oldest_listing(place):
            raise trio.WouldBlock
        return listing

    async def refreshed(self, place: ZonePath, name: bytes) -> CachedListing:
        """Return a listing that is fresh enough for what is believed of ``name``, asking the store once if need be."""
        listing = self._view.listing(place)
        await self.ask(place, listing, name, self._ttl.oldest_listing(place), for_others=True, insist=False)
        return listing

    async def known_object(self, place: ZonePath, name: bytes) -> KnownObject | None:
        """Return what the store says of the object ``name`` now, asking it whatever is believed."""
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
        """Bring the belief about ``name`` up to ``not_before``. ``for_others``: it will do for further names by then."""
        if listing.listed_at >= not_before:
            return
        if listing.is_worth_listing(for_others=for_others):
            await listing.ask(not_before, insist=insist)
        else:
            await listing.ask_about(name, self._view.object_at(place, name).key, insist=insist)

    async def learn(self, place: ZonePath, name: bytes) -> None:
        """Bring the belief about a name that is not here up to what its kind demands."""
        listing = self._view.listing(place)
        if not place.zone.is_store:
            await self.ask(place, listing, name, self._ttl.oldest_listing(place), for_others=True)
        elif listing.object(name) is None and not listing.has_directory(name):
            with self._asking(place, listing, name) as insist:
                await self.ask(place, listing, name, trio.current_time(), for_others=False, insist=insist)
        elif self._policy.of(place, name).revalidated and not listing.has_directory(name):
            await self.ask(place, listing, name, self._ttl.oldest_listing(place), for_others=True)

    async def is_removed_directory(self, place: ZonePath, name: bytes) -> bool:
        """Say whether all that the store has of a name is an empty directory that was removed here."""
        if not place.zone.is_store or not self._view.listing(place).has_directory(name):
            return False
        child = ZonePath(place.zone, place.child_path(name))
        with self._asking(place, self._view.listing(child), name) as insist:
            return await self._whiteouts.hides(child, trio.current_time(), insist=insist)
        return True  # the zone goes on without the store

    @contextmanager
    def _asking(self, place: ZonePath, listing: CachedListing, name: bytes) -> Iterator[bool]:
        """Ask the store about an unknown name inside, by ``listing``, and insist if told so.

        An ``async`` zone goes on without the store in a directory that it has listed.
        """
        goes_on = place.zone.durability is Durability.ASYNC and listing.is_known
        try:
            yield not goes_on
        except RemoteUnavailableError:
            if not goes_on:
                raise
            self._events.emit("served-unchecked", path=os.fsdecode(place.child_path(name)))
