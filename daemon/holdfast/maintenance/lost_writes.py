"""Watches the disks of the store for bytes that they took and then refused, when the kernel wrote them out.

A write returns when its bytes are in memory. A disk below the file system that runs out of space (a thin one, a file of the
host's) or breaks refuses them later. The kernel then drops them, and whoever reads the file once it has left the memory gets
other bytes. Only sync calls tell, and syncfs(2) tells of any file. After that nothing counts as checked that is on the disk.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress

import trio

from holdfast.fs.foundation import Foundation
from holdfast.fs.integrity.verifier import Verifier
from holdfast.telemetry.wakeups import sleep_within

_log = logging.getLogger("holdfast.store")


async def watch_writes(base: Foundation, verifier: Verifier) -> None:
    """Ask each disk every ``integrity.check_writes_seconds`` (0: never), until cancelled."""
    every_seconds = base.parts.config.integrity.check_writes_seconds
    if not every_seconds:
        return
    store = base.parts.store
    roots = {room.disk.number: store.tree.root_fd for room in base.rooms.all[:1]}
    roots |= {disk.number: disk.root_fd for disk in store.others.present}
    async with trio.open_nursery() as nursery:
        for room in base.rooms.all:
            watch = _Watch(base, verifier, room.disk.number, room.disk.path)
            nursery.start_soon(watch.run, roots[room.disk.number], every_seconds)


class _Watch:
    """Watches one disk."""

    def __init__(self, base: Foundation, verifier: Verifier, disk: int, path: str) -> None:
        self._calls, self._events, self._verifier = base.parts.store.calls, base.parts.events, verifier
        self._disk, self._path = disk, path
        self._loses = False
        """True if the last answer was an error: a disk that takes no writes is told of once."""

    async def run(self, root_fd: int, every_seconds: float) -> None:
        """Ask again and again. The kernel tells each open file description once of what was lost, so it is kept."""
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root_fd)
        try:
            while True:
                await sleep_within(every_seconds)
                with suppress(OSError):  # the other process could not be asked
                    self._note(await self._synced(fd))
        finally:
            os.close(fd)

    async def _synced(self, fd: int) -> int:
        """Sync the file system in another process, because a daemon could not end before a slow disk has everything.

        Returns the error, or 0.
        """
        answer = self._calls.begin("sync_file_system", [fd])
        try:
            await trio.lowlevel.wait_readable(answer)
            return answer.take()
        finally:
            answer.close()

    def _note(self, error: int) -> None:
        if error:
            self._verifier.distrust(self._disk)
        if error and not self._loses:
            problem = os.strerror(error)
            _log.warning("the disk %s has lost what was written to it: %s", self._path, problem)
            self._events.emit("disk-lost-writes", disk=self._path, problem=problem)
        self._loses = bool(error)
