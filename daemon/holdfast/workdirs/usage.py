"""What each working directory takes of the disk, found by walking through it again and again, slowly.

Files may grow without the daemon hearing of it (passthrough, mappings), so nothing but a look at their blocks tells. A walk
takes a tenth of the time at most. Directories with a limit are walked through every few seconds, the others once in a while.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

import trio

from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.quotas import Usage
from holdfast.store import Tree, descend, is_copy
from holdfast.workdirs.service import Workdirs

_LIMITED_EVERY_SECONDS = 1.0
_OTHERS_EVERY_SECONDS = 60.0
_PAUSES_PER_WORK = 9
_LONGEST_PAUSE_SECONDS = 1.0
_BLOCK_BYTES = 512


class UsageWalks:
    """Keeps ``Quotas`` up to date. ``run`` walks."""

    def __init__(self, base: Foundation, workdirs: Workdirs) -> None:
        self._tree = base.parts.store.tree
        self._events = base.parts.events
        self._quotas = base.quotas
        self._workdirs = workdirs
        self._due: dict[bytes, float] = {}

    async def run(self) -> None:
        """Walk through all working directories by turns, until cancelled."""
        while True:
            limits = self._workdirs.limits()
            self._quotas.keep_only(set(limits))
            self._due = {path: due for path, due in self._due.items() if path in limits}
            for path, limit_bytes in limits.items():
                if limit_bytes != self._limit_of(path) or self._due.get(path, 0.0) <= trio.current_time():
                    await self._measure(path, limit_bytes)
            await trio.sleep(_LIMITED_EVERY_SECONDS)

    def _limit_of(self, path: bytes) -> int:
        usage = self._quotas.of(path)
        return usage.limit_bytes if usage else 0

    async def _measure(self, path: bytes, limit_bytes: int) -> None:
        every_seconds = _LIMITED_EVERY_SECONDS if limit_bytes else _OTHERS_EVERY_SECONDS
        try:
            used = await trio.to_thread.run_sync(used_bytes, self._tree, path, abandon_on_cancel=True)
        except OSError:  # it has just gone, or its disk has
            return
        self._due[path] = trio.current_time() + every_seconds
        if not self._quotas.found(path, Usage(used, limit_bytes)):
            return
        facts: dict[str, str | int] = {"path": os.fsdecode(path), "used_bytes": used, "limit_bytes": limit_bytes}
        if used > limit_bytes:
            self._events.emit("quota-reached", **facts)
        else:
            self._events.emit("quota-below-again", **facts)


def used_bytes(tree: Tree, path: bytes) -> int:
    """Return what the directory at ``path`` takes, each file once however many names it has there.

    Copies of objects do not count: they make room by themselves. Symbolic links are not followed. Call it in a thread; it
    pauses for most of the time. Raises ``OSError``.
    """
    used = 0
    linked: set[int] = set()
    top_fd = tree.open_directory(path)
    try:
        began = time.monotonic()
        for trail, fd, entries in descend(top_fd):
            may_have_copies = bool(trail) and trail[0] in (b"localState", b"blobStorage")
            used += os.fstat(fd).st_blocks * _BLOCK_BYTES
            for entry in entries:
                if entry.is_directory:
                    continue
                with suppress(OSError):  # it has just gone
                    stat = os.stat(entry.name, dir_fd=fd, follow_symlinks=False)
                    if stat.st_ino in linked or (may_have_copies and is_copy(b"/proc/self/fd/%d/%s" % (fd, entry.name))):
                        continue
                    if stat.st_nlink > 1:
                        linked.add(stat.st_ino)
                    used += stat.st_blocks * _BLOCK_BYTES
            time.sleep(min(_LONGEST_PAUSE_SECONDS, _PAUSES_PER_WORK * (time.monotonic() - began)))
            began = time.monotonic()
    finally:
        os.close(top_fd)
    return used
