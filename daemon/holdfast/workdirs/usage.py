"""The disk usage of each working directory, found by walking through it again and again, slowly.

Files may grow without the daemon hearing of it (passthrough, mappings), so nothing but a look at their blocks tells. The
walks take a tenth of the time at most. Directories with a limit are walked through every second, the others once in a while;
where none is due, nothing is done.

The walks of different users take turns, one of each at a time: nobody has to wait for the end of a walk through another's
directories, which that user can make as long as it likes. An exceeded limit is found before the walk is over.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field

import trio

from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.admission import NO_LIMIT, Usage
from holdfast.index import Entries
from holdfast.store import Space, Tree, digest_when_placed
from holdfast.system.file_id import FileId, FileStat, file_stat
from holdfast.telemetry.slices import Slices
from holdfast.workdirs.service import Workdirs

_LIMITED_EVERY_SECONDS = 1.0
_OTHERS_EVERY_SECONDS = 60.0
_TURN_SECONDS = 0.02
_PAUSES_PER_WORK = 9
_LONGEST_PAUSE_SECONDS = 1.0
_BLOCK_BYTES = 512
_SPARE_BLOCKS = 3
"""The blocks that a file may take beyond its bytes: the end of the last one, attributes, the map of its extents."""
_FALLBACK_ZONES = (b"localState", b"blobStorage")
"""The parts of a working directory that can have copies of objects."""


class UsageWalk:
    """A walk through the directory at ``path``, in portions, so that many can take turns. Close it if it is left early.

    Each file counts once, however many names it has there. A copy of an object does not count while it makes room by
    itself, because it can be fetched again: as long as it has the bytes that were fetched, and no other name that would keep
    them on the disk. Symbolic links are not followed.
    """

    def __init__(self, tree: Tree, entries: Entries, path: bytes) -> None:
        self.path = path
        self.used = Space(0, 0)
        """The space found so far."""
        self._tree = tree
        self._entries = entries
        self._linked: set[FileId] = set()
        self._steps = self._walk()

    def go_on(self, seconds: float) -> bool:
        """Walk on for so long, or somewhat longer; say whether there is more. Call it in a thread. Raises ``OSError``."""
        until = time.monotonic() + seconds
        return any(time.monotonic() >= until for _ in self._steps)

    def close(self) -> None:
        """Leave the walk."""
        self._steps.close()

    def _walk(self) -> Generator[None, None, None]:
        """Add up what there is; pause after each directory and each file."""
        top_fd = self._tree.open_directory(self.path)
        try:
            for trail, fd, entries in self._tree.descend(top_fd):
                may_have_copies = bool(trail) and trail[0] in _FALLBACK_ZONES
                self.used = self.used.and_another(os.fstat(fd).st_blocks * _BLOCK_BYTES)
                yield
                for entry in entries:
                    if not entry.is_directory:
                        with suppress(OSError):  # it has just gone
                            self._add(fd, entry.name, may_be_copy=may_have_copies)
                        yield
        finally:
            os.close(top_fd)

    def _add(self, directory_fd: int, name: bytes, *, may_be_copy: bool) -> None:
        stat = file_stat(name, dir_fd=directory_fd, follow_symlinks=False)
        if stat.st_ino in self._linked:
            return
        if may_be_copy and self._makes_room(b"/proc/self/fd/%d/%s" % (directory_fd, name), stat):
            return
        if stat.st_nlink > 1:
            self._linked.add(stat.st_ino)
        self.used = self.used.and_another(stat.st_blocks * _BLOCK_BYTES)

    def _makes_room(self, file: bytes, stat: FileStat) -> bool:
        """Say whether a file is a copy that is as it was fetched, under the names of its objects alone.

        The index knows that better than the time of modification, which the owner of a file can set. Blocks beyond the bytes
        (fallocate(2) with FALLOC_FL_KEEP_SIZE) are nothing that was fetched.
        """
        if stat.st_blocks * _BLOCK_BYTES > stat.st_size + _SPARE_BLOCKS * max(stat.st_blksize, 4096):
            return False
        placed = digest_when_placed(file)
        entry = self._entries.get(stat.st_ino) if placed is not None else None
        return entry is not None and entry.digest == placed and stat.st_nlink <= max(1, len(entry.names))


@dataclass(slots=True)
class _User:
    """The directories of one user that are due, and the walk through one more."""

    due: deque[bytes] = field(default_factory=deque)
    walk: UsageWalk | None = None


class UsageWalks:
    """Keeps ``Quotas`` up to date. ``run`` walks."""

    def __init__(self, base: Foundation, workdirs: Workdirs) -> None:
        self._tree = base.parts.store.tree
        self._entries = base.parts.index.entries
        self._events = base.parts.events
        self._quotas = base.quotas
        self._workdirs = workdirs
        self._limits: dict[bytes, Space] = {}
        self._due: dict[bytes, float] = {}
        """The trio times of the next walks, by path; infinite from when a walk is due until it has ended."""
        self._users: dict[int, _User] = {}
        """The users with directories that are due, by uid."""

    async def run(self) -> None:
        """Walk through all working directories by turns, until cancelled."""
        try:
            while True:
                until = trio.current_time() + _LIMITED_EVERY_SECONDS
                await self._look_for_due()
                while self._users and trio.current_time() < until:
                    for uid, user in list(self._users.items()):
                        await self._take_turn(user)
                        if user.walk is None and not user.due:
                            del self._users[uid]
                await trio.sleep_until(until)
                if not self._users:
                    with trio.move_on_at(min(self._due.values(), default=math.inf)):
                        await self._workdirs.wait_new()
        finally:
            for user in self._users.values():
                if user.walk is not None:
                    user.walk.close()

    async def _look_for_due(self) -> None:
        limits = self._limits = await self._workdirs.limits()
        self._quotas.keep_only(set(limits))
        now = trio.current_time()
        before, self._due = self._due, {}
        due, slices = [], Slices()
        for path, limit in limits.items():
            await slices.pause()
            at = before.get(path, now)
            if at <= now or (at < math.inf and limit != self._limit_of(path)):
                due.append(path)
                at = math.inf
            self._due[path] = at
        if due:
            await self._give_to_users(due)

    async def _give_to_users(self, due: list[bytes]) -> None:
        found = await trio.to_thread.run_sync(self._owners, due)
        for path in {*due} - {path for path, _ in found}:
            self._due[path] = trio.current_time() + self._every_seconds(path)
        for path, uid in found:
            self._users.setdefault(uid, _User()).due.append(path)

    def _every_seconds(self, path: bytes) -> float:
        return _LIMITED_EVERY_SECONDS if any(self._limits.get(path, ())) else _OTHERS_EVERY_SECONDS

    def _owners(self, paths: list[bytes]) -> list[tuple[bytes, int]]:
        """Return the directories that are there, each with its owner's uid."""
        found = []
        for path in paths:
            with suppress(OSError):
                found.append((path, self._tree.stat(path).st_uid))
        return found

    def _limit_of(self, path: bytes) -> Space:
        usage = self._quotas.of(path)
        return usage.limit if usage else NO_LIMIT

    async def _take_turn(self, user: _User) -> None:
        walk = user.walk = user.walk or UsageWalk(self._tree, self._entries, user.due.popleft())
        began = time.monotonic()
        is_over = True
        with suppress(OSError):  # the directory has just gone, or its disk has
            is_over = not await trio.to_thread.run_sync(walk.go_on, _TURN_SECONDS)
            self._note(walk, is_over=is_over)
        if is_over:
            user.walk = None
            self._due[walk.path] = trio.current_time() + self._every_seconds(walk.path)
        await trio.sleep(min(_LONGEST_PAUSE_SECONDS, _PAUSES_PER_WORK * (time.monotonic() - began)))

    def _note(self, walk: UsageWalk, *, is_over: bool) -> None:
        """Record what was found; before the end of a walk only if it is too much already."""
        path, before = walk.path, self._quotas.of(walk.path)
        usage = Usage(walk.used, self._limits.get(path, NO_LIMIT))
        if path not in self._limits or not (is_over or (usage.is_exceeded and not (before and before.is_exceeded))):
            return
        if not self._quotas.found(path, usage):
            return
        used, limit = usage.used, usage.limit
        found = {
            "used_bytes": used.size_bytes,
            "limit_bytes": limit.size_bytes,
            "used_files": used.files,
            "limit_files": limit.files,
        }
        if usage.is_exceeded:
            self._events.emit("quota-reached", path=os.fsdecode(path), **found)
        else:
            self._events.emit("quota-below-again", path=os.fsdecode(path), **found)
