"""The cached listing of a store's directory: filled by one LIST of it, kept current by this node's own writes.

A cached listing is as old as the LIST behind it: its time is when that LIST began. A caller says how old it may be; if that
is the present time, the LIST begins after the call. Invariants: changes that this node makes while a LIST is pending are
recorded and applied to its result, because the answer may predate them; a directory has one pending LIST at a time. A LIST
is tried once: a caller that wants retries makes them itself, so that others never wait for them.

The store is asked about single names too. An answer does not count if this node has changed the name meanwhile, even if it
has undone that again, or if the answer to a later question, or a later LIST, has come before.

Names here are bytes, as in the mount; keys are text. The cache is in memory only: a crash loses it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Set
from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple

import trio

from holdfast.errors import RemoteError
from holdfast.remote import DirectoryListing, ObjectInfo
from holdfast.system.waits import before_waiting
from holdfast.transfer.computing import Work, computed, emptied, pieces
from holdfast.transfer.store_requests import RemoteAccess

_NUMBERS = struct.Struct("<QQ")
_LONGEST_NAME_BYTES = 255
"""NAME_MAX of Linux. A store may have longer ones, which can't be opened here, and make the kernel refuse the listing."""
_LONG_LISTING = 2000
"""The number of names from which on the changes of a listing are not told one by one."""
_PIECE = 200
_LARGE = 5000
_LARGE_FOR_ONE = 1000  # one page of S3's LIST: beyond it, a LIST takes at least as many requests as asking about one name
_LARGE_FOR_ONE_FILE = 64  # a HEAD is a switch to a thread and 30 µs; a LIST is 2 µs for each file
NamesChanged = Callable[[str, Set[bytes]], None]
"""A function that is called when a directory of the store turns out to have other names, by no act of this node's users. It
gets the key of the directory, and the names that have appeared or vanished."""


def nobody_cares(key: str, names: Set[bytes]) -> None:
    """Ignore a change of names."""
    del key, names


class KnownObject(NamedTuple):
    """An object as a listing describes it."""

    size_bytes: int
    modified_ns: int
    etag: str


def _packed(info: ObjectInfo | KnownObject) -> bytes:
    """Return size, time and etag of an object, packed."""
    return _NUMBERS.pack(info.size_bytes, info.modified_ns) + info.etag.encode()


def _unpacked(data: bytes) -> KnownObject:
    """Return what was ``_packed``."""
    size_bytes, modified_ns = _NUMBERS.unpack_from(data)
    return KnownObject(size_bytes, modified_ns, data[_NUMBERS.size :].decode())


@dataclass(slots=True, eq=False)
class _Question:
    """A question about one name whose answer is awaited; ``is_outdated`` if something newer is known by now."""

    name: bytes
    began: float = field(default_factory=trio.current_time)
    is_outdated: bool = False


def _outdate(questions: Iterable[_Question], name: bytes) -> None:
    """Note that something newer is known of ``name`` than what the answers to these questions will say."""
    for question in questions:
        question.is_outdated |= question.name == name


def _outdate_earlier(questions: Iterable[_Question], began: float) -> None:
    """Note that a LIST which began at ``began`` (trio time) has told of all names."""
    for question in questions:
        question.is_outdated |= question.began < began


@dataclass(slots=True, eq=False)
class _PendingList:
    """A pending LIST: when it began, the changes made here meanwhile, and how it ended."""

    began: float = field(default_factory=trio.current_time)
    changes: list[tuple[bytes, bytes | None, bool]] = field(default_factory=list)
    done: trio.Event = field(default_factory=trio.Event)
    problem: RemoteError | None = None


