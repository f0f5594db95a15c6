"""The background scrub: all files with a known digest are hashed again and again, at a set rate.

Disks lose bits in files that nobody opens; the scrub finds them, so that they are fetched again before they are needed. If
cut off, it starts over in the next run.
"""

from __future__ import annotations

import os
from contextlib import aclosing

import trio

from holdfast.errors import HoldfastError
from holdfast.fs.foundation import Foundation
from holdfast.fs.integrity.verifier import Verifier

_SHORTEST_PASS_SECONDS = 3600.0  # do not read again what was read a moment ago


class Scrubber:
    """Scrubs at ``integrity.scrub_bytes_per_second``; 0 switches it off."""

    def __init__(self, base: Foundation, verifier: Verifier) -> None:
        self._entries, self._events = base.parts.index.entries, base.parts.events
        self._verifier = verifier
        self._is_on = trio.Event()
        self.set_rate(int(base.parts.config.integrity.scrub_bytes_per_second))

    def set_rate(self, bytes_per_second: int) -> None:
        """Scrub at another rate from the next file on. 0: a pass that has begun ends with its next file."""
        self._bytes_per_second = bytes_per_second
        if bytes_per_second:
            self._is_on.set()
        else:
            self._is_on = trio.Event()

    async def run(self) -> None:
        """Scrub until cancelled."""
        while True:
            await self._is_on.wait()
            next_pass = trio.current_time() + _SHORTEST_PASS_SECONDS
            await self._pass()
            await trio.sleep_until(next_pass)

    async def _pass(self) -> None:
        files = bytes_read = corrupt = 0
        left_out: list[tuple[bytes, OSError]] = []
        async with aclosing(self._verifier.known_files(b"", lambda *each: left_out.append(each))) as found:
            async for inode, path in found:
                try:
                    intact = await self._verifier.check_at(path, inode)
                except (OSError, HoldfastError) as problem:
                    self._events.emit("scrub-skipped", path=os.fsdecode(path), problem=str(problem))
                    continue
                entry = self._entries.get(inode)
                size_bytes = entry.size_bytes if entry is not None else 0
                files, bytes_read, corrupt = files + 1, bytes_read + size_bytes, corrupt + (not intact)
                if not self._bytes_per_second:
                    return
                await trio.sleep(size_bytes / self._bytes_per_second)
        for path, refusal in left_out:
            self._events.emit("scrub-skipped", path=os.fsdecode(path), problem=str(refusal))
        self._events.emit("scrubbed", files=files, bytes=bytes_read, corrupt=corrupt)
