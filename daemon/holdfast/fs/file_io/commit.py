"""Turns written bytes into a durable object: close, fsync and the last release in each zone.

``commit``: the object is stored before close returns. ``async``: the bytes are synced and marked here, the upload follows.
``local``: the bytes are synced here. In zones that send nothing, close does nothing.

The kernel sends FLUSH for every close and does not say whether other descriptors are left. A process that starts a program
passes all its descriptors on, and exec(2) or the child closes them. Hadoop starts a ``chmod`` for each file that it creates.
If each close counted, each file being written would be sent incomplete, and the ``chmod``, for which a task waits, would
wait for the upload. So the process that opened a file for writing is recorded (``note_writer``). While it is the only writer
and has closed none of its descriptors, its own close is still to come, at the latest when it exits, and closes of other
processes are ignored.

In doubt a close counts: with several writers, after a takeover, for processes that the daemon does not see. A process that
shares its descriptor table with another (clone(2), CLONE_FILES) may close for both and is still ignored. Its bytes are sent
with the last handle.
"""

from __future__ import annotations

import errno
from contextlib import suppress

from holdfast.errors import FileBusyError, LostBytesError, NameNotStorableError, RemoteError, WriteOnceError
from holdfast.fs.file_io.digest_check import DigestCheck
from holdfast.fs.file_io.passthrough import PassthroughWrites
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.name_policy import Name
from holdfast.fs.inodes.node import path_of
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.fs.writeback.publisher import Sent
from holdfast.fs.writeback.sending import Sending
from holdfast.index import Entry
from holdfast.store import holds_for, is_unsent, unmark_unsent, unsent_mark, was_not_accepted
from holdfast.system.file_id import file_stat
from holdfast.system.processes import leader_of
from holdfast.system.waits import before_waiting


