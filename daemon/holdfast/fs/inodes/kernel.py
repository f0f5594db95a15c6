"""The kernel's interfaces that the file system uses on its own, as ``fuse.kernel_notifications`` provides them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class DirectoryReplies(Protocol):
    """Answers requests about directories from their descriptors (``kernel.Connection``)."""

    def serve_directory_from(self, node: int, fd: int, seconds: float, zone: int, *, whole: bool, of_store: bool) -> None:
        """Answer requests about the directory ``node`` from ``fd`` until ``stop_serving``.

        The kernel may keep the answers for ``seconds``; they are counted for ``zone``. With
        ``whole``, a name that is not in the directory does not exist. ``of_store``: attributes are shown as
        ``attributes.of_store_directory`` has them, and only for ``seconds``.
        """

    def stop_serving(self, node: int, /) -> None:
        """Stop answering from the directory's descriptor. Does nothing if it was not served."""


class BackingFiles(Protocol):
    """The kernel's table of files for passthrough (``holdfast.kernel.Connection``)."""

    def register(self, node: int, fd: int, zone: int) -> int | None:
        """Return an id for the file ``node``, open at ``fd`` until ``unregister``; None if the daemon must serve it.

        Requests about it that need no Python are counted for ``zone``.
        """

    def unregister(self, node: int, backing_id: int) -> None:
        """Forget an id."""

    def serve_data(self, node: int, fd: int, zone: int, *, as_nobody: bool) -> bool:
        """Serve a complete file from ``fd`` until ``stop_serving``, if that is possible without Python.

        Nobody is told of a write.
        """

    def stop_serving(self, node: int, /) -> None:
        """Serve the file no longer."""

    def hold_writes(self, held: bool, /) -> None:
        """Ask the file system for each write from now on, or again as before."""

    def is_written(self, fd: int, /) -> bool:
        """Say whether threads have a write to do, or under way, to the file that is served from ``fd``."""

    def hold_back(self, fd: int, /) -> bool:
        """Begin no further write in a thread to that file until ``let_go``; say whether one is under way."""

    def let_go(self, fd: int, /) -> None:
        """Begin writes to that file again."""


class KernelNotifications(Protocol):
    """Notifications that the daemon sends to the kernel unasked (``fuse.kernel_notifications``)."""

    def attributes_changed(self, node_id: int) -> None:
        """Invalidate the kernel's cached attributes of a node."""

    def content_changed(self, node_id: int) -> None:
        """Invalidate the kernel's cached attributes and content of a file.

        The kernel waits for pages that it is reading: call it for a file of which it has no handle.
        """

    def invalidate_content(self, node_id: int) -> None:
        """Invalidate the content of a file, which may be open. Returns at once; the kernel follows soon."""

    def knows(self, node_id: int) -> bool:
        """Say whether the kernel has a node with this id now. It forgets its attributes."""

    def invalidate(self, parent: int, name: bytes) -> None:
        """Invalidate a name in the directory with node id ``parent``, and the cached listing of that directory.

        Returns at once; the kernel follows soon.
        """

    async def invalidate_now(self, names: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Invalidate names, given with the node ids of their directories; return when the kernel has dropped them.

        Returns those that it has not dropped in time, because a process holds the lock of the directory.
        """

    def prune(self, nodes: Sequence[int]) -> bool:
        """Ask the kernel to forget those of ``nodes`` (ids) that nobody uses; return whether it can be asked."""

    async def caught_up(self) -> None:
        """Return when all requests that the kernel has sent so far have been read."""


class Kernel(NamedTuple):
    """The kernel's interfaces that the file system uses on its own."""

    directories: DirectoryReplies
    backing_files: BackingFiles
    notifications: KernelNotifications
