"""What this node believes of the store's directories: one LIST for a whole directory, kept up by this node's own writes.

A belief has an age: the time at which the LIST began that it rests on. Who asks says how old it may be; ``now`` means that
the store must be asked after the question came. Invariants: while a LIST is on its way, every change that this node makes
is noted and played over the result, because the answer may predate it; one LIST of a directory at a time. A LIST is one
try: whoever insists tries again, so that nobody who does not has to wait for that.
Names here are bytes, as in the mount; keys are text.
"""

from __future__ import annotations

import math
import struct
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

import trio

from holdfast.errors import ObjectMissingError, RemoteError
from holdfast.remote import DirectoryListing, ObjectInfo
from holdfast.transfer.access import RemoteAccess

_NUMBERS = struct.Struct("<QQ")
_MOST_NAMES = 500_000
_LONG_LISTING = 2000  # names, that take 2 ms to be packed
_LARGE = 5000
_LARGE_FOR_ONE = 1000  # a page of S3's: from here on a LIST takes as many requests as asking about the name
_LARGE_FOR_ONE_FILE = 64  # a hop to a thread and 30 µs, against 2 µs for each file that is listed
_FEWEST_DIRECTORIES = 64  # however large they are: those in use now must not be forgotten while they are


class KnownObject(NamedTuple):
    """What a listing tells of an object."""

    size_bytes: int
    modified_ns: int
    etag: str


class _Flight:
    """A LIST on its way: when it began, what changed here meanwhile, and how it ended."""

    __slots__ = ("began", "changes", "done", "problem")

    def __init__(self) -> None:
        self.began = trio.current_time()
        self.changes: list[tuple[bytes, bytes | None, bool]] = []
        self.done = trio.Event()
        self.problem: RemoteError | None = None


class CachedListing:
    """The names directly below one prefix. ``listed_at`` is in trio time, ``-inf`` while never asked."""

    __slots__ = ("_access", "_flight", "_names", "exists", "key", "listed_at")

    _names: dict[bytes, bytes | None]
    """Packed numbers and etag of an object; None for a directory."""

    def __init__(self, access: RemoteAccess, key: str) -> None:
        self.key = key
        self.listed_at = -math.inf
        self.exists = False
        self._access = access
        self._names = {}
        self._flight: _Flight | None = None

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: bytes) -> bool:
        """Say whether an object or a directory ``name`` is believed to be there."""
        return name in self._names

    @property
    def is_known(self) -> bool:
        """Whether there ever was a LIST, or the directory was made here."""
        return self.listed_at > -math.inf

    def object(self, name: bytes) -> KnownObject | None:
        """Return what is believed of the object ``name``; None when there is none, or a directory."""
        packed = self._names.get(name)
        if packed is None:
            return None
        size_bytes, modified_ns = _NUMBERS.unpack_from(packed)
        return KnownObject(size_bytes, modified_ns, packed[_NUMBERS.size :].decode())

    def has_directory(self, name: bytes) -> bool:
        """Say whether there is believed to be a deeper prefix ``name``."""
        return name in self._names and self._names[name] is None

    def names(self) -> Iterator[tuple[bytes, bool]]:
        """Yield every name, and whether it is a directory."""
        for name, packed in self._names.items():
            yield name, packed is None

    def all_names(self) -> set[bytes]:
        """Return every name."""
        return set(self._names)

    async def ask(self, not_before: float, *, insist: bool = True) -> None:
        """Make the belief rest on a LIST that began at ``not_before`` (trio time) or later. Raises ``RemoteError``.

        Without ``insist`` a store that does not answer is asked only once. Cancelled, the belief stays as it was, and
        others who wait ask themselves.
        """
        deadline = self._access.deadline()
        attempt = 0
        while self.listed_at < not_before:
            flight = self._flight
            if flight is None:
                problem = await self._list()
            else:
                await flight.done.wait()
                problem = flight.problem if flight.began >= not_before else None
            if problem is None:
                continue
            if not (insist and problem.transient):
                raise problem
            await self._access.pause(attempt, deadline, problem)
            attempt += 1

    async def ask_about(self, name: bytes, key: str, *, insist: bool = True) -> None:
        """Bring the belief about one name up to date, with a HEAD of ``key`` and, if that is nothing, a LIST below it.

        What this node does to the name meanwhile counts more than the answers. Raises ``RemoteError``; without ``insist``
        the store is asked only once.
        """
        before = self._names.get(name, b"")
        info, is_directory = None, False
        try:
            info = await self._access.head(key, insist=insist)
        except ObjectMissingError:
            is_directory = (await self._access.list_directory(key, insist=insist)).exists
        if self._names.get(name, b"") != before:
            return
        if info is not None:
            self.put(name, info)
        elif is_directory:
            self.put_directory(name)
        else:
            self.remove(name)

    def is_worth_listing(self, *, for_others: bool) -> bool:
        """Say whether one LIST of the directory, as large as it is believed to be, beats asking about one name.

        ``for_others``: what the LIST tells will do for further names too.
        """
        if for_others:
            return len(self) < _LARGE
        return len(self) < (_LARGE_FOR_ONE_FILE if self._access.store.capabilities.cheap_head else _LARGE_FOR_ONE)

    def believe_empty(self) -> None:
        """Take the directory as known and empty: it was made here under a name that the store did not have."""
        self.listed_at = trio.current_time()
        self.exists = False
        self._names.clear()

    def put(self, name: bytes, info: ObjectInfo) -> None:
        """Note that this node stored, or has seen, the object ``name``."""
        self._change(name, _NUMBERS.pack(info.size_bytes, info.modified_ns) + info.etag.encode(), True)

    def put_directory(self, name: bytes) -> None:
        """Note that there are objects below ``name``."""
        self._change(name, None, True)

    def remove(self, name: bytes) -> None:
        """Note that ``name`` is gone."""
        self._change(name, None, False)

    def _change(self, name: bytes, packed: bytes | None, present: bool) -> None:
        if self._flight is not None:
            self._flight.changes.append((name, packed, present))
        self._apply(name, packed, present)

    def _apply(self, name: bytes, packed: bytes | None, present: bool) -> None:
        if present:
            self._names[name] = packed
            self.exists = True
        else:
            self._names.pop(name, None)

    async def _list(self) -> RemoteError | None:
        """Ask once; return what the store answers instead of a listing."""
        flight = self._flight = _Flight()
        try:
            listing = await self._access.list_directory(self.key, insist=False)
            is_long = len(listing.objects) > _LONG_LISTING
            names = await trio.to_thread.run_sync(_packed, listing) if is_long else _packed(listing)
            self._adopt(names, listing.exists, flight)
        except RemoteError as problem:
            flight.problem = problem
        finally:
            self._flight = None
            flight.done.set()
        return flight.problem

    def _adopt(self, names: dict[bytes, bytes | None], exists: bool, flight: _Flight) -> None:
        self._names = names
        self.exists = exists
        self.listed_at = flight.began
        for change in flight.changes:
            self._apply(*change)


