"""Nodes that do nothing but report what they hold and read what their neighbours do, with the daemon's own code.

Hundreds of them run in one process. The test sets what they hold; the store is in memory, and counts, or is a real one.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import cast
from unittest import mock

import trio

from holdfast.checkpoints.formats.interface import StateStore
from holdfast.config import HoldingsSection
from holdfast.errors import HoldfastError, ObjectMissingError
from holdfast.holdings.gathering import Gathering
from holdfast.holdings.held_stores import HeldStore, HeldStores, Place
from holdfast.holdings.publishing import Publishing
from holdfast.holdings.report import DIRECTORY, NodeHealth
from holdfast.remote import Capabilities, DirectoryListing, ObjectInfo, RemoteStore
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer import RemoteAccess

ZONE = "checkpoints"
LOCATION = b"team/flights"
HEALTH = NodeHealth(version="0.1.0", data_mode="passthrough", cached_bytes=10**11, free_bytes=10**12)
_CAPABILITIES = Capabilities(conditional_create=True, atomic=True, metadata=True, versions=True)
LISTED_BYTES = 345
"""The size of an entry in an S3 server's listing: XML with key, time, etag, size, class and owner."""
NAMES_A_PAGE = 1000


@contextmanager
def without_threads() -> Iterator[None]:
    """Run in the event loop what otherwise runs in threads, so that an autojump clock does not go on meanwhile."""

    async def run_sync(function: Callable[..., object], *arguments: object) -> object:
        await trio.lowlevel.checkpoint()
        return function(*arguments)

    with mock.patch.object(trio.to_thread, "run_sync", run_sync):
        yield


class Shelf(RemoteAccess):
    """A store in memory for reports. It answers at once, without threads, and counts requests and bytes by kind.

    Times are trio's, from ``EPOCH`` on. The next of ``failures`` that names a key is raised when that is read.
    """

    EPOCH = 1_800_000_000

    def __init__(self) -> None:
        super().__init__(
            ZONE,
            cast(RemoteStore, SimpleNamespace(capabilities=_CAPABILITIES, requests_in_a_call=1)),
            deadline_seconds=1.0,
            parallel=1,
            events=EventLog(trio.current_time),
            counters=Counters(),
            clock=trio.current_time,
        )
        self.objects: dict[str, tuple[ObjectInfo, bytes]] = {}
        self.counted: Counter[str] = Counter()
        self.counted_bytes: Counter[str] = Counter()
        self.failures: dict[str, HoldfastError] = {}

    def now(self) -> float:
        """Return the time by the store's clock."""
        return self.EPOCH + trio.current_time()

    async def list_directory(self, prefix: str, *, retry: bool = True) -> DirectoryListing:
        """List everything that is below ``prefix``."""
        assert not retry
        await trio.lowlevel.checkpoint()
        found = {key.rpartition("/")[2]: info for key, (info, _) in self.objects.items() if key.startswith(prefix + "/")}
        self._count("LIST", len(found) * LISTED_BYTES, max(1, -(-len(found) // NAMES_A_PAGE)))
        return DirectoryListing(found, frozenset(), exists=True)

    async def small_object(self, info: ObjectInfo) -> bytes:
        """Return the object's bytes. Raises what ``failures`` says."""
        await trio.lowlevel.checkpoint()
        if info.key in self.failures:
            raise self.failures[info.key]
        if info.key not in self.objects:
            raise ObjectMissingError(info.key)
        self._count("GET", len(self.objects[info.key][1]))
        return self.objects[info.key][1]

    async def tell(self, name: str, data: bytes) -> None:
        """Create or replace the object."""
        await trio.lowlevel.checkpoint()
        self._count("PUT", len(data))
        self.place(name, data)

    def place(self, name: str, data: bytes, age_seconds: float = 0.0) -> None:
        """Put an object there without a request, written ``age_seconds`` ago."""
        key = f".holdfast/{name}"
        etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
        self.objects[key] = ObjectInfo(key, len(data), etag, int((self.now() - age_seconds) * 1e9), {}), data

    def _count(self, kind: str, size_bytes: int, requests: int = 1) -> None:
        self.counted[kind] += requests
        self.counted_bytes[kind] += size_bytes


class ScriptedHoldings(HeldStores):
    """Holdings as the test sets them."""

    def __init__(self) -> None:
        self.stores: dict[Place, HeldStore] = {}

    async def now(self) -> Mapping[Place, HeldStore]:
        """Return what the test has set: another object after each change, as the daemon's own is."""
        return self.stores

    def hold(self, *partitions: int, version: int, size_bytes: int = 25_000_000) -> None:
        """Hold these partitions of the query, and nothing else."""
        self.stores = {
            Place(ZONE, StateStore(LOCATION, 0, partition, b"default")): HeldStore(version, size_bytes + 4099 * partition)
            for partition in partitions
        }


class ReportingNode:
    """A node that tells ``access`` what it holds, and asks it about its neighbours."""

    def __init__(self, name: str, access: RemoteAccess, section: HoldingsSection) -> None:
        self.name = f"{name}.{hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()[:8]}"
        self.held = ScriptedHoldings()
        self.is_draining = False
        stores = {ZONE: access}
        settings = HoldingsSection(
            interval_seconds=section.interval_seconds,
            refresh_seconds=section.refresh_seconds,
            node=name,
            hosts=section.hosts,
        )
        store_id = self.name.rpartition(".")[2]
        self.publishing = Publishing(self.held, stores, settings, store_id, lambda: self.is_draining, lambda _: HEALTH)
        clock = access.now if isinstance(access, Shelf) else None
        self.gathering = (
            Gathering(self.publishing, stores, settings, clock) if clock else Gathering(self.publishing, stores, settings)
        )

    @property
    def object_name(self) -> str:
        """The name of its object below ``.holdfast/``."""
        return f"{DIRECTORY}/{self.name}"
