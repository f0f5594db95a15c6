"""The files that are evicted next: found by a look at all entries, and kept, because a look takes long if somebody waits."""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

from holdfast.capacity.policy import Candidate, first_to_evict
from holdfast.index import Entries, Entry, EntryState
from holdfast.system.file_id import FileId, disk_of

_AT_ONCE = 20_000
_FRESH_SECONDS = 60.0


class Victims:
    """The files of the disk ``disk`` in the order of eviction. A file that is used after it was found has lost its place."""

    def __init__(self, entries: Entries, disk: int, is_evictable: Callable[[Entry], bool]) -> None:
        self._entries = entries
        self._disk = disk
        self._is_evictable = is_evictable
        self._found: list[Candidate] = []
        """The files that were found, in reverse order: the first to go is the last here."""
        self._until = 0.0
        self._tried: set[FileId] = set()

    def begin(self) -> None:
        """Begin an eviction: each file is given out once until the next one begins."""
        self._tried.clear()
        if time.monotonic() > self._until:
            self._found.clear()

    async def next(self) -> Candidate | None:
        """Return the next file to be evicted, in an instant mostly; None if there is none."""
        while True:
            while self._found:
                candidate = self._found.pop()
                entry = self._entries.get(candidate.inode)
                if entry is not None and entry.used_ns == candidate.used_ns and candidate.inode not in self._tried:
                    self._tried.add(candidate.inode)
                    return candidate
            self._found = (await trio.to_thread.run_sync(self._look))[::-1]
            self._until = time.monotonic() + _FRESH_SECONDS
            if not self._found:
                return None

    def _look(self) -> list[Candidate]:
        candidates = (
            Candidate(inode, entry.size_bytes, entry.used_ns, entry.on_probation)
            for inode, entry in self._entries.scan({EntryState.CLEAN})
            if disk_of(inode) == self._disk and inode not in self._tried and self._is_evictable(entry)
        )
        return first_to_evict(candidates, _AT_ONCE)
