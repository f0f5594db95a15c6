"""Deletions that the store is still to be told of: held back for a moment, then sent in bulk.

An unlink answers when the deletion is noted in the index. The store hears of it after a short delay, together with its
neighbours: after a look, one request for up to a thousand names, and none for a name that is put again meanwhile. A name
that is to be deleted does not exist for this node. What is deleted is the version that this node knew: the object that
another node has put in its place since then stays, and the name is there again. The note survives the daemon; after a power
cut a deletion that was not waited for (fsync of the directory) may come undone. A deletion that fails is kept and tried
again, soon at first, for what may pass; after that later, and who waits for it is told.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import islice

import trio

from holdfast.errors import HoldfastError, ObjectExistsError, ObjectMissingError
from holdfast.index import CachedName, NameMarks
from holdfast.telemetry import EventLog
from holdfast.transfer.access import RemoteAccess
from holdfast.transfer.conditional_delete import delete_unchanged, is_to_go
from holdfast.transfer.listing_cache import ListingCache

_LARGEST_BATCH = 1000
_RETRY_DELAYS = 10
_SHORTEST_RETRY_SECONDS = 10.0


class _Attempt:
    """The attempt to delete one object: tries, until one succeeds or the deadline has passed. Then there is a new attempt.

    ``under_way``: it is being deleted, or another is being put in its place. After ``tries`` that failed nothing is put in
    its place: the store may still carry one out.
    """

    __slots__ = ("deadline", "done", "due", "problem", "tries", "under_way", "version")

    def __init__(self, due: float, version: CachedName) -> None:
        self.due = due
        self.version = version
        self.deadline = math.inf
        self.tries = 0
        self.under_way = False
        self.done = trio.Event()
        self.problem: HoldfastError | None = None


class Deletions:
    """The pending deletions of one store; ``key_of`` gives the object key of a tree path.

    ``directories`` hear of each key that the store has deleted, or has anew, before the deletion stops being pending.
    ``owner`` is what this node signs its objects with (``transfer.signature``).
    """

    def __init__(
        self,
        access: RemoteAccess,
        marks: NameMarks,
        key_of: Callable[[bytes], str],
        delay_seconds: float,
        events: EventLog,
        directories: ListingCache,
        owner: str,
    ) -> None:
        self._access = access
        self._marks = marks
        self._key_of = key_of
        self._delay_seconds = delay_seconds
        self._events = events
        self._directories = directories
        self._owner = owner
        self._pending: dict[bytes, _Attempt] = {}
        self._changed = trio.Event()
        self._sleeps_until = math.inf

    def __len__(self) -> int:
        return len(self._pending)

    def restore(self, version: CachedName) -> None:
        """Take up a deletion that an earlier run noted."""
        self._add(version, trio.current_time())

    def schedule(self, version: CachedName) -> None:
        """Note that an object is gone: this version of it, or with the etag ``""`` whichever there is."""
        self._marks.mark_deleted(version)
        self._add(version, trio.current_time() + self._delay_seconds)

    def pending(self, path: bytes) -> bool:
        """Say whether the object at ``path`` is gone for this node, whatever the store still shows."""
        return path in self._pending

    def pending_in(self, directory: bytes) -> list[bytes]:
        """Return the names in the tree's directory at ``directory`` whose objects are gone for this node."""
        split = (path.rpartition(b"/") for path in self._pending)
        return [name for parent, _, name in split if parent == directory]

    def paths(self) -> list[bytes]:
        """Return all paths whose objects are still to be deleted."""
        return list(self._pending)

    async def settle(self, path: bytes) -> None:
        """Return when no deletion of ``path`` is pending. Raises what the store answers instead (``RemoteError``)."""
        while (attempt := self._pending.get(path)) is not None:
            self._hurry([path])
            await attempt.done.wait()
            if attempt.problem is not None:
                raise attempt.problem

    @asynccontextmanager
    async def replaced(self, path: bytes, *, by_version: bool) -> AsyncIterator[str]:
        """Put an object at ``path`` inside: a deletion that is held back is done by that; after an error it is due again.

        ``ObjectExistsError`` means that another node has put another there: then too there is nothing more to be deleted.
        With ``by_version`` the new object may replace nothing else: this yields the etag of what is there, if that is what
        was to be deleted, and ``""`` otherwise; a deletion without etag is sent first. Raises what the store answers instead
        of deleting (``RemoteError``): who must not be overtaken by a deletion on its way waits for it.
        """
        attempt = await self._claim(path, by_version)
        if attempt is None:
            yield ""
            return
        try:
            yield await self._etag_to_go(attempt.version) if by_version else ""
            self._drop(attempt)
        except ObjectExistsError:
            self._drop(attempt)
            raise
        finally:
            self._end_try(attempt, trio.current_time() + self._delay_seconds)

    async def flush(self, paths: list[bytes] | None = None) -> None:
        """Return when the store has been told of ``paths`` (None: of all that is pending now).

        Raises what the store answers instead of deleting (``RemoteError``); the deletions stay pending then.
        """
        waited_for = self.paths() if paths is None else paths
        self._hurry(waited_for)
        for path in waited_for:
            await self.settle(path)

    async def run(self) -> None:
        """Send deletions as they fall due, until cancelled."""
        while True:
            waiting = (attempt.due for attempt in self._pending.values() if not attempt.under_way)
            self._sleeps_until = min(waiting, default=math.inf)
            if self._sleeps_until > trio.current_time():
                with trio.move_on_at(self._sleeps_until):
                    await self._changed.wait()
            else:
                await self._send()

    async def _send(self) -> None:
        now = trio.current_time()
        waiting = (attempt for attempt in self._pending.values() if attempt.due <= now and not attempt.under_way)
        batch = {self._key_of(attempt.version.path): attempt for attempt in islice(waiting, _LARGEST_BATCH)}
        for attempt in batch.values():
            attempt.under_way = True
            attempt.deadline = min(attempt.deadline, self._access.deadline())
        try:
            await self._delete(batch)
        finally:
            for attempt in batch.values():
                if attempt.under_way:
                    self._end_try(attempt, now)

    async def _delete(self, batch: dict[str, _Attempt]) -> None:
        """Delete what is still the version that was to go; see to it that what failed is tried again."""
        versions = {key: attempt.version for key, attempt in batch.items()}
        outcome = await delete_unchanged(self._access, versions, self._owner, self._directories.believed_size)
        problems: dict[str, HoldfastError] = dict(outcome.problems)
        for key, attempt in batch.items():
            if key not in problems:
                self._directories.deleted(key)
                try:
                    self._drop(attempt)
                except HoldfastError as problem:  # the index is full
                    problems[key] = problem
        for info in outcome.others:
            self._directories.seen(info.key, info)
            self._events.emit("delete-superseded", store=self._access.name, key=info.key)
        final = [told for key, problem in problems.items() if (told := self._put_off(batch[key], problem)) is not None]
        if final:
            self._events.emit("delete-delayed", store=self._access.name, objects=len(final), problem=str(final[0]))

    def _put_off(self, attempt: _Attempt, problem: HoldfastError) -> HoldfastError | None:
        """Let another try follow one that failed with ``problem``; return what those are told who wait no longer."""
        if problem.transient and self._is_pending(attempt):
            try:
                attempt.due = self._access.next_try(attempt.tries, attempt.deadline, problem)
            except HoldfastError as late:
                problem = late
            else:
                attempt.tries += 1
                attempt.under_way = False
                return None
        if self._is_pending(attempt):
            attempt.problem = problem
        retry_seconds = max(_SHORTEST_RETRY_SECONDS, _RETRY_DELAYS * self._delay_seconds)
        self._end_try(attempt, trio.current_time() + retry_seconds)
        return problem

    async def _etag_to_go(self, version: CachedName) -> str:
        """Return the etag of the object that is there, ``""`` when it is none that was to go."""
        try:
            info = await self._access.head(self._key_of(version.path))
        except ObjectMissingError:
            return ""
        return info.etag if is_to_go(self._access.store, info, version, self._owner) else ""

    def _add(self, version: CachedName, due: float) -> None:
        earlier = self._pending.get(version.path)
        if earlier is not None and not earlier.under_way:
            earlier.done.set()  # who waits for it has this one to wait for
        self._pending[version.path] = _Attempt(due, version)
        if due < self._sleeps_until:  # not at each of many: ``run`` looks at them all when it wakes
            self._wake()

    async def _claim(self, path: bytes, by_version: bool) -> _Attempt | None:
        while (attempt := self._pending.get(path)) is not None:
            can_be_replaced = bool(attempt.version.etag) or not by_version
            if can_be_replaced and not attempt.under_way and not attempt.tries:
                attempt.under_way = True
                return attempt
            self._hurry([path])
            await attempt.done.wait()
            if attempt.problem is not None and (attempt.problem.transient or not can_be_replaced):
                raise attempt.problem
        return None

    def _is_pending(self, attempt: _Attempt) -> bool:
        """Say whether the path has no newer deletion by now."""
        return self._pending.get(attempt.version.path) is attempt

    def _end_try(self, attempt: _Attempt, retry_at: float) -> None:
        """The try is over: where it has not done it, and nothing newer is pending, there will be another."""
        if self._is_pending(attempt):
            self._add(attempt.version, retry_at)
        attempt.done.set()

    def _drop(self, attempt: _Attempt) -> None:
        """Forget a deletion, unless the path has a newer one. After an error (``IndexFullError``) it is still pending."""
        if self._is_pending(attempt):
            self._marks.clear_deleted(attempt.version.path)
            del self._pending[attempt.version.path]
        attempt.done.set()

    def _hurry(self, paths: list[bytes]) -> None:
        for path in paths:
            attempt = self._pending.get(path)
            if attempt is not None and not attempt.under_way:
                attempt.due = min(attempt.due, trio.current_time())
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
