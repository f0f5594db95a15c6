"""Who serves the data of open files: the kernel by itself, from files that are registered with it, or the daemon."""

from __future__ import annotations

from typing import Protocol


class BackingFiles(Protocol):
    """The kernel's table of files that it reads and writes past the daemon (``holdfast.kernel.Connection``)."""

    def register(self, fd: int) -> int | None:
        """Return an id for the file open at ``fd``; None when the daemon has to serve it."""

    def unregister(self, backing_id: int) -> None:
        """Forget an id."""


class NoBackingFiles:
    """The daemon serves everything."""

    def register(self, fd: int) -> int | None:
        """Register nothing."""

    def unregister(self, backing_id: int) -> None:
        """Have nothing to forget."""
