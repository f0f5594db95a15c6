"""Pending deletions of objects: held back for a moment, then sent to the store in bulk.

An unlink returns when the deletion is recorded in the index. The request is sent after a short delay, together with other
deletions: after a check of the versions (``conditional_delete``), one request for up to a thousand names. A name that is
stored again meanwhile needs no request. A name with a pending deletion does not exist for this node. Only the version that
this node knew is deleted: if another node has stored an object under the name since, it stays, and the name exists again.
A deletion waits for a PUT of the same name that was under way before it: otherwise the PUT could come after it.

S3 gives times in seconds, so the same bytes stored by two nodes within one second have the same etag and time. Therefore an
object that this node has just stored is deleted as its own, by its signature, and not as the version with that time. An
object with other bytes is another node's, which this node has seen since: that is deleted as any other version.

The record survives the daemon; after a power cut a deletion that was not waited for (fsync of the directory) may be undone.
A failed deletion stays pending. After a passing error it is tried again soon, until the deadline; then, or after a final
error, those who wait for it get the error, and it is tried again later. A key that the store refuses to delete by itself is
set aside: it is tried more and more rarely, up to once an hour, apart from all others, or when somebody waits for it.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import trio

from holdfast.errors import HoldfastError, ObjectExistsError, ObjectMissingError
from holdfast.index import CachedName, NameMarks
from holdfast.telemetry import EventLog
from holdfast.telemetry.slices import Slices
from holdfast.transfer.conditional_delete import delete_unchanged, may_delete
from holdfast.transfer.due_times import DueTimes
from holdfast.transfer.library_calls import IN_BACKGROUND
from holdfast.transfer.listing_cache import ListingCache
from holdfast.transfer.retry import Retry
from holdfast.transfer.store_requests import RemoteAccess

_LARGEST_BATCH = 1000
_DOUBLINGS = 10
_RETRY_DELAYS = 10
_SHORTEST_RETRY_SECONDS = 10.0
_LONGEST_RETRY_SECONDS = 3600.0
_SECOND_NS = 10**9
_JUST_SECONDS = 2.0
"""The resolution of the stores' times, with something to spare."""


@dataclass(slots=True, eq=False)
class _Attempt:
    """One attempt to delete an object: tries until one succeeds or the deadline has passed. A new attempt follows.

    ``under_way``: the object is being deleted or replaced. ``retry`` begins with the first try. ``refusals`` counts the
    attempts in which the store has refused this very key.
    """

    due: float
    version: CachedName
    refusals: int = 0
    retry: Retry | None = None
    under_way: bool = False
    done: trio.Event = field(default_factory=trio.Event)
    problem: HoldfastError | None = None

    @property
    def has_failed(self) -> bool:
        """True if a try has failed. Then the object must not be replaced: the store may still carry out that try."""
        return self.retry is not None and self.retry.failures > 0


