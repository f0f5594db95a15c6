"""Checking files against their digests: before first use, on request and in the background.

An entry describes a file only while size and ctime match. In each run of the daemon a file is hashed before it is first
served. On a mismatch the file goes to quarantine, and its user fetches it again. A file without an entry (lost index, crash
between two steps) is compared with the store. It is kept if the store does not have it, because it may be the only copy.
"""

from __future__ import annotations

import errno
import logging
import os
import stat as stat_module
import time
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import closing, suppress
from functools import partial
from itertools import islice

import trio

from holdfast.digest import Fingerprint, fingerprint_of_buffer, fingerprint_of_file, is_hollow
from holdfast.errors import NameNotStorableError, ObjectMissingError
from holdfast.fs.foundation import Foundation
from holdfast.fs.integrity.digest_queue import DigestQueue
from holdfast.fs.integrity.proof import Proof, proof
from holdfast.index import INTACT, CachedName, Entry, EntryState
from holdfast.store import Unreadable, is_unsent, noted_digest, renew_noted_digest
from holdfast.system.file_id import FileId, FileStat, file_stat

_log = logging.getLogger("holdfast.fs")
_TRIES = 3
_FILES_AT_ONCE = 1000
HASH_UNLESS_CANCELLED = partial(fingerprint_of_file, may_go_on=trio.from_thread.check_cancelled)
"""A daemon that is to end does not wait for large files."""