class CachedListing:
    """The names directly below one prefix. ``listed_at`` is in trio time, ``-inf`` before the first LIST."""

    __slots__ = (
        "_access",
        "_changed",
        "_fingerprint",
        "_names",
        "_pending",
        "_questions",
        "exists",
        "key",
        "listed_at",
        "written_at",
    )

    _names: dict[bytes, bytes | None]
    """An object's size and time, packed, and its etag; None for a directory."""

    def __init__(self, access: RemoteAccess, key: str, changed: NamesChanged = nobody_cares) -> None:
        self.key = key
        self._changed = changed
        self.listed_at = -math.inf
        self.written_at = -math.inf
        """The trio time at which this node last stored or deleted an object in the directory."""
        self.exists = False
        self._access = access
        self._names = {}
        self._fingerprint = 0
        """The sum of the hashes of all names: two listings with the same sum have the same names."""
        self._pending: _PendingList | None = None
        self._questions: tuple[_Question, ...] = ()
        """The questions about single names that are under way, in the order in which they began."""

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: bytes) -> bool:
        """Say whether the cache has an object or a directory ``name``."""
        return name in self._names

    @property
    def is_known(self) -> bool:
        """True if the directory was ever listed, or was made by this node."""
        return self.listed_at > -math.inf

    def object(self, name: bytes) -> KnownObject | None:
        """Return the cached object ``name``; None when there is none, or a directory."""
        found = self._names.get(name)
        return None if found is None else _unpacked(found)

    def has_directory(self, name: bytes) -> bool:
        """Say whether the cache has a directory ``name``."""
        return name in self._names and self._names[name] is None

    def names(self) -> Iterator[tuple[bytes, bool]]:
        """Yield every name, and whether it is a directory."""
        for name, found in self._names.items():
            yield name, found is None

    def all_names(self) -> list[bytes]:
        """Return every name."""
        return list(self._names)

    async def ask(self, not_before: float, *, retry: bool = True) -> None:
        """Bring the listing up to a LIST that began at ``not_before`` (trio time) or later. Raises ``RemoteError``.

        Without ``retry`` a store that does not answer is asked only once. Cancellation leaves the cached listing as it was;
        other callers that wait for the same LIST then send their own.
        """
        if self.listed_at >= not_before:
            return
        await before_waiting()
        if retry:
            await self._access.retry().run(lambda: self._ask_once(not_before))
        else:
            await self._ask_once(not_before)

    async def ask_about(self, name: bytes, key: str, *, retry: bool = True) -> None:
        """Bring one name up to date, with what the store has at ``key``: an object, a directory, or nothing.

        What this node does to the name meanwhile, even if it undoes it again, and answers to later questions win over this
        one's. Raises ``RemoteError``; without ``retry`` the store is asked only once.
        """
        await before_waiting()
        question = _Question(name)
        self._questions += (question,)
        try:
            found = await self._access.find(key, retry=retry)
        finally:
            at = self._questions.index(question)
            earlier, self._questions = self._questions[:at], self._questions[:at] + self._questions[at + 1 :]
        if question.is_outdated:
            return
        _outdate(earlier, name)
        was_there = name in self._names
        if isinstance(found, ObjectInfo):
            self._change(name, _packed(found), True, began=question.began)
        else:
            self._change(name, None, bool(found), began=question.began)
        if self.is_known and was_there != (name in self._names):
            self._changed(self.key, {name})

    def is_worth_listing(self, *, for_others: bool) -> bool:
        """Say whether one LIST of the directory, at its cached size, is cheaper than asking about one name.

        ``for_others``: the listing will be used for further names too.
        """
        if for_others:
            return len(self) < _LARGE
        return len(self) < (_LARGE_FOR_ONE_FILE if self._access.store.capabilities.cheap_head else _LARGE_FOR_ONE)

    def believe_empty(self) -> None:
        """Take the directory as known and empty: this node made it under a name that the store did not have."""
        self.listed_at = self.written_at = trio.current_time()
        self.exists = False
        self._names.clear()
        self._fingerprint = 0

    def put(self, name: bytes, info: ObjectInfo | KnownObject) -> None:
        """Note that the store was seen to have the object ``name``."""
        _outdate(self._questions, name)
        self._change(name, _packed(info), True)

    def note_writing(self) -> None:
        """Note that this node is storing or deleting objects in the directory."""
        self.written_at = trio.current_time()

    def put_directory(self, name: bytes) -> None:
        """Note that there are objects below ``name``."""
        _outdate(self._questions, name)
        if self._pending is not None or self._names.get(name, b"") is not None:
            self._change(name, None, True)

    def remove(self, name: bytes) -> None:
        """Note that ``name`` is gone."""
        _outdate(self._questions, name)
        self._change(name, None, False)

    def _change(self, name: bytes, as_object: bytes | None, present: bool, *, began: float = math.inf) -> None:
        """Change a name; a LIST that is under way is older than that if it began no later than ``began`` (trio time)."""
        if self._pending is not None and began >= self._pending.began:
            self._pending.changes.append((name, as_object, present))
        self._apply(name, as_object, present)

    def _apply(self, name: bytes, as_object: bytes | None, present: bool) -> None:
        if (name in self._names) != present:
            self._fingerprint += hash(name) if present else -hash(name)
        if present:
            self._names[name] = as_object
            self.exists = True
        else:
            self._names.pop(name, None)

    async def _ask_once(self, not_before: float) -> None:
        """Do ``ask`` without retries: raise the error of the LIST that was waited for, which may be another task's."""
        while self.listed_at < not_before:
            pending = self._pending
            if pending is None:
                problem = await self._list()
            else:
                await pending.done.wait()
                problem = pending.problem if pending.began >= not_before else None
            if problem is not None:
                raise copy(problem)  # one of its own for each: a traceback refers to all that this frame has

    async def _list(self) -> RemoteError | None:
        """Send one LIST and take its result; return the error if it failed."""
        pending = self._pending = _PendingList()
        before: dict[bytes, bytes | None] = {}
        try:
            listing = await self._access.list_directory(self.key, retry=False)
            names = await computed(_names_in(listing), len(listing.objects) + len(listing.directories))
            before = self._names
            self._adopt(names, listing.exists, pending)
        except RemoteError as problem:
            pending.problem = problem.with_traceback(None)
        finally:
            self._pending = None
            pending.done.set()
        await computed(emptied(before), len(before))
        return pending.problem

    def _adopt(self, listed: _ListedNames, exists: bool, pending: _PendingList) -> None:
        before, fingerprint, was_known = self._names, self._fingerprint, self.is_known
        self._names, self._fingerprint = listed
        self.exists = exists
        self.listed_at = pending.began
        _outdate_earlier(self._questions, pending.began)
        for change in pending.changes:
            self._apply(*change)
        if was_known and self._fingerprint != fingerprint:
            self._tell_changes(before)

    def _tell_changes(self, before: dict[bytes, bytes | None]) -> None:
        """Tell which names have come and gone since ``before``; of a long listing only that some have."""
        is_long = len(before) + len(self._names) > _LONG_LISTING
        self._changed(self.key, (self._names or before).keys() if is_long else self._names.keys() ^ before.keys())


class _ListedNames(NamedTuple):
    """The part of a listing that is kept."""

    names: dict[bytes, bytes | None]
    fingerprint: int


def _names_in(listing: DirectoryListing) -> Work[_ListedNames]:
    """Return the names that files here can have, with what is kept of each. Takes the objects out of ``listing``."""
    names: dict[bytes, bytes | None] = {}
    fingerprint = 0
    objects = listing.objects
    while objects:
        for _ in range(min(_PIECE, len(objects))):
            text, info = objects.popitem()
            if len(name := text.encode()) <= _LONGEST_NAME_BYTES:
                names[name] = _packed(info)
                fingerprint += hash(name)
        yield
    for piece in pieces(listing.directories):
        for text in piece:
            if len(name := text.encode()) <= _LONGEST_NAME_BYTES:
                fingerprint += 0 if name in names else hash(name)
                names[name] = None
        yield
    return _ListedNames(names, fingerprint)
