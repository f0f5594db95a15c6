"""Room in the cache and on its disk: measured, and made by evicting clean, closed files.

Eviction drops files that the store has. Files that are dirty, open, pinned or linked from elsewhere stay. The free-space
reserve is also enforced in the background, because working directories fill the same disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container

import trio

from holdfast.capacity.policy import Candidate, Limits, Usage, bytes_to_free, can_ever_fit, first_to_evict
from holdfast.errors import CacheFullError, IndexUnwritableError
from holdfast.index import Entry, EntryState, Index
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer import CachedCopies
from holdfast.wakeups import sleep_within

_log = logging.getLogger("holdfast.capacity")
_CHECK_SECONDS = 5.0
_TRIES = 5
_AT_ONCE = 20_000
_RELEASE_SECONDS = 0.05  # a file just closed counts as open until the kernel has sent its RELEASE


class Room:
    """Admission and eviction. ``free_bytes`` measures the disk."""

    def __init__(
        self,
        limits: Limits,
        index: Index,
        copies: CachedCopies,
        *,
        free_bytes: Callable[[], int],
        events: EventLog,
        counters: Counters,
    ) -> None:
        self.limits = limits
        self._index = index
        self._copies = copies
        self._free_bytes = free_bytes
        self._events = events
        self._counters = counters
        self._lock = trio.Lock()

    def usage(self) -> Usage:
        """Return how full cache and disk are."""
        return Usage(self._index.entries.cached_bytes, self._free_bytes())

    async def make_room(self, wanted_bytes: int) -> None:
        """Return when ``wanted_bytes`` may be written. Raises ``CacheFullError``."""
        if not self._missing(wanted_bytes):
            return
        async with self._lock:
            for _ in range(_TRIES if can_ever_fit(self.limits, self.usage(), wanted_bytes) else 0):
                await self.evict(self._missing(wanted_bytes))
                if not self._missing(wanted_bytes):
                    return
                await trio.sleep(_RELEASE_SECONDS)
            if self._missing(wanted_bytes):
                usage = self.usage()
                raise CacheFullError(
                    f"no room for {wanted_bytes} bytes: {usage.cached_bytes} cached, {usage.free_bytes} free on the disk, "
                    "and evicting can't make enough; raise cache.max_bytes or lower cache.min_free_bytes, or free some disk"
                )

    async def evict(self, wanted_bytes: int) -> int:
        """Evict until ``wanted_bytes`` are freed or nothing is left to evict; return the number of bytes freed."""
        if wanted_bytes <= 0:
            return 0
        self._index.entries.flush_uses()
        freed = 0
        tried: set[int] = set()
        while freed < wanted_bytes and (found := await trio.to_thread.run_sync(self._first_to_evict, tried)):
            for candidate in found:
                if freed >= wanted_bytes:
                    break
                tried.add(candidate.inode)
                if self.evict_file(candidate.inode):
                    freed += candidate.size_bytes
                await trio.lowlevel.checkpoint()
        if freed:
            self._events.emit("evicted", bytes=freed)
        return freed

    def evict_file(self, inode: int) -> bool:
        """Evict one file if that is allowed; return whether it was evicted."""
        entry = self._index.entries.get(inode)
        if entry is None or not self._is_evictable(entry) or self._copies.is_open(inode):
            return False
        if not self._copies.all_names_known(inode, entry):
            return False
        for name in list(entry.names):
            self._copies.drop(name.path, inode, same_object=True)
        self._counters.files_evicted += 1
        self._counters.bytes_evicted += entry.size_bytes
        return True

    async def run(self) -> None:
        """Enforce the free-space reserve until cancelled."""
        while True:
            await sleep_within(_CHECK_SECONDS)
            self._index.keep_reserve()
            self._index.release_pages()
            self._index.entries.flush_uses()
            if self._missing(0):
                async with self._lock:
                    await self._evict_in_background()

    async def _evict_in_background(self) -> None:
        try:
            await self.evict(self._missing(0))
        except IndexUnwritableError as problem:
            _log.warning("can't evict: %s", problem)

    def _missing(self, wanted_bytes: int) -> int:
        return bytes_to_free(self.limits, self.usage(), wanted_bytes)

    def _first_to_evict(self, tried: Container[int]) -> list[Candidate]:
        candidates = (
            Candidate(inode, entry.size_bytes, entry.used_ns, entry.on_probation)
            for inode, entry in self._index.entries.scan({EntryState.CLEAN})
            if inode not in tried and self._is_evictable(entry)
        )
        return first_to_evict(candidates, _AT_ONCE)

    def _is_evictable(self, entry: Entry) -> bool:
        if entry.state is not EntryState.CLEAN or not entry.names:
            return False
        return not any(self._index.pins.cover(name.path) for name in entry.names)
