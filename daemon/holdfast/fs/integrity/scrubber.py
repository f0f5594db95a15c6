"""The background scrub: all files whose digest is known are hashed again and again, at a set rate.

Disks lose bits in files that nobody opens; what is found here is fetched again before it is needed. Cut off at any point it
begins anew with the next run.
"""

from __future__ import annotations

import os

import trio

from holdfast.errors import HoldfastError
from holdfast.fs.integrity.verifier import Verifier
from holdfast.index import Entries
from holdfast.telemetry import EventLog

_SHORTEST_PASS_SECONDS = 3600.0  # what was read a moment ago is not read again at once


class Scrubber:
    """Scrubs, so many bytes a second; 0 switches it off."""

    def __init__(self, verifier: Verifier, entries: Entries, events: EventLog, bytes_per_second: int) -> None:
        self._verifier = verifier
        self._entries = entries
        self._events = events
        self._bytes_per_second = bytes_per_second

    async def run(self) -> None:
        """Scrub until cancelled; return at once when switched off."""
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
