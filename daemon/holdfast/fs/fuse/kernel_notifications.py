"""The kernel's side of a mount, made before the file system, which uses it to act on its own.

Before ``connect`` there is no mount, and notifications do nothing.
"""

from __future__ import annotations

import os
import select
from collections.abc import Sequence
from contextlib import suppress

import pyfuse3
import trio

from holdfast.fs.fuse.name_drops import PATIENCE_SECONDS, NameDrops
from holdfast.fs.inodes.kernel import Kernel
from holdfast.kernel import Connection, Invalidator, Machine, inode_notice

_ATTRIBUTES_ONLY = -1
_THREADS = 8
"""The number of this process's threads that can wait for the locks of directories, where no separate process does."""
_CATCHING_UP_SECONDS = 1.0
"""The limit of the time for reading the requests that wait, far more than they take: new ones may arrive without end."""


class KernelNotifier:
    """The connection, and the notifications through it (``inodes.kernel.KernelNotifications``)."""

    def __init__(self, *, passthrough: bool) -> None:
        self.connection = Connection(Machine.this(), passthrough=passthrough)
        self._is_mounted = False
        self._invalidator: Invalidator | None = None
        self._drops: NameDrops | None = None
        self._threads = trio.CapacityLimiter(_THREADS)

    def for_file_system(self) -> Kernel:
        """Return the kernel's interfaces for the file system."""
        return Kernel(self.connection, self.connection, self)

    def connect(self) -> None:
        """Begin to notify the kernel of a mount.

        With the C module a separate process invalidates names, so that this one can end without waiting for the kernel.
        """
        self._is_mounted = True
        if self.connection.device >= 0:
            self._invalidator = Invalidator(self.connection.device)
            self._drops = NameDrops(self._invalidator)

    def close(self) -> None:
        """Stop: the mount ends, or another daemon takes it over."""
        self._is_mounted = False
        if self._invalidator is not None:
            self._invalidator.close()
        if self._drops is not None:
            self._drops.close()
        self.connection.close()

    def attributes_changed(self, node_id: int) -> None:
        """Invalidate the kernel's cached attributes of a node."""
        self._notify(node_id, _ATTRIBUTES_ONLY)

    def knows(self, node_id: int) -> bool:
        """Say whether the kernel has a node with this id, by invalidating its attributes."""
        return self._notify(node_id, _ATTRIBUTES_ONLY)

    def content_changed(self, node_id: int) -> None:
        """Invalidate attributes and content of a file that the kernel has no handle of: it waits for pages under way."""
        self._notify(node_id, 0)

    def invalidate_content(self, node_id: int) -> None:
        """Invalidate the content of a file soon. From now on the file system is asked for it."""
        self.connection.stop_serving(node_id)
        if self._invalidator is not None:
            self._invalidator.invalidate_content(node_id)

    def _notify(self, node_id: int, offset: int) -> bool:
        if not self._is_mounted:
            return False
        try:
            if (device := self.connection.device) >= 0:  # not by libfuse, which refuses it until the first request
                os.write(device, inode_notice(node_id, offset))
            else:
                pyfuse3.invalidate_inode(node_id, attr_only=offset < 0)
        except FileNotFoundError:
            return False
        return True

    def invalidate(self, parent: int, name: bytes) -> None:
        """Invalidate a name and the cached listing of its directory soon."""
        if self._invalidator is not None:
            self._invalidator.invalidate(parent, name)
        elif self._is_mounted:
            pyfuse3.invalidate_entry_async(parent, name, ignore_enoent=True)

    async def invalidate_now(self, names: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Invalidate names, and return when the kernel has dropped them and the cached listings of their directories.

        Returns those that it has not dropped in time, because a process holds the lock of the directory.
        """
        kept: list[tuple[int, bytes]] = []
        if self._drops is not None:
            kept = await self._drops.drop(names)
        elif self._is_mounted:
            kept = await self._invalidate_by_libfuse(names)
        for parent in {parent for parent, _ in names}:
            self.attributes_changed(parent)
        return kept

    async def _invalidate_by_libfuse(self, names: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        left = list(names)
        with trio.move_on_after(PATIENCE_SECONDS):
            while left:
                with suppress(FileNotFoundError):  # the kernel did not know the name
                    await trio.to_thread.run_sync(
                        pyfuse3.invalidate_entry, *left[0], limiter=self._threads, abandon_on_cancel=True
                    )
                del left[0]
        return left

    def prune(self, nodes: Sequence[int]) -> bool:
        """Ask the kernel to forget those of ``nodes`` that nobody uses; return whether it can be asked."""
        if self._invalidator is None or not self.connection.can_prune:
            return False
        self._invalidator.prune(nodes)
        return True

    async def caught_up(self) -> None:
        """Return when all requests that the kernel has sent so far have been read."""
        if self.connection.device < 0:
            await trio.lowlevel.checkpoint()
            return
        poll = select.poll()
        poll.register(self.connection.device, select.POLLIN)
        with trio.move_on_after(_CATCHING_UP_SECONDS):
            while poll.poll(0):
                await trio.lowlevel.checkpoint()
