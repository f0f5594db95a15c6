"""One store, used from the event loop: threads, retries (``retry``), counters, durations, and whether it answers."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, ParamSpec, TypeVar

import trio

from holdfast.digest import Checksum
from holdfast.errors import (
    HoldfastError,
    ObjectExistsError,
    ObjectMissingError,
    RemoteError,
    RemoteRefusedError,
    RemoteUnavailableError,
)
from holdfast.remote import DirectoryInfo, DirectoryListing, ObjectInfo, RemoteStore, UploadSource
from holdfast.telemetry import OBSERVED, Counters, EventLog, Histogram, Latencies
from holdfast.transfer.library_calls import FairSlots, LibraryCalls
from holdfast.transfer.pace import Pace
from holdfast.transfer.retry import QueuedCallers, Retry

_log = logging.getLogger("holdfast.remote")
_OF_ONE_OBJECT = {"HEAD", "GET", "PUT", "COPY", "DELETE"}
_ANSWER_SECONDS = 10.0
_VOUCHED_SECONDS = 5.0
"""The time in which the store is asked at most once whether it works, however many objects it refuses."""
_KINDS = ("PROBE", "HEAD", "LIST", "CLOCK", "GET", "PUT", "COPY", "DELETE", "PRUNE")
_RESULTS = ("ok", "missing", "exists", "refused", "unavailable", "given-up")
_OK, _MISSING, _EXISTS, _REFUSED, _UNAVAILABLE, _GIVEN_UP = range(len(_RESULTS))
_MS, _S = 1_000_000, 1_000_000_000
_BOUNDS_NS = (
    *(_MS, 2_500_000, 5 * _MS, 10 * _MS, 25 * _MS, 50 * _MS, 100 * _MS, 250 * _MS, 500 * _MS),
    *(_S, 2_500 * _MS, 5 * _S, 10 * _S, 30 * _S, 60 * _S),
)
"""The ends of the buckets in nanoseconds, from a directory on the same disk to the default time-out."""
_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(slots=True)
class Health:
    """The health of a store, by the last answer that says something about it; ``since`` is in seconds since the epoch."""

    up: bool = True
    since: float = 0.0
    problem: str = ""


class RequestTime(NamedTuple):
    """The durations of the requests of one kind that ended in the same way."""

    kind: str
    result: str
    durations: Histogram


class RequestTimes:
    """The durations of requests to one store, by kind and outcome, without waits for a turn. Event loop only."""

    def __init__(self) -> None:
        self._latencies = Latencies(len(_KINDS) * len(_RESULTS), _BOUNDS_NS)

    def ended(self, kind: str, began_ns: int, problem: BaseException | None) -> float:
        """Count a request that began at ``began_ns`` of the performance counter (0: it did not); return its seconds."""
        if not began_ns:
            return 0.0
        took_ns = time.perf_counter_ns() - began_ns
        result = _OK if problem is None else _result(problem)
        self._latencies.observe(_KINDS.index(kind) * len(_RESULTS) + result, took_ns)
        return took_ns / _S

    def all(self) -> Iterator[RequestTime]:
        """Return what was counted."""
        for number, kind in enumerate(_KINDS):
            for result, name in enumerate(_RESULTS):
                durations = self._latencies.histogram(number * len(_RESULTS) + result)
                if durations is not None:
                    yield RequestTime(kind, name, durations)


class RemoteAccess:
    """Access to one store. A cancelled request ends by itself in its thread; whether it took effect is then unknown."""

    def __init__(
        self,
        name: str,
        store: RemoteStore,
        *,
        deadline_seconds: float,
        request_timeout_seconds: float = math.inf,
        parallel: int,
        events: EventLog,
        counters: Counters,
        clock: Callable[[], float],
        queued: QueuedCallers | None = None,
    ) -> None:
        """``queued`` tells how long those have waited already who come while the store does not answer."""
        self.name = name
        self.store = store
        self.health = Health()
        self._deadline_seconds = deadline_seconds
        self.uploads = Pace()
        """The pace of uploads, in bytes."""
        self.downloads = Pace()
        """The pace of downloads, in bytes. The downloader takes them: a request does not know how many there will be."""
        self.requests = Pace()
        self.request_times = RequestTimes()
        self._calls = LibraryCalls(name, request_timeout_seconds, store.requests_in_a_call)
        self._transfers = FairSlots(parallel)
        self._questions = FairSlots(parallel)
        self._events = events
        self._counters = counters
        self._clock = clock
        self._random = random.Random()
        self._queued = queued
        self._is_asking = False
        self._vouched_until = -math.inf
        """The trio time until which the store counts as working, whatever it refuses for one object."""

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a slot."""
        return self._transfers.waiting + self._questions.waiting

    def waiting_beside(self, work: object) -> int:
        """Return the number of requests that wait for a slot and are not part of ``work`` (``library_calls.WORK``)."""
        return self._transfers.waiting_beside(work) + self._questions.waiting_beside(work)

    def limit(self, upload_bytes_per_second: int, download_bytes_per_second: int, requests_per_second: float) -> None:
        """Use the store no faster than this from now on; 0: no limit."""
        self.uploads.set_rate(upload_bytes_per_second)
        self.downloads.set_rate(download_bytes_per_second)
        self.requests.set_rate(requests_per_second)

    async def probe(self) -> None:
        """Ask once, without retries. Raises ``RemoteError``."""
        await self._once("PROBE", self._questions, self.store.probe)

    async def head(self, key: str, *, retry: bool = True) -> ObjectInfo:
        """Call ``RemoteStore.head``, with retries if ``retry``."""
        ask = self._with_retries if retry else self._once
        return await ask("HEAD", self._questions, self.store.head, key)

    async def find(self, key: str, *, retry: bool = True) -> ObjectInfo | bool:
        """Return the object ``key`` or, if there is none, whether there is a directory of this name; retries as in ``head``.

        Where that is cheap, it is one call in one thread, and counts as a HEAD.
        """
        if self.store.capabilities.cheap_head:
            ask = self._with_retries if retry else self._once
            return await ask("HEAD", self._questions, self.store.find, key)
        try:
            return await self.head(key, retry=retry)
        except ObjectMissingError:
            return await self.holds_directory(key, retry=retry)

    async def checksum(self, info: ObjectInfo) -> Checksum | None:
        """Call ``RemoteStore.checksum`` once; a store that has no checksums is not asked."""
        if not self.store.has_checksums:
            return None
        return await self._counted("HEAD", self._questions, partial(self.store.checksum, info))

    async def list_directory(self, prefix: str, *, retry: bool = True) -> DirectoryListing:
        """Call ``RemoteStore.list_directory``, with retries if ``retry``."""
        ask = self._with_retries if retry else self._once
        return await ask("LIST", self._questions, self.store.list_directory, prefix)

    async def holds_directory(self, prefix: str, *, retry: bool = True) -> bool:
        """Say whether there is a directory ``prefix``, by a LIST; retries as in ``head``."""
        ask = self._with_retries if retry else self._once
        found: bool = await ask("LIST", self._questions, _exists, self.store, prefix)
        return found

    async def holds_any(self, prefix: str) -> bool:
        """Say whether there is an object below ``prefix``, at any depth."""
        return await self._with_retries(
            "LIST", self._questions, lambda: next(iter(self.store.list_tree(prefix)), None) is not None
        )

    async def list_all(self, prefix: str) -> list[ObjectInfo | DirectoryInfo]:
        """Return all of ``RemoteStore.list_all``; a listing that fails half-way starts again from the beginning."""
        return await self._with_retries("LIST", self._questions, lambda: list(self.store.list_all(prefix)))

    async def now_ns(self) -> int:
        """Call ``RemoteStore.now_ns`` with retries."""
        return await self._with_retries("CLOCK", self._questions, self.store.now_ns)

    async def take_lease(self, name: str, data: bytes) -> bool:
        """Call ``RemoteStore.take_lease`` once: the request behind a lost answer may have succeeded."""
        return await self._once("PUT", self._questions, self.store.take_lease, name, data)

    async def tell(self, name: str, data: bytes) -> None:
        """Create ``.holdfast/NAME`` or replace it, tried once."""
        await self._once("PUT", self._questions, partial(self.store.write_private, create_only=False), name, data)

    async def small_object(self, info: ObjectInfo) -> bytes:
        """Return the bytes of the version ``info``, which is small, tried once."""
        return await self._once("GET", self._questions, _bytes_of, self.store, info)

    async def read(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run ``function``, which reads an object into a file, in a transfer thread, with retries."""
        return await self._with_retries("GET", self._transfers, function, *args, **kwargs)

    async def write_once(self, key: str, source: UploadSource, metadata: dict[str, str], create_only: bool) -> ObjectInfo:
        """Call ``RemoteStore.write`` once: only the caller can find out whether a PUT with a lost answer succeeded."""
        if self.uploads.is_limited:
            await self.uploads.take(source.size_bytes)
        write = partial(self.store.write, create_only=create_only)
        return await self._once("PUT", self._transfers, write, key, source, metadata)

    async def replace_once(self, key: str, version: str, source: UploadSource, metadata: dict[str, str]) -> ObjectInfo:
        """Call ``RemoteStore.replace`` once, for the reason that ``write_once`` has."""
        if self.uploads.is_limited:
            await self.uploads.take(source.size_bytes)
        return await self._once("PUT", self._transfers, self.store.replace, key, version, source, metadata)

    async def copy(self, source: str, target: str) -> ObjectInfo:
        """Call ``RemoteStore.copy`` with retries."""
        return await self._with_retries("COPY", self._transfers, self.store.copy, source, target)

    async def delete(self, keys: list[str], *, retry: bool = True) -> None:
        """Call ``RemoteStore.delete`` with retries; without ``retry``, call ``RemoteStore.delete_at_once`` once."""
        if retry:
            await self._with_retries("DELETE", self._questions, self.store.delete, keys)
        else:
            await self._once("DELETE", self._questions, self.store.delete_at_once, keys)

    async def prune(self, prefix: str) -> None:
        """Call ``RemoteStore.prune`` with retries."""
        await self._with_retries("PRUNE", self._questions, self.store.prune, prefix)

    def retry(self) -> Retry:
        """Return the retries of an operation on this store, for the request that the running task carries out."""
        notes = OBSERVED.get()
        if self.health.up or notes is None:
            return Retry(self._deadline_seconds, self._random, self._queued)
        return Retry(self._deadline_seconds, self._random, self._queued, notes.thread)

    async def _with_retries(
        self, kind: str, slots: FairSlots, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        return await self.retry().run(partial(self._once, kind, slots, function, *args, **kwargs))

    async def _once(
        self, kind: str, slots: FairSlots, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        try:
            result = await self._counted(kind, slots, partial(function, *args, **kwargs))
        except (RemoteUnavailableError, RemoteRefusedError) as problem:
            if problem.of_store or kind not in _OF_ONE_OBJECT:
                self._note(False, str(problem))
            else:
                await self._find_out()
            raise
        except (ObjectMissingError, ObjectExistsError):
            self._note(True)
            raise
        if not self.health.up:
            self._note(True)
        return result

    async def _find_out(self) -> None:
        """Ask the store whether it works: it has refused a request, but that may concern only the object."""
        if self._is_asking or trio.current_time() < self._vouched_until:
            return
        self._is_asking = True
        answered = False
        try:
            with trio.move_on_after(_ANSWER_SECONDS):
                await self._counted("PROBE", self._questions, self.store.probe)
                answered = True
        except RemoteError as problem:
            self._note(False, str(problem))
            return
        finally:
            self._is_asking = False
        if answered:
            self._vouched_until = trio.current_time() + _VOUCHED_SECONDS
            self._note(True)
        else:
            self._note(False, f"no answer within {_ANSWER_SECONDS:g} s")

    async def _counted(self, kind: str, slots: FairSlots, function: Callable[[], _T]) -> _T:
        if self.requests.is_limited:
            await self.requests.take(1)
        self._counters.requests[kind] += 1
        began_ns = 0

        def call() -> _T:
            nonlocal began_ns
            began_ns = time.perf_counter_ns()  # by now it has a thread
            return function()

        try:
            result = await self._calls.run(kind, call, slots)
        except BaseException as problem:
            self._ended(kind, began_ns, problem)
            raise
        self._ended(kind, began_ns, None)
        return result

    def _ended(self, kind: str, began_ns: int, problem: BaseException | None) -> None:
        seconds = self.request_times.ended(kind, began_ns, problem)
        _log.debug("%s to %s: %s in %.2f ms", kind, self.name, problem or "done", seconds * 1e3)
        if (notes := OBSERVED.get()) is not None:
            notes.store_requests += 1
            notes.store_seconds += seconds

    def _note(self, up: bool, problem: str = "") -> None:
        if up == self.health.up:
            self.health.problem = problem
            return
        self.health = Health(up, self._clock(), problem)
        if up:
            self._events.emit("remote-up", store=self.name)
        else:
            self._events.emit("remote-down", store=self.name, problem=problem)


def _bytes_of(store: RemoteStore, info: ObjectInfo) -> bytes:
    return b"".join(bytes(buffer) for buffer in store.read(info.key, 0, info.size_bytes, info.etag).buffers)


def _exists(store: RemoteStore, prefix: str) -> bool:
    """Say whether there is a directory. What is in it goes object by object, not all in one step of the interpreter."""
    listing = store.list_directory(prefix)
    while listing.objects:
        listing.objects.popitem()
    return listing.exists


def _result(problem: BaseException) -> int:
    match problem:
        case ObjectMissingError():
            return _MISSING
        case ObjectExistsError():
            return _EXISTS
        case RemoteUnavailableError():
            return _UNAVAILABLE
        case HoldfastError():
            return _REFUSED
    return _GIVEN_UP
