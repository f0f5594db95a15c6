"""Removal of directories, some of which are large, or were: a directory stays as large as it ever was.

The file system goes through all blocks of a directory to see that it is empty, and frees them with the last descriptor. For
one that had 60,000 names of 255 bytes this takes seconds. So both happen in threads, and the caller waits only for the
first. The directory above is locked meanwhile, in the backing tree and by the kernel for the mount: whoever works in it
waits.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

import trio

from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.node import Node
from holdfast.store import DIRECTORY
from holdfast.system.file_id import FileId

_LARGE_BYTES = 1 << 18
"""The size below which a removal takes less than a millisecond."""


class DirectoryRemovals:
    """Carries out steps that remove directories, by rmdir or by a rename over one, and what goes with them."""

    def __init__(self, base: Foundation) -> None:
        self._directories, self._nodes, self._unlinks = base.directories, base.nodes, base.unlinks
        self._freeing = base.parts.store.freeing

    def begin(self, inode: FileId) -> None:
        """Note that a request is about to remove the directory ``inode`` from the tree; call ``removed`` when it is gone."""
        self._unlinks.begin(inode, is_last=True)
        self._nodes.recall(inode)

    def removed(self, parent: Node, name: bytes, inode: FileId) -> None:
        """Update the nodes after the directory ``inode``, which had this name, was removed from the tree."""
        node = self._nodes.of_backing(inode)
        if node is None:
            self._unlinks.gone.add(inode)
            return
        self._directories.forget(node)
        self._nodes.drop_name(node, parent, name)
        self._nodes.unbind(node)
        if node.lookups:
            self._nodes.keep_nameless(node)

    async def removed_by(self, step: Callable[[], None], directory_fd: int, name: bytes, stat: os.stat_result) -> None:
        """Carry out ``step``, which removes the directory ``name``, in a thread if that is large. Raises as ``step`` does.

        ``directory_fd`` and what ``step`` uses must stay open.
        """
        if stat.st_size <= _LARGE_BYTES:
            step()
            return
        fd = os.open(name, DIRECTORY, dir_fd=directory_fd)
        try:
            await trio.to_thread.run_sync(_after_reading, step, fd)
        finally:
            self._freeing.close_later(fd, stat.st_blocks * 512, stat.st_dev)


def _after_reading(step: Callable[[], None], fd: int) -> None:
    """Carry out ``step`` when the directory is in memory: the lock of the one above is held for a shorter time."""
    with suppress(OSError), os.scandir(f"/proc/self/fd/{fd}") as entries:
        next(entries, None)
    step()
