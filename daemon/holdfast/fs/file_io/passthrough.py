"""Who serves the data of open files: the kernel by itself, from files that are registered with it, or the daemon.

The kernel does nearly always. Hadoop, however, asks for the attributes of a checksum file before each 4 KiB that it reads of
it (``available``), and after a read that it has served the kernel passes such a question on, for the time of the last access
may have changed: 1,700 questions for 4.8 million keys, each of which waits for its turn on a busy processor. Of a file that
the daemon serves the kernel asks for 128 KiB at a time, and for attributes only after that.
"""

from __future__ import annotations

import os
from typing import Protocol

from holdfast.fs.file_io.passthrough_writes import PassthroughWrites
from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.name_policy import NamePolicy
from holdfast.fs.inodes.open_file import OpenFile

_LONG_BYTES = 32 * 1024
"""From here on the requests that are saved, one for each 4 KiB, are worth those for the data."""


class BackingFiles(Protocol):
    """The kernel's table of files that it reads and writes past the daemon (``holdfast.kernel.Connection``)."""

    def register(self, node: int, fd: int) -> int | None:
        """Return an id for the file ``node``, open at ``fd`` until it is unregistered; None: the daemon has to serve it."""

    def unregister(self, node: int, backing_id: int) -> None:
        """Forget an id."""


class Passthrough:
    """Decides, with the first handle of each open file, how all of its handles are served."""

    def __init__(
        self, backing_files: BackingFiles, writes: PassthroughWrites, policy: NamePolicy, directories: Directories
    ) -> None:
        self._backing_files = backing_files
        self._writes = writes
        self._policy = policy
        self._directories = directories

    def hand_out(self, opened: OpenFile, *, writable: bool) -> None:
        """The kernel gets a handle: the first one decides who serves the data of all, the kernel by itself if it can."""
        if not opened.has_kind:
            whole = opened.arrival is None or opened.arrival.finished
            backing_id = None
            if opened.writable and whole and (writable or not self._is_polled(opened)):
                backing_id = self._backing_files.register(opened.node.id, opened.fd)
            opened.hand_out(backing_id)
        if writable and opened.backing_id is not None:
            self._writes.expect(opened)

    def end(self, opened: OpenFile) -> None:
        """The last handle goes."""
        if opened.backing_id is not None:
            self._backing_files.unregister(opened.node.id, opened.backing_id)

    def _is_polled(self, opened: OpenFile) -> bool:
        """Say whether the file is one that readers get sooner from the daemon."""
        if os.fstat(opened.fd).st_size < _LONG_BYTES:
            return False
        places = [(self._directories.place(parent), name) for parent, name in opened.node.names()]
        return any(place.zone.sends and self._policy.of(place, name).polled_while_read for place, name in places)
