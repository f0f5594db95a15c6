"""The kernel's side of a mount, made before the file system: what that one acts on by itself.

Before ``connect`` there is no mount, and nobody to be told of anything.
"""

from __future__ import annotations

import select
from contextlib import suppress

import pyfuse3
import trio

from holdfast.fs.foundation import Kernel
from holdfast.kernel import Connection, Invalidator, Machine

_CATCHING_UP_SECONDS = 1.0
"""Far more than what waits at one time takes: when new requests come without end, that has been read by then."""


class KernelSide:
    """The connection, and the notifications that go by it (``inodes.invalidation.KernelNotifications``)."""

    def __init__(self, *, passthrough: bool) -> None:
        self.connection = Connection(Machine.this(), passthrough=passthrough)
        self._is_mounted = False
        self._invalidator: Invalidator | None = None

    def for_file_system(self) -> Kernel:
        """Return what the file system is made with."""
        return Kernel(self.connection, self.connection, self)

    def connect(self, device: int | None) -> None:
        """There is a mount. ``device``: its descriptor, if another daemon can take it over.

        Then names are invalidated by a process of its own, for which nobody waits when this one ends.
        """
        self._is_mounted = True
        if device is not None:
            self._invalidator = Invalidator(device)

    def close(self) -> None:
        """The mount ends, or another daemon takes it over."""
        if self._invalidator is not None:
            self._invalidator.close()
        self.connection.close()

    def attributes_changed(self, node_id: int) -> None:
        """Make the kernel ask for the attributes of a node again."""
        if self._is_mounted:
            with suppress(FileNotFoundError):  # the kernel knew nothing of it
                pyfuse3.invalidate_inode(node_id, attr_only=True)

    def invalidate(self, parent: int, name: bytes) -> None:
        """Make the kernel forget the name, soon."""
        if self._invalidator is not None:
            self._invalidator.invalidate(parent, name)
        elif self._is_mounted:
            pyfuse3.invalidate_entry_async(parent, name, ignore_enoent=True)

    def invalidate_now(self, parent: int, name: bytes) -> None:
        """Return when the kernel has forgotten the name, and so does not keep the directory's listing."""
        if self._invalidator is not None:
            self._invalidator.invalidate_now(parent, name)
        elif self._is_mounted:
            with suppress(FileNotFoundError):  # the kernel knew nothing of it
                pyfuse3.invalidate_entry(parent, name)
        self.attributes_changed(parent)

    async def caught_up(self) -> None:
        """Return when every request that the kernel has sent by now is read."""
        if self.connection.device < 0:
            await trio.lowlevel.checkpoint()
            return
        poll = select.poll()
        poll.register(self.connection.device, select.POLLIN)
        with trio.move_on_after(_CATCHING_UP_SECONDS):
            while poll.poll(0):
                await trio.lowlevel.checkpoint()
