"""The background scrub: all files with a known digest are hashed again and again, at a set rate.

Disks lose bits in files that nobody opens; the scrub finds them, so that they are fetched again before they are needed. If
cut off, it starts over in the next run.
"""

from __future__ import annotations

import os

import trio

from holdfast.errors import HoldfastError
from holdfast.fs.integrity.verifier import Verifier
from holdfast.index import Entries
from holdfast.telemetry import EventLog

_SHORTEST_PASS_SECONDS = 3600.0  # do not read again what was read a moment ago


class Scrubber:
    """Scrubs at ``bytes_per_second``; 0 switches it off."""

    def __init__(self, verifier: Verifier, entries: Entries, events: EventLog, bytes_per_second: int) -> None:
        self._verifier = verifier
        self._entries = entries
        self._events = events
        self._bytes_per_second = bytes_per_second

    async def run(self) -> None:
        """Scrub until cancelled. Returns at once if switched off."""
        rate = self._bytes_per_second
        if not rate:
            return
        while True:
            next_pass = trio.current_time() + _SHORTEST_PASS_SECONDS
            await self._pass(rate)
            await trio.sleep_until(next_pass)

    async def _pass(self, rate: int) -> None:
        files = bytes_read = corrupt = 0
        for inode, path in await trio.to_thread.run_sync(self._verifier.known_files, b""):
            try:
                intact = await self._verifier.check_at(path, inode)
            except (OSError, HoldfastError) as problem:
                self._events.emit("scrub-skipped", path=os.fsdecode(path), problem=str(problem))
                continue
            entry = self._entries.get(inode)
            size_bytes = entry.size_bytes if entry is not None else 0
            files, bytes_read, corrupt = files + 1, bytes_read + size_bytes, corrupt + (not intact)
            await trio.sleep(size_bytes / rate)
        self._events.emit("scrubbed", files=files, bytes=bytes_read, corrupt=corrupt)