class Verifier:
    """Checks files. ``run`` serves the background queue.

    Each file is hashed before its first use in a run; without ``integrity.verify_on_first_open`` before its first use in a
    boot, because power may have been cut after the daemon had ended in order, before all bytes were written out.
    """

    def __init__(self, base: Foundation) -> None:
        index = base.parts.index
        self._policy, self._nodes, self._view = base.policy, base.nodes, base.view
        self._index, self._tree, self._copies = index, base.parts.store.tree, base.copies
        self._events, self._hashing, self._losses = base.parts.events, base.hashing, base.losses
        on_first_open = base.parts.config.integrity.verify_on_first_open
        self._since_run = index.run if on_first_open else index.first_run_of_boot
        self._queue = DigestQueue(self._digest_if_readable, self._size_and_owner)

    async def check_before_use(self, path: bytes, fd: int) -> bool:
        """Say whether the file at ``path``, open as ``fd``, may be served. If not, it has been put into quarantine."""
        stat = file_stat(fd)
        if self.is_checked(path, stat):
            return True
        entry = self._index.entries.get(stat.st_ino)
        if entry is not None and not self._may_be_another(entry, path):
            return await self.check(path, fd)
        try:
            return await self._check_unknown(path, fd)
        except OSError as problem:
            return not self.drop_unreadable(path, fd, problem)

    def is_checked(self, path: bytes, stat: FileStat) -> bool:
        """Say whether the file at ``path``, which has the attributes ``stat``, may be served without reading its bytes."""
        entry = self._index.entries.get(stat.st_ino)
        if entry is None or self._may_be_another(entry, path):
            return False
        if entry.state not in INTACT or not entry.digest:
            return True
        return entry.describes(stat) and entry.verified_run >= self._since_run

    def _may_be_another(self, entry: Entry, path: bytes) -> bool:
        return entry.state is EntryState.CLEAN and self._lacks_name(entry, path)

    async def check(self, path: bytes, fd: int) -> bool:
        """Hash the file even if it was checked before; say whether its digest matches. If not, it is put into quarantine.

        A file that is written during the hashing counts as intact and is left to its next check.
        """
        try:
            hashed = await self._hash(fd)
        except OSError as problem:
            return not self.drop_unreadable(path, fd, problem)
        if hashed is None:
            return True
        fingerprint, stat = hashed
        entry = self._index.entries.get(stat.st_ino)
        if entry is None or not entry.digest or entry.state not in INTACT:
            return True
        if fingerprint.digest != entry.digest:
            self._quarantine(path, stat.st_ino, entry.digest, fingerprint)
            return False
        if await self._losses.has_lost(fd):
            return True  # it does not count as checked: the disk may have other bytes than memory
        if entry.mtime_ns != stat.st_mtime_ns:
            stat = _renew_note(fd, stat, entry.digest)
        entry.verified_run = self._index.run
        entry.mtime_ns, entry.ctime_ns = stat.st_mtime_ns, stat.st_ctime_ns
        self._index.entries.put_if_room(stat.st_ino, entry)
        return True

    def drop_unreadable(self, path: bytes, fd: int, problem: OSError) -> bool:
        """Put a copy of an object that the disk can't read (EIO) into quarantine; say whether that was done.

        Its blocks stay in use there. Any other file stays where it is: its user may read the rest. Any other ``problem`` is
        raised again.
        """
        if problem.errno != errno.EIO:
            raise problem
        inode = file_stat(fd).st_ino
        entry = self._index.entries.get(inode)
        if noted_digest(fd) is None if entry is None else entry.state is not EntryState.CLEAN:
            return False
        self._copies.quarantine(path, inode, {"why": "the disk can't read it"})
        return True

    async def check_at(self, path: bytes, inode: FileId) -> bool:
        """Hash the file at ``path`` if it still is ``inode``; return False if it was corrupt. Raises ``OSError``."""
        try:
            fd = self._tree.open_file(path)
        except FileNotFoundError:
            return True
        try:
            return file_stat(fd).st_ino != inode or await self.check(path, fd)
        finally:
            os.close(fd)

    async def known_files(
        self, wanted: bytes, unreadable: Unreadable | None = None
    ) -> AsyncGenerator[tuple[FileId, bytes], None]:
        """Yield inode and path of every file at or below ``wanted`` that has a digest. Close it if it is left early.

        ``unreadable``, in a thread, is told of directories on bad blocks, which are left out; else they raise ``OSError``.
        """
        with closing(self._known_files(wanted, unreadable)) as files:
            while some := await trio.to_thread.run_sync(lambda: list(islice(files, _FILES_AT_ONCE))):
                for inode, path in some:
                    yield inode, path

    def _known_files(self, wanted: bytes, unreadable: Unreadable | None) -> Generator[tuple[FileId, bytes], None, None]:
        linked: set[FileId] = set()
        for path, stat in self._files_at(wanted, unreadable):
            entry = self._index.entries.get(stat.st_ino)
            if entry is not None and entry.digest and entry.state in INTACT:
                if stat.st_nlink > 1:
                    if stat.st_ino in linked:
                        continue
                    linked.add(stat.st_ino)
                yield stat.st_ino, path

    def _files_at(self, wanted: bytes, unreadable: Unreadable | None) -> Iterable[tuple[bytes, FileStat]]:
        try:
            stat = self._tree.stat(wanted)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return self._tree.walk(wanted, unreadable=unreadable) if stat_module.S_ISDIR(stat.st_mode) else [(wanted, stat)]

    def digest_soon(self, path: bytes) -> None:
        """Hash the file at ``path`` in the background and store its digest. Does nothing if too many wait (``DigestQueue``).

        A file that may be written meanwhile gets no digest; its last close asks again.
        """
        self._queue.add(path)

    async def run(self) -> None:
        """Serve ``digest_soon`` until cancelled."""
        await self._queue.run()

    def _size_and_owner(self, path: bytes) -> tuple[int, int] | None:
        try:
            stat = self._tree.stat(path)
        except OSError:
            return None
        return stat.st_size, stat.st_uid

    async def _digest_if_readable(self, path: bytes) -> None:
        try:
            await self._digest(path)
        except OSError as problem:  # gone meanwhile, or unreadable: its next open gets the error
            _log.info("%r gets no digest now: %s", path, problem)

    async def _digest(self, path: bytes) -> None:
        fd = self._tree.open_file(path)
        try:
            stat = file_stat(fd)
            if not stat_module.S_ISREG(stat.st_mode) or is_hollow(stat) or self._is_written(stat.st_ino):
                return
            hashed = await self._hash(fd)
            if hashed is None or await self._losses.has_lost(fd) or self._is_written(stat.st_ino):
                return
            fingerprint, stat = hashed
            entry = self._index.entries.get(stat.st_ino)
            if entry is not None and entry.state is EntryState.CLEAN:
                return
            if self._tree.inode(path) != stat.st_ino:  # it has lost the name, and its entry, meanwhile
                return
            self._index.entries.put_if_room(stat.st_ino, self._entry(EntryState.LOCAL, stat, fingerprint))
        finally:
            os.close(fd)

    def _is_written(self, inode: FileId) -> bool:
        node = self._nodes.of_backing(inode)
        return node is not None and node.opened is not None and node.opened.may_change

    async def _check_unknown(self, path: bytes, fd: int) -> bool:
        name = self._policy.of_path(path)
        if name is None or not name.zone.sends:
            return await self._check_noted(path, fd)
        if name.policy.stays_here:
            return True
        if is_unsent(fd):
            self._index.entries.mark_dirty(file_stat(fd), path)
            return True
        try:
            target = self._view.object_of(name)
            info = await target.remote.access.head(target.key)
        except (ObjectMissingError, NameNotStorableError):
            self._index.entries.mark_dirty(file_stat(fd), path)
            self._events.emit("kept-unsent", path=os.fsdecode(path))
            return True
        hashed = None if is_hollow(os.fstat(fd)) else await self._hash(fd)
        if hashed is None:
            self._index.entries.mark_dirty(file_stat(fd), path)
            return True
        fingerprint, stat = hashed
        match await proof(fd, fingerprint, info, target.remote.access, self._hashing):
            case Proof.DIFFERENT:
                self._copies.quarantine(path, stat.st_ino, {"why": "differs from the store, and the index does not know it"})
                return False
            case Proof.NONE:
                self._copies.drop(path, stat.st_ino, same_object=True)
                self._events.emit("unproven-dropped", path=os.fsdecode(path))
                return False
        entry = self._entry(EntryState.CLEAN, stat, fingerprint)
        known = self._index.entries.get(stat.st_ino)
        for cached in known.names if known is not None else []:
            if self._tree.inode(cached.path) == stat.st_ino:
                entry.set_name(cached)
        entry.set_name(CachedName(path, info.etag, info.modified_ns))
        self._index.entries.put(stat.st_ino, entry)
        return True

    async def _check_noted(self, path: bytes, fd: int) -> bool:
        """Check a file that is compared with no store: against the digest noted when it was fetched, if it is a copy."""
        hashed = await self._hash(fd) if noted_digest(fd) is not None else None
        noted = noted_digest(fd)
        if hashed is None or noted is None:  # it is no copy, or is written to meanwhile
            self.digest_soon(path)
            return True
        fingerprint, stat = hashed
        if fingerprint.digest != noted:
            self._quarantine(path, stat.st_ino, noted, fingerprint)
            return False
        self._index.entries.put_if_room(stat.st_ino, self._entry(EntryState.LOCAL, stat, fingerprint))
        return True

    def _quarantine(self, path: bytes, inode: FileId, expected: bytes, found: Fingerprint) -> None:
        reason = {"why": "digest", "expected": expected.hex(), "found": found.digest.hex()}
        self._copies.quarantine(path, inode, reason)

    def _lacks_name(self, entry: Entry, path: bytes) -> bool:
        """Say whether ``path`` is a sent name that the entry lacks, because of a crash between rename and entry."""
        if entry.name_at(path) is not None:
            return False
        name = self._policy.of_path(path)
        return name is not None and name.sends

    def _entry(self, state: EntryState, stat: FileStat, fingerprint: Fingerprint) -> Entry:
        return Entry(
            state,
            stat.st_size,
            stat.st_mtime_ns,
            stat.st_ctime_ns,
            fingerprint.digest,
            verified_run=self._index.run,
            used_ns=time.time_ns(),
        )

    async def _hash(self, fd: int) -> tuple[Fingerprint, FileStat] | None:
        """Return the fingerprint of a file and its attributes; None if it changed during every try."""
        for _ in range(_TRIES):
            before = file_stat(fd)
            if before.st_size:
                fingerprint = await self._hashing.run(HASH_UNLESS_CANCELLED, fd)
            else:  # it is not read: a write and a truncation within a tick would leave no trace in its times
                await trio.lowlevel.checkpoint()
                fingerprint = fingerprint_of_buffer(b"")
            after = file_stat(fd)
            if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
                return fingerprint, after
        return None


def _renew_note(fd: int, hashed: FileStat, digest: bytes) -> FileStat:
    """Renew the digest that is noted on a file with the same bytes and another time; return its attributes then."""
    with suppress(OSError):
        renew_noted_digest(fd, hashed.st_mtime_ns, digest)
    now = file_stat(fd)
    is_same = (now.st_size, now.st_mtime_ns) == (hashed.st_size, hashed.st_mtime_ns)
    return now if is_same else hashed
