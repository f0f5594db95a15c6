"""The last step of OPEN and CREATE: the kernel gets a handle. It follows the reply's last wait, and the reply follows it."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.fs.file_io.commit import Committer
from holdfast.fs.file_io.flush_filter import note_writer
from holdfast.fs.file_io.handle_table import HandleTable
from holdfast.fs.file_io.open_files import OpenFiles
from holdfast.fs.file_io.passthrough import Passthrough
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.open_file import OpenFile


class Handle(NamedTuple):
    """What the kernel gets: an open file, and whether it is to tell of closes."""

    opened: OpenFile
    tells_of_closes: bool


class HandOut:
    """Hands open files out."""

    def __init__(self, files: OpenFiles, passthrough: Passthrough, handles: HandleTable, committer: Committer) -> None:
        self._files = files
        self._passthrough = passthrough
        self._handles = handles
        self._committer = committer

    def hand_out(self, opened: OpenFile, request: int, caller: Caller, *, reads_only: bool, changes: bool) -> Handle:
        """Give the kernel a handle of ``opened``, which counts it already; the reply to ``request`` comes next.

        ``reads_only``: it is opened with O_RDONLY. ``changes``: its bytes may change by this open, with O_TRUNC too. After
        an error the kernel gets no handle, and ``opened`` has lost it.
        """
        try:
            self._passthrough.hand_out(opened, writable=changes)
            tells = not reads_only and self._committer.sends(opened)
            if tells:
                note_writer(opened, caller.pid)
            self._handles.opened(opened, request, writes=not reads_only)
        except BaseException:
            self._files.release(opened)
            raise
        return Handle(opened, tells)
