"""The last step of OPEN and CREATE: the kernel gets a handle. There is no await between this step and the reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from holdfast.fs.file_io.commit import Committer
from holdfast.fs.file_io.flush_filter import note_writer
from holdfast.fs.file_io.handle_table import HandleTable
from holdfast.fs.file_io.open_files import OpenFiles
from holdfast.fs.file_io.open_limits import OpenLimits
from holdfast.fs.file_io.passthrough import Passthrough
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.open_file import OpenFile


class Handle(NamedTuple):
    """An open file for the kernel: whether its open may change bytes, and whether the kernel should send FLUSH for it."""

    opened: OpenFile
    changes: bool
    sends_flush: bool


@dataclass(eq=False)
class HandOut:
    """Hands open files to the kernel."""

    _files: OpenFiles
    _passthrough: Passthrough
    _handles: HandleTable
    _committer: Committer
    _limits: OpenLimits

    def hand_out(
        self,
        opened: OpenFile,
        request: int,
        caller: Caller,
        *,
        changes: bool,
        executes: bool = False,
        sends: bool | None = None,
    ) -> Handle:
        """Give the kernel a handle of ``opened``, which counts it already; the reply to ``request`` must follow at once.

        ``changes``: this open may change the bytes, or has: by O_TRUNC, which needs no writable descriptor. ``executes``: a
        program is to run. ``sends``: the file is sent (``Committer.sends``); None: not known. On an error the kernel gets no
        handle, and it is no longer counted. Raises ``LimitReachedError``.
        """
        try:
            if caller.uid and not opened.is_handed_out:
                self._limits.charge(opened, caller.uid)
            self._passthrough.hand_out(opened, caller.uid, writable=changes)
            sends_flush = changes and (self._committer.sends(opened) if sends is None else sends)
            if sends_flush:
                note_writer(opened, caller.pid)
            self._handles.opened(opened, request, writes=changes, executes=executes)
        except BaseException:
            self._files.release(opened)
            raise
        return Handle(opened, changes, sends_flush)
