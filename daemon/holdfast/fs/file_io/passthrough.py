"""Who serves the data of open files: the kernel by itself, from files that are registered with it, or the daemon.

The kernel does nearly always. Hadoop, however, asks for the attributes of a checksum file before each 4 KiB that it reads of
it (``available``), and after a read that it has served the kernel passes such a question on, for the time of the last access
may have changed: 1,700 questions for 4.8 million keys, each of which waits for its turn on a busy processor. Of a file that
the daemon serves the kernel asks for 128 KiB at a time, and for attributes only after that.
"""

from __future__ import annotations

import os
from typing import Protocol

from holdfast.fs.inodes.core import Core
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.zones import NameKind

_LONG_SIDECAR_BYTES = 32 * 1024
"""From here on the requests that are saved, one for each 4 KiB, are worth those for the data."""


class BackingFiles(Protocol):
    """The kernel's table of files that it reads and writes past the daemon (``holdfast.kernel.Connection``)."""

    def register(self, node: int, fd: int) -> int | None:
        """Return an id for the file ``node``, open at ``fd`` until it is unregistered; None: the daemon has to serve it."""

    def unregister(self, node: int, backing_id: int) -> None:
        """Forget an id."""


class NoBackingFiles:
    """The daemon serves everything."""

    def register(self, node: int, fd: int) -> int | None:
        """Register nothing."""

    def unregister(self, node: int, backing_id: int) -> None:
        """Have nothing to forget."""


def is_long_sidecar(core: Core, opened: OpenFile) -> bool:
    """Say whether the file is one that readers get sooner from the daemon."""
    if os.fstat(opened.fd).st_size < _LONG_SIDECAR_BYTES:
        return False
    places = [(core.directories.place(parent), name) for parent, name in opened.node.names()]
    return any(place.zone.sends and core.kind_of(place, name) is NameKind.SIDECAR for place, name in places)
