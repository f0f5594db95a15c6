"""Room in the cache on one disk: measured, and made by evicting clean, closed files.

Eviction drops files on this disk that the store has. Files that are dirty, open, pinned or linked from elsewhere stay. The
reserve is also enforced in the background, because working directories fill the same disk. What the daemon itself writes is
tried again after an eviction (``with_room``), so nobody is told that the disk is full while copies could go.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import trio

from holdfast.capacity.disk import Disk
from holdfast.capacity.emptied import EmptiedDirectories
from holdfast.capacity.policy import Candidate, Limits, Usage, can_ever_fit, to_free
from holdfast.capacity.victims import Victims
from holdfast.errors import CacheFullError, FileBusyError, IndexUnwritableError
from holdfast.index import Entry, EntryState, Index
from holdfast.store import NO_ROOM, Space
from holdfast.system.file_id import FileId
from holdfast.system.waits import before_waiting
from holdfast.telemetry import Counters, EventLog, JoinedEvents
from holdfast.telemetry.wakeups import sleep_within
from holdfast.transfer import CachedCopies

_log = logging.getLogger("holdfast.capacity")
_T = TypeVar("_T")
_CHECK_SECONDS = 5.0
_TRIES = 5
RELEASE_SECONDS = 0.05
"""A file that was just closed counts as open until the kernel has sent its RELEASE."""
_TURN_SECONDS = 0.001  # of the event loop, for evicting
_MOST_WAITS = 200  # of RELEASE_SECONDS, until what was deleted is free on the disk
_SHOWN_WAITS = 4  # of them, until a disk shows what was freed: XFS does that a moment later
_VAIN_SECONDS = 1.0
_VAIN_FACTOR = 10.0  # who keeps trying on a disk without a copy to evict takes a tenth of the time at most
_SPARE = Space(16, 2**20)
"""The space that a change takes beside its bytes: for directories, attributes, the file system's own blocks."""
_NOTHING = Space(0, 0)
_CLEAR_SHARE = 1 / 8
_CLEAR_SECONDS = 60.0
"""A disk has room again once this share of the reserve is free beside it, or the reserve was free for so long. Otherwise
what comes and goes around the reserve would be told of again and again."""
_SPARE_RESERVES = 2
"""The multiple of the reserve that stays free for what nobody has asked for."""


