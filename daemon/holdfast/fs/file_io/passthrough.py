"""Passthrough: the choice whether the kernel or the daemon serves the data of an open file.

The kernel does, nearly always. But Hadoop asks for the attributes of a checksum file before each 4 KiB that it reads
(``available``), and after a passthrough read the kernel forwards such a GETATTR, because the access time may have changed.
That makes 1,700 requests for 4.8 million keys, each delayed on a busy processor. If the daemon serves the file, the kernel
reads 128 KiB at a time and sends GETATTR only after that.

Where it is the daemon, the C module serves a complete file, and nobody is told of a write either.

The daemon also serves what is opened for writing while the disk is nearly full, because it can evict, and the kernel can't.

And whoever reads or writes in passthrough can hold the lock of the file's inode, and through it that of a directory
(``inodes.hot_files``). So the first handle in passthrough is for root, or for the owner of the file's directories.
"""

from __future__ import annotations

import os

from holdfast.errors import FileBusyError
from holdfast.fs.file_io.passthrough_writes import PassthroughWrites
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.open_file import OpenFile

_LONG_BYTES = 32 * 1024
"""The size from which on the GETATTRs saved (one per 4 KiB) outweigh the READ requests."""

_MOST_DIRECTORIES = 8
_LONGEST_PATH_BYTES = 1024
"""The limit of a path, beyond which the daemon serves the file: the loop opens its directories to see whose they are."""


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