@dataclass(slots=True)
class Deletions:
    """The pending deletions of one store; ``key_of`` gives the object key of a tree path.

    The cached listings (``directories``) are updated for each key before its deletion stops being pending. ``owner`` is what
    this node signs its objects with (``transfer.upload``).
    """

    access: RemoteAccess
    marks: NameMarks
    key_of: Callable[[bytes], str]
    delay_seconds: float
    events: EventLog
    directories: ListingCache
    owner: str
    _pending: dict[bytes, _Attempt] = field(default_factory=dict, init=False)
    _in_directory: dict[bytes, dict[bytes, None]] = field(default_factory=dict, init=False)
    """The names of the pending ones by directory."""
    _due: DueTimes = field(default_factory=DueTimes, init=False)
    _set_aside_due: DueTimes = field(default_factory=DueTimes, init=False)
    """When those that wait are due, and those that are set aside."""
    _set_aside: set[bytes] = field(default_factory=set, init=False)
    _being_stored: set[bytes] = field(default_factory=set, init=False)
    _just_stored: dict[bytes, tuple[float, str]] = field(default_factory=dict, init=False)
    """When this node has just stored objects, and with which etags, by path; the latest last."""
    _changed: trio.Event = field(default_factory=trio.Event, init=False)
    _sleeps_until: float = field(default=math.inf, init=False)

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def refused(self) -> int:
        """The number of deletions that are set aside because the store refuses them."""
        return len(self._set_aside)

    def restore(self, version: CachedName) -> None:
        """Take up a deletion that an earlier run recorded; it is due at once."""
        self._add(version, trio.current_time())

    def schedule(self, version: CachedName) -> CachedName:
        """Record that an object is to be deleted: this version of it or, with the etag ``""``, any version.

        Return the version that is recorded.
        """
        self._forget_stored_earlier()
        _, stored = self._just_stored.get(version.path, (0.0, ""))
        if stored and stored == version.etag and version.modified_ns % _SECOND_NS == 0:
            version = CachedName(version.path, version.etag)
        self.marks.mark_deleted(version)
        self._add(version, trio.current_time() + self.delay_seconds)
        return version

    def withdraw(self, version: CachedName) -> None:
        """Undo the ``schedule`` that returned this version: the object is not to be deleted. Nothing has been sent since."""
        attempt = self._pending.get(version.path)
        if attempt is None or attempt.version is not version:
            return
        self._forget(version.path)
        attempt.done.set()
        with suppress(HoldfastError):  # a disk that takes no writes; the next daemon finds the file and ignores the record
            self.marks.clear_deleted(version.path)

    def pending(self, path: bytes) -> bool:
        """Say whether the object at ``path`` is to be deleted: it does not exist for this node, whatever the store shows."""
        return path in self._pending

    def pending_in(self, directory: bytes) -> list[bytes]:
        """Return the names directly in ``directory`` whose objects are to be deleted."""
        return list(self._in_directory.get(directory, ()))

    def paths(self) -> list[bytes]:
        """Return all paths with pending deletions."""
        return list(self._pending)

    async def settle(self, path: bytes) -> None:
        """Return when no deletion of ``path`` is pending. Raises ``RemoteError`` if it failed."""
        while (attempt := self._pending.get(path)) is not None:
            self._make_due(path)
            self._wake()
            await attempt.done.wait()
            if attempt.problem is not None:
                raise attempt.problem

    @asynccontextmanager
    async def replaced(self, path: bytes, *, by_version: bool) -> AsyncIterator[str]:
        """Store an object at ``path`` in this context: that completes a deletion held back; after an error it is due again.

        ``ObjectExistsError`` means that another node has stored an object there: then too nothing is left to delete. With
        ``by_version`` the new object may replace nothing but the version to be deleted: this yields that object's etag, or
        ``""`` if it is not there; a deletion without etag is sent first. A deletion under way is waited for, lest it delete
        the new object; raises ``RemoteError`` if it failed.
        """
        attempt = await self._claim(path, by_version) if path in self._pending else None
        self._being_stored.add(path)
        try:
            if attempt is None:
                yield ""
                return
            yield await self._etag_to_replace(attempt.version) if by_version else ""
            self._drop(attempt)
        except ObjectExistsError:
            if attempt is not None:
                self._drop(attempt)
            raise
        finally:
            self._being_stored.discard(path)
            if attempt is not None:
                self._end_try(attempt, trio.current_time() + self.delay_seconds)
            if (waiting := self._pending.get(path)) is not None and not waiting.under_way:
                self._wait(waiting)
                self._wake()

    def stored(self, path: bytes, etag: str) -> None:
        """Note that this node has just stored an object at ``path``."""
        self._forget_stored_earlier()
        self._just_stored.pop(path, None)
        self._just_stored[path] = trio.current_time(), etag

    async def flush(self, paths: list[bytes] | None = None) -> None:
        """Return when the deletions of ``paths`` are done (None: all that are pending now).

        Raises ``RemoteError`` if one failed; it stays pending then.
        """
        waited_for = self.paths() if paths is None else paths
        slices = Slices()
        for path in waited_for:
            self._make_due(path)
            await slices.pause()
        self._wake()
        for path in waited_for:
            await self.settle(path)
            await slices.pause()

    async def run(self) -> None:
        """Send deletions as they fall due, until cancelled."""
        IN_BACKGROUND.set(True)
        while True:
            self._sleeps_until = min(self._due.next(), self._set_aside_due.next())
            if self._sleeps_until > trio.current_time():
                with trio.move_on_at(self._sleeps_until):
                    await self._changed.wait()
            else:
                await self._send()

    async def _send(self) -> None:
        now = trio.current_time()
        batch = self._batch(self._due, now) or self._batch(self._set_aside_due, now)
        if not batch:
            await trio.lowlevel.checkpoint()
            return
        for attempt in batch.values():
            attempt.under_way = True
            attempt.retry = attempt.retry or self.access.retry()
        try:
            await self._delete(batch)
        finally:
            for attempt in batch.values():
                if attempt.under_way:
                    self._end_try(attempt, now)

    def _batch(self, times: DueTimes, now: float) -> dict[str, _Attempt]:
        """Return a batch of what is due, by key. Those that are set aside go by themselves, and keep no others waiting.

        What is being stored is left out: whoever stores it lets it wait again.
        """
        found = ((path, self._pending.get(path)) for path in times.take(now, _LARGEST_BATCH))
        return {
            self.key_of(path): attempt
            for path, attempt in found
            if attempt is not None and not attempt.under_way and path not in self._being_stored
        }

    async def _delete(self, batch: dict[str, _Attempt]) -> None:
        """Delete what is still the expected version; reschedule what failed."""
        versions = {key: attempt.version for key, attempt in batch.items()}
        outcome = await delete_unchanged(self.access, versions, self.owner, self.directories.cached_count)
        for key in outcome.alone:
            batch[key].refusals += not outcome.problems[key].transient
        problems: dict[str, HoldfastError] = dict(outcome.problems)
        slices = Slices()
        for key, attempt in batch.items():
            await slices.pause()
            if key not in problems:
                self.directories.deleted(key)
                try:
                    self._drop(attempt)
                except HoldfastError as problem:  # the index is full
                    problems[key] = problem
        for info in outcome.superseded:
            self.directories.seen(info.key, info)
            self.events.emit("delete-superseded", store=self.access.name, key=info.key)
        final = [error for key, problem in problems.items() if (error := self._reschedule(batch[key], problem)) is not None]
        if final:
            self.events.emit("delete-delayed", store=self.access.name, objects=len(final), problem=str(final[0]))

    def _reschedule(self, attempt: _Attempt, problem: HoldfastError) -> HoldfastError | None:
        """Let another try follow one that failed with ``problem``; return the error if the attempt ends with it."""
        if problem.transient and attempt.retry is not None and self._is_pending(attempt):
            try:
                attempt.due = attempt.retry.next_try(problem)
            except HoldfastError as late:
                problem = late
            else:
                attempt.under_way = False
                self._wait(attempt)
                return None
        if self._is_pending(attempt):
            attempt.problem = problem
        retry_seconds = max(_SHORTEST_RETRY_SECONDS, _RETRY_DELAYS * self.delay_seconds)
        if attempt.refusals:
            retry_seconds = min(_LONGEST_RETRY_SECONDS, retry_seconds * 2.0 ** min(attempt.refusals - 1, _DOUBLINGS))
        self._end_try(attempt, trio.current_time() + retry_seconds)
        return problem

    async def _etag_to_replace(self, version: CachedName) -> str:
        """Return the etag of the object in the store if it may be deleted as ``version``, else ``""``."""
        try:
            info = await self.access.head(self.key_of(version.path))
        except ObjectMissingError:
            return ""
        return info.etag if may_delete(self.access.store, info, version, self.owner) else ""

    def _forget_stored_earlier(self) -> None:
        since = trio.current_time() - _JUST_SECONDS
        while self._just_stored and self._just_stored[path := next(iter(self._just_stored))][0] < since:
            del self._just_stored[path]

    def _add(self, version: CachedName, due: float, refusals: int = 0) -> None:
        earlier = self._pending.get(version.path)
        if earlier is not None and not earlier.under_way:
            earlier.done.set()  # those who wait for it go on to wait for this one
        attempt = self._pending[version.path] = _Attempt(due, version, refusals)
        directory, _, name = version.path.rpartition(b"/")
        self._in_directory.setdefault(directory, {})[name] = None
        self._wait(attempt)
        if refusals:
            self._set_aside.add(version.path)
        else:
            self._set_aside.discard(version.path)
        if due < self._sleeps_until:  # one wake-up for many deletions: ``run`` looks at all of them when it wakes
            self._wake()

    async def _claim(self, path: bytes, by_version: bool) -> _Attempt | None:
        while (attempt := self._pending.get(path)) is not None:
            can_be_replaced = bool(attempt.version.etag) or not by_version
            if can_be_replaced and not attempt.under_way and not attempt.has_failed:
                attempt.under_way = True
                return attempt
            self._make_due(path)
            self._wake()
            await attempt.done.wait()
            if attempt.problem is not None and (attempt.problem.transient or not can_be_replaced):
                raise attempt.problem
        return None

    def _is_pending(self, attempt: _Attempt) -> bool:
        """Say whether this is still the latest deletion of its path."""
        return self._pending.get(attempt.version.path) is attempt

    def _end_try(self, attempt: _Attempt, retry_at: float) -> None:
        """End the attempt. If its deletion is still the pending one, a new attempt follows at ``retry_at``."""
        if self._is_pending(attempt):
            self._add(attempt.version, retry_at, attempt.refusals)
        attempt.done.set()

    def _drop(self, attempt: _Attempt) -> None:
        """Remove a deletion that is done, unless the path has a newer one. It stays after ``IndexUnwritableError``."""
        if self._is_pending(attempt):
            self.marks.clear_deleted(attempt.version.path)
            self._forget(attempt.version.path)
            self._set_aside.discard(attempt.version.path)
        attempt.done.set()

    def _forget(self, path: bytes) -> None:
        del self._pending[path]
        directory, _, name = path.rpartition(b"/")
        names = self._in_directory[directory]
        del names[name]
        if not names:
            del self._in_directory[directory]
        self._due.discard(path)
        self._set_aside_due.discard(path)

    def _wait(self, attempt: _Attempt) -> None:
        """Let an attempt that is not under way wait until it is due."""
        times, others = (self._set_aside_due, self._due) if attempt.refusals else (self._due, self._set_aside_due)
        others.discard(attempt.version.path)
        times.put(attempt.version.path, attempt.due)

    def _make_due(self, path: bytes) -> None:
        attempt = self._pending.get(path)
        if attempt is not None and not attempt.under_way and attempt.due > trio.current_time():
            attempt.due = trio.current_time()
            self._wait(attempt)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
