"""Passthrough: the kernel, and not the daemon, serves the data of an open file; and the writes that it does not tell of.

The kernel does, nearly always. But Hadoop asks for the attributes of a checksum file before each 4 KiB that it reads
(``available``), and after a passthrough read the kernel forwards such a GETATTR, because the access time may have changed.
That makes 1,700 requests for 4.8 million keys, each delayed on a busy processor. If the daemon serves the file, the kernel
reads 128 KiB at a time and sends GETATTR only after that.

Where it is the daemon, the C module serves a complete file, and nobody is told of a write either.

The daemon also serves what is opened for writing while the disk is nearly full, because it can evict, and the kernel can't.

And whoever reads or writes in passthrough can hold the lock of the file's inode, and through it that of a directory
(``inodes.hot_files``). So the first handle in passthrough is for root, or for the owner of the file's directories.

Of writes the daemon sees only that a handle is writable, and later the changed file. From the first writable handle to the
last handle, the entry of an intact file is OPEN: it keeps its digest. After a crash, a file with the same size and mtime was
not written, and is checked against that digest as before. Both reveal a write (``store.change_stamps``), but for two cases:
the kernel updates the time at the first write into a mapped page, and not again until the page is clean. So a file that was
written through a mapping and sent is hashed again at its last handle. And whoever sets a time overwrites that of a write at
the same moment: then the bytes are compared with those that were sent, by the next close.
"""

from __future__ import annotations

import os
from functools import partial

import trio

from holdfast.digest import fingerprint_of_file
from holdfast.errors import FileBusyError
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.node import Node, path_of
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.index import EntryState
from holdfast.store import stamp_of
from holdfast.system.file_id import FileStat, file_stat

_LONG_BYTES = 32 * 1024
"""The size from which on the GETATTRs saved (one per 4 KiB) outweigh the READ requests."""
_MOST_DIRECTORIES = 8
_LONGEST_PATH_BYTES = 1024
"""The limit of a path, beyond which the daemon serves the file: the loop opens its directories to see whose they are."""
_QUICK_BYTES = 64 * 1024
"""The size of a file that takes less time to hash than a hop to a thread."""


class Passthrough:
    """Decides, with the first handle of an open file, how all of its handles are served."""

    def __init__(self, base: Foundation) -> None:
        self.writes = PassthroughWrites(base)
        self._backing_files, self._policy, self._directories = base.kernel.backing_files, base.policy, base.directories
        self._rooms, self._ordinary_user = base.rooms, base.ordinary_user

    def hand_out(self, opened: OpenFile, uid: int, *, writable: bool) -> None:
        """Decide for the handle that the user ``uid`` gets. The first one decides for all: passthrough if possible."""
        is_first = not opened.is_handed_out
        if is_first:
            whole = opened.arrival is None or opened.arrival.finished
            backing_id = None
            may_pass = self._rooms.of(opened.inode).may_pass_by() if writable else not self._is_polled(opened)
            if opened.writable and whole and may_pass and (not uid or self._is_own(opened, uid)):
                with self._ordinary_user.writes():  # as whom the kernel will write, whoever it is for
                    backing_id = self._backing_files.register(opened.node.id, opened.fd, opened.node.zone)
            opened.hand_out(backing_id)
        if uid and opened.backing_id is not None:
            opened.passed_through_for(uid, is_first=is_first)
        if (opened.backing_id is not None or self._is_served(opened)) and writable:
            self.writes.expect(opened)

    def resume(self, opened: OpenFile) -> None:
        """Have a file that the kernel has handles of, and that is complete now, served without Python.

        Nothing changes for one in passthrough, or if nobody but the daemon itself uses it.
        """
        if opened.is_handed_out and opened.backing_id is None and self._is_served(opened) and opened.writes:
            self.writes.expect(opened)

    def end(self, opened: OpenFile) -> None:
        """End passthrough: the last handle is released."""
        if opened.backing_id is not None:
            self._backing_files.unregister(opened.node.id, opened.backing_id)
        else:
            self._backing_files.stop_serving(opened.node.id)

    def _is_served(self, opened: OpenFile) -> bool:
        """Have a complete file served without Python; say whether that is possible. Its writes are not told either."""
        if opened.arrival is not None or opened.corrupt or opened.unreachable:
            return False
        as_nobody = self._ordinary_user.is_wanted
        return self._backing_files.serve_data(opened.node.id, opened.fd, opened.node.zone, as_nobody=as_nobody)

    def _is_own(self, opened: OpenFile, uid: int) -> bool:
        """Say whether only the user's own directories can be held up by it (``inodes.hot_files``)."""
        parents = opened.node.names_by_directory()
        return len(parents) <= _MOST_DIRECTORIES and all(self._is_owner(parent, uid) for parent in parents)

    def _is_owner(self, directory: Node, uid: int) -> bool:
        if len(self._directories.place(directory).path) > _LONGEST_PATH_BYTES:
            return False
        try:
            return os.stat(self._directories.descriptor(directory)).st_uid == uid
        except FileBusyError:  # it is held up
            return False

    def _is_polled(self, opened: OpenFile) -> bool:
        """Say whether the file is read faster through the daemon."""
        return os.fstat(opened.fd).st_size >= _LONG_BYTES and self._policy.is_polled_while_read(opened.node)


