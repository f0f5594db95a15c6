"""OPEN, from top to bottom: find or fetch the open file, truncate it if asked for, and hand out a handle.

A local file that is known to be intact is opened without waiting. Anything that may wait (a fetch, hashing) runs under the
node's lock. Code between two awaits is atomic.
"""

from __future__ import annotations

import errno
import os
import time
from functools import partial

from holdfast.errors import WriteOnceError
from holdfast.fs.file_io.arriving import LocalFiles
from holdfast.fs.file_io.cache_miss import TRIES, changes_too_fast
from holdfast.fs.file_io.open_files import Handle, OpenFiles
from holdfast.fs.file_io.prefetch import Prefetcher
from holdfast.fs.file_io.separation import Separation
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.open_file import OpenFile, open_local
from holdfast.fs.remote_view.fallback_guard import FallbackGuard
from holdfast.index import EntryState

_FMODE_EXEC = 0x20
"""The flag of execve(2)'s open of a program, and of its release (linux/fs.h). open(2) takes it from nobody."""


class Opening:
    """Carries out open(2) of existing nodes."""

    def __init__(
        self,
        base: Foundation,
        guard: FallbackGuard,
        files: OpenFiles,
        local_files: LocalFiles,
        prefetcher: Prefetcher,
    ) -> None:
        self._policy, self._directories, self._locks = base.policy, base.directories, base.locks
        self._admission, self._drain = base.admission, base.drain
        self._entries, self._counters = base.parts.index.entries, base.parts.counters
        self._guard = guard
        self._files = files
        self._misses, self._arriving, self._check = local_files.misses, local_files.arriving, local_files.check
        self._prefetcher = prefetcher
        self._separation = Separation(base, prefetcher)

    # --- from top to bottom ------------------------------------------------------------------------------------------

    async def open(self, node: Node, flags: int, request: int, caller: Caller) -> Handle:
        """Open a node for the kernel. Fetches a file that is not here; a large one can be read during the fetch.

        Raises ``StaleNodeError`` if the kernel must look the name up again (``Separation``), ``FileBusyError``,
        ``QuotaExceededError``, ``WriteOnceError`` for writing to a committed write-once name, ``CorruptEntryError``
        if there is no intact copy, ``AccessRefusedError``, and ``RemoteError``.
        """
        if caller.uid:
            self._guard.check_open(node, flags, caller)
        changes = _changes(flags)
        if changes:
            self._admission.check_may_grow(node)
        before = node.backing
        opened = await self.acquire(node, flags, thread=caller.pid)
        if caller.uid and node.backing != before:
            self._check_fetched(opened, flags, caller)
        return self._files.hand_out(opened, request, caller, changes=changes, executes=executes(flags))

    async def acquire(self, node: Node, flags: int, *, thread: int | None = None) -> OpenFile:
        """Open a node for use inside the daemon; end with ``OpenFiles.release``. Raises as ``open`` does.

        ``thread`` has just found it by one of its names; None if it was found otherwise, as by a descriptor.
        """
        changes = _changes(flags)
        if changes:
            self._check_writable(node)
        if thread is not None and self._separation.concerns(node, changes=changes):
            await self._separation.settle(node, thread, changes=changes)
        opened = self._open_unchecked(node, changes=changes) or await self._open_locked(node, flags, changes=changes)
        try:
            if flags & os.O_TRUNC:
                await self._arriving.wait_whole(opened)
            if changes:
                self._note_unsent(opened)
            if flags & os.O_TRUNC:
                _check_not_executed(opened, flags)
                await self._files.truncate(opened, 0)
        except BaseException:
            self._files.release(opened)
            raise
        return opened

    def _check_fetched(self, opened: OpenFile, flags: int, caller: Caller) -> None:
        """Check the caller's rights to a file that has come meanwhile: it may be a copy of an object."""
        try:
            self._guard.check_open(opened.node, flags, caller)
        except BaseException:
            self._files.release(opened)
            raise

    def _note_unsent(self, opened: OpenFile) -> None:
        if not opened.unsent and self._is_dirty(opened.node):
            opened.changed()  # an earlier attempt to send it failed

    # --- the open file -----------------------------------------------------------------------------------------------

    def _open_unchecked(self, node: Node, *, changes: bool) -> OpenFile | None:
        """Open a local file whose bytes have no digest: nothing waits, so it needs no lock. None if it is another."""
        if node.opened is not None or not node.backing or self._locks.is_held(node) or self._policy.has_digest(node):
            return None
        opened = node.opened = open_local(self._directories, node, writable=changes)
        self._prefetcher.opened(node, opened.fd)
        opened.count()
        return opened

    async def _open_locked(self, node: Node, flags: int, *, changes: bool) -> OpenFile:
        """Return the open file of any node, counted."""
        if not self._locks.take(node):
            await self._locks.wait(node)
        try:
            opened = await self._open_or_fetch(node, flags, changes=changes)
            opened.count()
        finally:
            self._locks.release(node)
        return opened

    async def _open_or_fetch(self, node: Node, flags: int, *, changes: bool) -> OpenFile:
        """Return the open file of a node, after a digest check or a fetch if needed. The caller holds the lock."""
        if node.opened is not None:
            return await self._open_more(node.opened, changes=changes)
        was_corrupt = False
        for _ in range(TRIES):
            is_miss = node.backing == 0
            if is_miss and not await self._misses.open(node, truncate=bool(flags & os.O_TRUNC), was_corrupt=was_corrupt):
                continue
            has_digest = node.opened is None and self._policy.has_digest(node)
            if node.opened is None:
                opened = open_local(self._directories, node, writable=changes)
                if flags & os.O_TRUNC or not has_digest:
                    node.opened = opened
                else:
                    was_corrupt = not await self._open_checked(node, opened)
            if node.opened is None:
                continue
            if node.opened.arrival is None:
                self._prefetcher.opened(node, node.opened.fd)
            if has_digest and not is_miss:
                self._count_hit(node.opened)
            if changes and not node.opened.writable:
                node.opened.make_writable()  # another task has opened it meanwhile
            return node.opened
        raise changes_too_fast(node)

    async def _open_checked(self, node: Node, opened: OpenFile) -> bool:
        """Open the node with this file if it is intact. Returns False if it is not; it has then been put into quarantine."""
        try:
            is_intact = self._check.is_checked(node, opened) or await self._check.is_intact(node, opened)
        except BaseException:
            opened.close()
            raise
        is_evicted = opened.inode != node.backing
        if not is_intact or is_evicted or node.opened is not None:
            opened.close()
        else:
            node.opened = opened
        return is_intact

    async def _open_more(self, opened: OpenFile, *, changes: bool) -> OpenFile:
        """Return a file that is open already, ready for one more handle."""
        opened.count()  # keeps the descriptor open if the last handle is released meanwhile
        try:
            if opened.failed:
                await self._misses.fetch_again(opened)
            if changes and not opened.writable:
                opened.make_writable()
        except BaseException:
            self._files.release(opened)
            raise
        opened.uncount()  # the caller counts its own at once
        if self._policy.has_digest(opened.node):
            self._count_hit(opened)
        return opened

    def _count_hit(self, opened: OpenFile) -> None:
        node = opened.node
        if node.backing:
            self._counters.hits += 1
            self._counters.bytes_hit += os.fstat(opened.fd).st_size
            self._entries.used(node.backing, time.time_ns())

    # --- refusals ------------------------------------------------------------------------------------------------------

    def _check_writable(self, node: Node) -> None:
        """Raise ``WriteOnceError`` if the node has a write-once name that is already stored, and ``DrainingError``."""
        for parent, names in node.names_by_directory().items():
            place = self._directories.place(parent)
            self._drain.check(place.zone)
            resolved = map(partial(self._policy.at, place), names) if place.zone.sends else ()
            once = next((name for name in resolved if name.created_once), None)
            if once is None:
                continue
            entry = self._entries.get(node.backing) if node.backing else None
            if entry is None or not entry.is_unsent:
                raise WriteOnceError(f"{os.fsdecode(once.path)} exists already and is written once only")

    def _is_dirty(self, node: Node) -> bool:
        """Say whether the node's bytes are unsent, because sending them failed or has not begun."""
        entry = self._entries.get(node.backing) if node.backing else None
        return entry is not None and entry.state is EntryState.DIRTY


def executes(flags: int) -> bool:
    """Say whether an open with these flags, or its release, is that of a program that runs."""
    return bool(flags & _FMODE_EXEC)


def _check_not_executed(opened: OpenFile, flags: int) -> None:
    """Raise ETXTBSY if a read-only open with these flags would truncate a running program.

    The kernel looks after all other opens; on a FUSE file system it checks this one only after it has truncated.
    """
    if opened.programs and flags & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.ETXTBSY, os.strerror(errno.ETXTBSY))


def _changes(flags: int) -> bool:
    """Say whether an open with these flags may change the bytes."""
    return flags & os.O_ACCMODE != os.O_RDONLY or bool(flags & os.O_TRUNC)