def _packed(listing: DirectoryListing) -> dict[bytes, bytes | None]:
    names: dict[bytes, bytes | None] = {
        name.encode(): _NUMBERS.pack(info.size_bytes, info.modified_ns) + info.etag.encode()
        for name, info in listing.objects.items()
    }
    names.update((name.encode(), None) for name in listing.directories)
    return names


class ListingCache:
    """The known directories of one store, the longest unused forgotten first."""

    def __init__(self, access: RemoteAccess) -> None:
        self.access = access
        self._known: OrderedDict[str, CachedListing] = OrderedDict()

    def get(self, key: str) -> CachedListing:
        """Return the belief about the directory ``key``, perhaps a new one that knows nothing."""
        directory = self._known.get(key)
        if directory is None:
            self._shrink()
            directory = self._known[key] = CachedListing(self.access, key)
        else:
            self._known.move_to_end(key)
        return directory

    def deleted(self, key: str) -> None:
        """The store has deleted the object ``key``: a LIST that began before must not bring it back."""
        parent, _, name = key.rpartition("/")
        directory = self._known.get(parent)
        if directory is not None:
            directory.remove(name.encode())

    def believed_size(self, key: str) -> int:
        """Return how many names the directory ``key`` is believed to have; 0 when nothing is known."""
        directory = self._known.get(key)
        return len(directory) if directory is not None else 0

    def seen(self, key: str, info: ObjectInfo) -> None:
        """The store was seen to have the object ``key``."""
        parent, _, name = key.rpartition("/")
        directory = self._known.get(parent)
        if directory is not None:
            directory.put(name.encode(), info)

    def forget_below(self, key: str) -> None:
        """Forget the directory ``key`` and all below it."""
        prefix = f"{key}/" if key else ""
        for known in [known for known in self._known if known == key or known.startswith(prefix)]:
            del self._known[known]

    def _shrink(self) -> None:
        if len(self._known) % 256:
            return
        total = sum(len(directory) for directory in self._known.values())
        while total > _MOST_NAMES and len(self._known) > _FEWEST_DIRECTORIES:
            total -= len(self._known.popitem(last=False)[1])