class PassthroughWrites:
    """Detects writes that bypassed the daemon."""

    def __init__(self, base: Foundation) -> None:
        store = base.parts.store
        self._nodes, self._policy, self._entries = base.nodes, base.policy, base.parts.index.entries
        self._stamps, self._tree, self._hashing, self._rooms = store.stamps, store.tree, base.hashing, base.rooms

    def expect(self, opened: OpenFile) -> None:
        """Note that a writable handle is handed out: bytes may change at any time from now on."""
        if opened.stamp is None:
            opened.expect_writes(self._stamps.take_before_writes(opened.fd, partial(self._is_time_set, opened)))
            self._note_if_hiding(opened)
            self._count_writer(opened)
            if not opened.unsent:  # or there is no digest that could hold
                self._entries.open_for_writing(opened.inode)

    def resume(self, opened: OpenFile) -> None:
        """Restore an open file of an earlier daemon with writable handles. Its entry tells which bytes were known."""
        entry = self._entries.get(opened.inode)
        known = (entry.size_bytes, entry.mtime_ns) if entry is not None and entry.digest else None
        if known is None:
            opened.changed()
        opened.expect_writes(known or self._stamps.take(opened.fd))
        opened.may_have_been_sent()
        self._count_writer(opened)

    def _count_writer(self, opened: OpenFile) -> None:
        """Have room kept free for a writer that the kernel serves. A write of the daemon's that fails makes its own room."""
        if opened.backing_id is not None:
            self._rooms.of(opened.inode).disk.writer_begins()

    def before_send(self, opened: OpenFile) -> None:
        """Note that the current bytes are about to be sent: only later writes are unsent."""
        if opened.stamp is None:
            opened.begin_sending(None)
        else:
            opened.begin_sending(self._stamps.take(opened.fd, partial(self._is_time_set, opened)))
            self._note_if_hiding(opened)

    def time_was_set(self, opened: OpenFile) -> None:
        """Note that times of an open file have just been set. Call ``detect_writes`` just before they are."""
        if opened.stamp is not None and not opened.unsent:
            opened.note_time_set(stamp_of(file_stat(opened.fd)))

    def _is_time_set(self, opened: OpenFile, mtime_ns: int) -> bool:
        """Say whether the mtime was set by a user."""
        if opened.mtime_set_ns is not None:
            return opened.mtime_set_ns == mtime_ns
        entry = self._entries.get(opened.inode)
        return entry is not None and entry.mtime_is_set and entry.mtime_ns == mtime_ns

    def _note_if_hiding(self, opened: OpenFile) -> None:
        """Note if the stamp is a time that a user has set, which the next write may give the file too."""
        if opened.stamp is not None and not self._stamps.shows_all(opened.stamp) and opened.stamp[0]:
            opened.note_time_set(opened.stamp)

    def detect_writes(self, opened: OpenFile) -> None:
        """Mark the file changed if it differs from what was last sent, or from its first state."""
        if opened.stamp is None or opened.unsent:
            return
        stat = file_stat(opened.fd)
        if stamp_of(stat) != opened.stamp:
            self.changed(opened, stat)

    def compare_nowait(self, opened: OpenFile) -> bool:
        """Detect, at the last handle of a file, a write after it was sent that size and mtime do not show.

        Returns False if the file is too large for the event loop; use ``compare`` then.
        """
        if not self._may_hide_a_write(opened) or not opened.has_one_user:
            return True
        if file_stat(opened.fd).st_size > _QUICK_BYTES:
            return False
        self._compare_now(opened)
        return True

    async def compare(self, opened: OpenFile) -> None:
        """Check the bytes of such a file against the digest of what was sent."""
        if self._may_hide_a_write(opened):
            sent, before = self._sent_digest(opened), file_stat(opened.fd)
            found = await self._hashing.run(_digest_of, opened.fd)
            if sent == self._sent_digest(opened):  # it was not sent again meanwhile
                self._compare(opened, before, sent, found)

    def end(self, opened: OpenFile) -> None:
        """Settle a file with a stamp whose last handle is released: nobody writes any more."""
        if opened.backing_id is not None:
            self._rooms.of(opened.inode).disk.writer_ends()
        self.settle(opened)

    def settle(self, opened: OpenFile) -> None:
        """Make the entry of an unwritten file no longer OPEN, so that its digest counts again."""
        if opened.stamp is not None and not opened.unsent:
            self._entries.close_unchanged(opened.inode)

    def settle_all(self) -> None:
        """Settle the files whose handles the kernel did not release before the mount ended."""
        for node in self._nodes.all():
            if node.opened is not None:
                self.detect_writes(node.opened)
                if self._may_hide_a_write(node.opened):
                    self._compare_now(node.opened)
                self.settle(node.opened)

    async def settle_after_start(self) -> None:
        """Settle, after a start, the files that were open for writing when an earlier run ended.

        A file that could not be reopened may be written at any time, so its contents count as unknown.
        """
        for inode in self._entries.were_open:
            node = self._nodes.of_backing(inode)
            opened = node.opened if node is not None else None
            if opened is not None and not opened.unreachable:
                continue  # it is still open
            entry = self._entries.get(inode)
            path = (entry.names[0].path if entry.names else entry.path) if entry is not None else b""
            try:
                stat = self._tree.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            if stat.st_ino != inode:
                continue
            is_same = entry is not None and (entry.size_bytes, entry.mtime_ns) == (stat.st_size, stat.st_mtime_ns)
            if is_same and opened is None:
                self._entries.close_unchanged(inode)
            else:
                self._entries.mark_dirty(stat, path)
            await trio.lowlevel.checkpoint()

    @staticmethod
    def _may_hide_a_write(opened: OpenFile) -> bool:
        return (opened.was_sent or opened.hides_writes) and not opened.unsent

    def _compare_now(self, opened: OpenFile) -> None:
        before = file_stat(opened.fd)
        self._compare(opened, before, self._sent_digest(opened), _digest_of(opened.fd))

    def _compare(self, opened: OpenFile, before: FileStat, sent: bytes, found: bytes) -> None:
        """Compare digests; ``before`` are the attributes that the file had before it was read."""
        if not sent:
            return
        if sent != found:
            if found or opened.hides_writes:
                self.changed(opened, file_stat(opened.fd))
        elif opened.hides_writes and stamp_of(before) == opened.stamp:
            self._entries.compared(before)
            if self._stamps.shows_all(opened.stamp):
                opened.note_compared()

    def changed(self, opened: OpenFile, stat: FileStat) -> None:
        """Mark an open file changed, and its entry dirty if its bytes are checked against a digest.

        ``stat`` holds its present attributes. An existing entry is enough: a name that needs a digest may be gone, or not
        looked up yet.
        """
        opened.changed()
        if self._entries.get(stat.st_ino) is not None or self._policy.has_digest(opened.node):
            self._entries.mark_dirty(stat, path_of(opened.node))

    def _sent_digest(self, opened: OpenFile) -> bytes:
        """Return the digest of what was sent last; empty if the bytes are known to differ."""
        entry = self._entries.get(opened.inode)
        return entry.digest if entry is not None and entry.state is EntryState.OPEN else b""


def _digest_of(fd: int) -> bytes:
    """Return the digest of a file. Empty if unreadable; the next reader gets the error."""
    try:
        return fingerprint_of_file(fd).digest
    except OSError:
        return b""