class Room:
    """Admits what is about to be written to a disk, and evicts copies there to make room for it."""

    def __init__(
        self,
        limits: Limits,
        disk: Disk,
        index: Index,
        copies: CachedCopies,
        emptied: EmptiedDirectories,
        *,
        events: EventLog,
        counters: Counters,
    ) -> None:
        self.limits = limits
        self.disk = disk
        self._index = index
        self._copies = copies
        self._events = events
        self._evicted = JoinedEvents(events, "evicted", trio.current_time)
        self._counters = counters
        self._lock = trio.Lock()
        self._vain_until = 0.0
        self._is_full = False
        self._full_at = 0.0
        """The time when the disk was found full last."""
        self._evicts_in_vain = False
        self._victims = Victims(index.entries, disk.number, self._is_evictable)
        self._emptied = emptied

    def usage(self) -> Usage:
        """Return how full cache and disk are."""
        return Usage(self._cached_bytes, self.disk.look())

    @property
    def _cached_bytes(self) -> int:
        return self._index.entries.cached_bytes_on(self.disk.number)

    # --- admission ---------------------------------------------------------------------------------------------------

    async def make_room(self, wanted_bytes: int) -> None:
        """Return when a copy of ``wanted_bytes`` may be written. Raises ``CacheFullError``."""
        wanted = Space(1, wanted_bytes)
        if any(self._missing(wanted)):
            await self._evict_for(wanted)
        if self.disk.is_freeing and not self.disk.has_room(wanted):
            await self._is_free(wanted)
        self.disk.admitted(wanted_bytes)

    async def _evict_for(self, wanted: Space) -> None:
        async with self._lock:
            for _ in range(_TRIES if can_ever_fit(self.limits, self.usage(), wanted.size_bytes) else 0):
                await self._evict_until(lambda: self._missing(wanted))
                if not any(self._missing(wanted)):
                    return
                await trio.sleep(RELEASE_SECONDS)
            if any(self._missing(wanted)):
                raise CacheFullError(f"no room for {wanted.size_bytes} bytes: {self.advice(wanted)}")

    def has_spare(self, wanted_bytes: int) -> bool:
        """Say whether a copy of ``wanted_bytes`` has room without an eviction, also later on.

        That is when twice the reserve stays free, and the cache stays below the mark to which it shrinks when it is full.
        """
        usage = self.usage()
        spare_bytes = _SPARE_RESERVES * self.limits.reserve(usage.disk).size_bytes
        return not any(to_free(self.limits.shrunk, usage, Space(1, wanted_bytes), spare_bytes))

    async def with_room(self, change: Callable[[], Awaitable[_T]], size_bytes: int = 0) -> _T:
        """Carry out ``change``, which takes about ``size_bytes``; if the disk has no room for it, evict and try again.

        A change that fails so must have done nothing. Its error is raised if nothing can be evicted for it. EDQUOT may be
        the limit of the disk as the daemon has it, or of somebody else, for whom evicting is no help.
        """
        for attempt in range(_TRIES):
            try:
                return await change()
            except OSError as problem:
                is_others = problem.errno == errno.EDQUOT and self.disk.has_room(_needed(size_bytes))
                if problem.errno not in NO_ROOM or is_others or not await self._make_way(size_bytes):
                    raise
            if attempt:  # a journal gives out again what was freed only after its next commit
                await trio.sleep(RELEASE_SECONDS * 2.0**attempt)
        return await change()

    async def with_room_at_once(self, change: Callable[[], _T]) -> _T:
        """Do what ``with_room`` does for a change that is made in one step."""

        async def carry_out() -> _T:
            return change()

        return await self.with_room(carry_out)

    async def ensure_room(self, size_bytes: int) -> None:
        """Return when the disk has room for so many bytes. Raises ``OSError`` with ENOSPC."""
        if size_bytes and not self.disk.has_room(Space(0, size_bytes)) and not await self._make_way(size_bytes):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.disk.admitted(size_bytes)

    async def keep_spare(self) -> None:
        """Evict if there is hardly any room, before a change that can't be tried again."""
        if self.lacks_spare():
            await before_waiting()
            await self._make_way(0)

    def lacks_spare(self) -> bool:
        """Say whether there is hardly any room, so that ``keep_spare`` waits."""
        return not self.disk.had_plenty() and not self.disk.has_room(_SPARE)

    def may_pass_by(self) -> bool:
        """Say whether a writer may pass the daemon by: on a full disk the kernel evicts nothing, and waits for nothing."""
        if not self.disk.is_scarce():
            return True
        self.disk.look()
        can_evict = self._cached_bytes > 0 and not self._evicts_in_vain
        return not can_evict and not self.disk.is_freeing

    async def _make_way(self, size_bytes: int) -> bool:
        """Evict because the disk was full; say whether it has room for so many bytes now.

        What another process has freed, and not yet reported, counts as free twice for a moment. So if what went turns out
        to be too little, more goes.
        """
        wanted = _needed(size_bytes)
        while True:
            async with self._lock:
                if self.disk.has_room(wanted):
                    return True  # others have been faster; or it is not for want of room
                usage = self.usage()
                if size_bytes > _SPARE.size_bytes and usage.disk.free_bytes + usage.cached_bytes < size_bytes:
                    return False
                has_evicted = await self._evict_unless_vain(wanted, usage)
            is_free = await self._is_free(Space(1, size_bytes))  # without the lock: it may take long, and others evict
            if is_free or not has_evicted:
                return is_free

    async def _evict_unless_vain(self, wanted: Space, usage: Usage) -> bool:
        """Evict until there is room for ``wanted``, unless that was in vain a moment ago; say whether anything went."""
        began, now = time.monotonic(), self.disk.now
        if began < self._vain_until:
            return False
        pending = Space(usage.disk.free_files - now.free_files, usage.disk.free_bytes - now.free_bytes)
        missing = partial(self._missing_beside, pending, wanted)
        has_evicted = await self._evict_until(missing, missing)
        if not has_evicted:
            ended = time.monotonic()
            self._vain_until = ended + _VAIN_FACTOR * (ended - began)
        return has_evicted

    def _missing_beside(self, pending: Space, wanted: Space) -> Space:
        """Return what to evict for ``wanted``. What was deleted before, ``pending``, is no help to it until it is free."""
        usage = self.usage()
        disk, reserve = usage.disk, to_free(self.limits, usage, wanted)
        files = wanted.files + pending.files - disk.free_files if disk.files else 0
        size_bytes = wanted.size_bytes + pending.size_bytes - disk.free_bytes
        return Space(max(reserve.files, files), max(reserve.size_bytes, size_bytes))

    async def _evict_until(self, missing: Callable[[], Space], left: Callable[[], Space] | None = None) -> bool:
        """Evict until nothing is ``missing``, or left to evict; say whether anything was evicted. ``left`` as for ``evict``.

        A copy may take less of the disk than its size (holes, compression), and a file system may free it late. So the disk
        is asked, and if what went was not enough, more goes each time.
        """
        factor = 1
        while any(lacking := missing()):
            if not any(await self.evict(Space(lacking.files * factor, lacking.size_bytes * factor), left)):
                break
            factor *= 2
            for _ in range(_SHOWN_WAITS):
                if not any(missing()):
                    break
                await trio.sleep(RELEASE_SECONDS)
        return factor > 1

    async def _is_free(self, wanted: Space) -> bool:
        """Say whether ``wanted`` can be taken, once what has been deleted is free on the disk."""
        for _ in range(_MOST_WAITS):
            if self.disk.has_room(wanted):
                return True
            if not self.disk.is_freeing:
                return False
            await trio.sleep(RELEASE_SECONDS)
        return False

    def advice(self, wanted: Space = _NOTHING) -> str:
        """Say what is short, and what helps. Empty if there is room for ``wanted``."""
        missing, usage = self._missing(wanted), self.usage()
        disk, reserve = usage.disk, self.limits.reserve(usage.disk)
        name = f"the disk {self.disk.path}" if self.disk.number else "the disk"
        if missing.size_bytes:
            return (
                f"{usage.cached_bytes} cached, {disk.free_bytes} free on {name} ({reserve.size_bytes} are kept free), and "
                f"evicting can't make enough; {self._help(wanted, usage, reserve)}"
            )
        if missing.files:
            return (
                f"{name} has {disk.free_files} of {disk.files} inodes free ({reserve.files} are kept free), and "
                "evicting can't make enough; delete files, or use a file system with more inodes: bytes are no help"
            )
        return ""

    def _help(self, wanted: Space, usage: Usage, reserve: Space) -> str:
        """Say what makes room for bytes: only a limit that is in the way is worth changing."""
        ways: list[str] = []
        free_bytes = usage.disk.free_bytes - wanted.size_bytes
        if self.limits.max_bytes and usage.cached_bytes + wanted.size_bytes > self.limits.max_bytes:
            ways.append("raise cache.max_bytes")
        if 0 <= free_bytes < reserve.size_bytes:
            ways.append("lower the reserve (cache.min_free_share and cache.min_free_bytes)")
        if free_bytes < reserve.size_bytes or not ways:
            ways.append("free some disk (working directories and pinned files are not evicted)")
        return ", or ".join(ways)

    # --- eviction ----------------------------------------------------------------------------------------------------

    async def evict(self, wanted: Space, left: Callable[[], Space] | None = None) -> Space:
        """Evict until ``wanted`` is freed or nothing is left to evict; return what was freed, by the sizes of the copies.

        It ends earlier when ``left`` says that nothing is missing any more, because they took more than that.
        """
        freed = _NOTHING
        if not any(wanted) or (self.disk.number and not self._cached_bytes):  # on the first, empty directories may go
            return freed
        self._index.entries.flush_uses()
        self._victims.begin()
        until, problems = time.monotonic() + _TURN_SECONDS, list[OSError]()
        while not _covers(freed, wanted):
            if freed.files and left is not None and not any(left()):
                break
            if (candidate := await self._victims.next()) is None:
                break
            try:
                freed = self._evict(candidate, freed, with_directory=freed.files < wanted.files)
            except OSError as problem:
                problems.append(problem)
            if time.monotonic() > until:
                await trio.lowlevel.checkpoint()
                until = time.monotonic() + _TURN_SECONDS
        if freed.files < wanted.files and not self.disk.number:
            freed = Space(freed.files + await self._emptied.drop_all(wanted.files - freed.files), freed.size_bytes)
        if problems:
            _log.warning("can't remove copies from the disk (%d), the last one: %s", len(problems), problems[-1])
        if freed.files:
            self._evicted.add(bytes=freed.size_bytes, inodes=freed.files)
        return freed

    def _evict(self, candidate: Candidate, freed: Space, *, with_directory: bool) -> Space:
        """Evict one file, and with ``with_directory`` the directories that this leaves empty; return what was freed."""
        entry = self._index.entries.get(candidate.inode)
        if entry is None or not self.evict_file(candidate.inode):
            return freed
        directories = sum(self._emptied.drop_above(name.path) for name in entry.names) if with_directory else 0
        return Space(freed.files + 1 + directories, freed.size_bytes + candidate.size_bytes)

    def evict_file(self, inode: FileId) -> bool:
        """Evict one file if that is allowed; return whether it was evicted."""
        entry = self._index.entries.get(inode)
        if entry is None or not self._is_evictable(entry) or self._copies.is_open(inode):
            return False
        try:
            if not self._copies.all_names_known(inode, entry):
                return False
            for name in list(entry.names):
                self._copies.drop(name.path, inode, same_object=True)
        except FileBusyError:  # a user holds up its directory
            return False
        except OSError:
            if not self.disk.number:
                raise
            return False  # another disk that fails
        self._counters.files_evicted += 1
        self._counters.bytes_evicted += entry.size_bytes
        self.disk.evicted(entry.size_bytes)
        return True

    # --- the reserve -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the reserve free until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch)
                while True:
                    await sleep_within(_CHECK_SECONDS)
                    await self.disk.answers()
                    await self._keep_reserve()
                    self._evicted.tell()
        finally:
            self._evicted.tell(all_of_it=True)

    async def _watch(self) -> None:
        """Look at the disk as often as writers that pass the daemon by make it necessary."""
        while True:
            await self.disk.wait_to_look()
            began = time.monotonic()
            if not await self._keep_reserve():
                await trio.sleep(max(_VAIN_SECONDS, _VAIN_FACTOR * (time.monotonic() - began)))

    async def _keep_reserve(self) -> bool:
        """Evict what is missing of the reserve; say whether that was possible."""
        missing = self._missing_ahead()
        if any(missing):
            async with self._lock:
                missing = self._missing_ahead()
                try:
                    self._evicts_in_vain = not _covers(await self.evict(missing), missing)
                except IndexUnwritableError as problem:
                    _log.warning("can't evict: %s", problem)
                    return False
        else:
            self._evicts_in_vain = False
        self._tell(is_full=self._evicts_in_vain and any(self._missing()))
        return not self._evicts_in_vain

    def _missing_ahead(self) -> Space:
        return self._missing(ahead_bytes=self.disk.ahead_bytes if self._cached_bytes else 0)

    def _tell(self, *, is_full: bool) -> None:
        """Record that nothing is left to evict though the reserve is not free, and that it clearly is again."""
        if is_full:
            self._full_at = trio.current_time()
        if is_full and not self._is_full:
            of = "bytes" if self._missing().size_bytes else "inodes"  # without bytes, XFS has no inodes either
            self._events.emit("disk-full", disk=self.disk.path, of=of, problem=self.advice())
            self._is_full = True
        elif self._is_full and not is_full and (self._is_clear() or trio.current_time() > self._full_at + _CLEAR_SECONDS):
            self._events.emit("disk-has-room-again", disk=self.disk.path)
            self._is_full = False

    def _is_clear(self) -> bool:
        """Say whether clearly more than the reserve is free."""
        disk = self.usage().disk
        reserve, share = self.limits.reserve(disk), 1 + _CLEAR_SHARE
        has_files = not disk.files or disk.free_files >= share * reserve.files
        return has_files and disk.free_bytes >= share * reserve.size_bytes

    def _missing(self, wanted: Space = _NOTHING, *, ahead_bytes: int = 0) -> Space:
        return to_free(self.limits, self.usage(), wanted, ahead_bytes)

    def _is_evictable(self, entry: Entry) -> bool:
        if entry.state is not EntryState.CLEAN or not entry.names:
            return False
        return not any(self._index.pins.cover(name.path) for name in entry.names)


def _needed(size_bytes: int) -> Space:
    """Return what a change takes that writes so many bytes."""
    return Space(_SPARE.files, size_bytes + _SPARE.size_bytes)


def _covers(freed: Space, wanted: Space) -> bool:
    return freed.files >= wanted.files and freed.size_bytes >= wanted.size_bytes
