"""Which closes say nothing: those of descriptors that a process has handed down, and still has itself.

The kernel tells of every close, and not whether other descriptors are left. Who starts a program hands all its descriptors
down, and exec(2), or the child, closes them. Hadoop starts a ``chmod`` for each file that it creates: without this module
every file that is being written would be sent as it is by then, and the ``chmod``, for which a task waits, would wait for
that. So it is remembered which process has opened a file for writing. While it is the only one, and has closed none of its
descriptors, its own close is still to come, at the latest when it ends; that of any other process is left out.

In doubt a close counts: with several writers, after a takeover, for processes that the daemon does not see. One that shares
its table of descriptors with another process (clone(2), CLONE_FILES) may close for both, and is left out all the same: what
it wrote is sent with the last handle.
"""

from __future__ import annotations

from holdfast.fs.inodes.open_file import OpenFile
from holdfast.processes import leader_of


def note_writer(opened: OpenFile, thread: int) -> None:
    """``thread`` is about to get a handle that may write, and whose closes the kernel tells of."""
    opened.opened_by(_process(thread))


def closes_inherited(opened: OpenFile, thread: int) -> bool:
    """Say whether ``thread``, which closes a descriptor, has it from a process that is still to close its own."""
    if opened.writer == 0:
        return False
    process = _process(thread)
    if process not in (0, opened.writer):
        return True
    opened.closed_by_writer()
    return False


def _process(thread: int) -> int:
    try:
        return leader_of(thread)
    except (OSError, ValueError):
        return 0