class Committer:
    """Commits open files."""

    def __init__(self, base: Foundation, sending: Sending, writes: PassthroughWrites, check: DigestCheck) -> None:
        self._policy, self._directories, self._locks = base.policy, base.directories, base.locks
        self._copies, self._invalidation, self._hot = base.copies, base.invalidation, base.hot
        self._index, self._losses = base.parts.index, base.losses
        self._publisher, self._queue = sending.publisher, sending.queue
        self._writes = writes
        self._check = check

    async def commit(self, opened: OpenFile, *, wait_for_store: bool = False) -> None:
        """Make the written bytes durable as the zone demands; with ``wait_for_store``, in the store in any zone.

        Raises ``WriteOnceError``, ``RemoteError`` and ``LostBytesError``, and ``CorruptEntryError`` for a file that could
        not be reopened. After an error the bytes are still here and unsent, unless another writer won a write-once name.
        Then they are in quarantine, and every writer that has the file open gets the error.
        """
        await self._commit_names(opened, wait_for_store)
        if opened.lost:
            if opened.lost_with_disk:
                opened.check_reachable()
            raise WriteOnceError("another writer created this write-once name first")

    async def _commit_names(self, opened: OpenFile, wait_for_store: bool) -> None:
        if opened.arrival is not None and not opened.arrival.finished:
            return  # writes wait for the whole fetch, so nothing was written
        self._writes.detect_writes(opened)
        if not (opened.unsent or opened.hides_writes or self._locks.is_held(opened.node)):
            return  # a held lock may mean that an upload is under way: wait for its result
        names = self._policy.sent_names(opened.node.names())
        if not names:
            return
        opened.check_reachable()  # or what only stands for the file would be sent in its place
        await before_waiting()
        try:
            async with self._locks.of(opened.node):
                await self._commit(opened, wait_for_store)
        except WriteOnceError:
            # Who gets the error then sees the other writer's file. Without the lock, for whose holder the kernel may wait.
            await self._invalidation.invalidate_now([(name.directory.id, name.name) for name in names])
            raise

    async def _commit(self, opened: OpenFile, wait_for_store: bool) -> None:
        if opened.hides_writes:
            await self._writes.compare(opened)
        names = self._policy.sent_names(opened.node.names())
        if not opened.unsent or not names:
            return
        if not wait_for_store and all(self._may_wait(name) for name in names):
            await self._leave_to_queue(opened, names)
        else:
            await self._send_all(opened, names)

    async def sync(self, opened: OpenFile, *, data_only: bool) -> None:
        """fsync(2), fdatasync(2)."""
        await self._losses.sync(opened.fd, data_only=data_only)
        await self.commit(opened, wait_for_store=True)

    def has_unsent_at_end(self, opened: OpenFile) -> bool:
        """Say whether this is the last handle and bytes are unsent (written through a mapping) that are not queued.

        Here and in ``digest_at_end``, writes must have been detected before.
        """
        if not (opened.has_one_user and opened.unsent and self._policy.sent_names(opened.node.names())):
            return False
        mark = unsent_mark(opened.fd)
        return mark is None or not was_not_accepted(mark) or not holds_for(mark, opened.fd)

    def digest_at_end(self, opened: OpenFile) -> None:
        """Queue a file for hashing, at its last handle, in zones that keep digests and send nothing."""
        if not opened.may_change:
            return
        places = map(self._directories.place, opened.node.names_by_directory())
        digesting = [place for place in places if place.zone.digests_later]
        if not digesting:
            return
        entry = self._index.entries.get(opened.inode)
        if entry is None or not entry.digest:
            for place in digesting:
                self._check.later(place, opened.node)

    def _may_wait(self, name: Name) -> bool:
        return name.zone.sends_later and not name.created_once

    async def _leave_to_queue(self, opened: OpenFile, names: list[Name]) -> None:
        self._writes.before_send(opened)
        try:
            await self._queue.keep(opened.fd)
        except BaseException:
            opened.changed()
            raise
        if not is_unsent(opened.fd):
            return  # it was queued, and these bytes have been sent meanwhile
        stat = file_stat(opened.fd)
        for name in names:
            path = self._directories.path(name.directory, name.name)
            self._index.entries.mark_dirty(stat, path)
            self._queue.add(path)

    async def _send_all(self, opened: OpenFile, names: list[Name]) -> None:
        self._writes.before_send(opened)
        entry = self._index.entries.begin_upload(file_stat(opened.fd), path_of(opened.node))
        mark = unsent_mark(opened.fd)
        sents = []
        lost: WriteOnceError | None = None
        for name in names:
            try:
                sent = await self._send(opened, name, entry)
            except WriteOnceError as problem:
                lost = problem
                self._lose(opened, name)
            except BaseException as problem:
                opened.changed()
                self._index.entries.upload_failed(opened.inode)
                if isinstance(problem, RemoteError | NameNotStorableError) or _is_busy(problem):
                    await self._try_again_later(opened, names)
                raise
            else:
                sents += [sent] if sent is not None else []  # None if the name was removed meanwhile
        if sents:
            others_unsent = not self._unmark(opened, mark)
            previous = self._index.entries.get(opened.inode)
            self._publisher.record(sents, file_stat(opened.fd), previous, others_unsent=others_unsent)
        if lost is not None:
            raise lost

    def _unmark(self, opened: OpenFile, mark: bytes | None) -> bool:
        """Remove the mark of bytes that were sent; return whether the file is unmarked. What was sent is recorded anyway."""
        try:
            return unmark_unsent(opened.fd, mark, self._hot.remove_attribute)
        except FileBusyError:
            return False

    async def _try_again_later(self, opened: OpenFile, names: list[Name]) -> None:
        """Leave a file that the store has not accepted to the queue. Its writer gets the error all the same."""
        with suppress(OSError, LostBytesError, FileBusyError):
            paths = [self._directories.path(name.directory, name.name) for name in names]
            await self._queue.keep_not_accepted(opened.fd, paths)

    async def _send(self, opened: OpenFile, name: Name, entry: Entry) -> Sent | None:
        ours = entry.name_at(name.path) is not None
        once = opened.exclusive or name.created_once
        is_hidden = self._index.marks.is_whited_out(name.path)
        return await self._publisher.send_named(
            opened.fd,
            name,
            create_only=once and not ours and not is_hidden,
            is_named=lambda: (name.directory, name.name) in opened.node.names(),
        )

    def _lose(self, opened: OpenFile, name: Name) -> None:
        """Remove this file from a name for which another writer was first. It keeps its other names."""
        path = self._directories.path(name.directory, name.name)  # which may have been renamed meanwhile
        stat = file_stat(opened.fd)
        if stat.st_nlink == 1:
            opened.lose()
            self._copies.quarantine(path, stat.st_ino, {"why": "another writer created this write-once name first"})
            return
        self._copies.drop(path, stat.st_ino)
        if not self._policy.has_digest(opened.node):
            self._index.entries.discard(stat.st_ino)


def _is_busy(problem: BaseException) -> bool:
    """Say whether the file could not be read because a user holds its lock."""
    return isinstance(problem, OSError) and problem.errno == errno.EBUSY


def note_writer(opened: OpenFile, thread: int) -> None:
    """Note that ``thread`` is about to get a writable handle, whose closes the kernel will report."""
    opened.opened_by(_process(thread))


def closes_inherited(opened: OpenFile, thread: int) -> bool:
    """Say whether ``thread`` closes a descriptor inherited from a process that will still close its own."""
    if opened.writer == 0:
        return False
    process = _process(thread)
    if process not in (0, opened.writer):
        return True
    opened.closed_by_writer()
    return False


def _process(thread: int) -> int:
    try:
        return leader_of(thread)
    except (OSError, ValueError):
        return 0
