"""Filter for FLUSH requests: closes of inherited descriptors whose owner still has its own are ignored.

The kernel sends FLUSH for every close and does not say whether other descriptors are left. A process that starts a program
passes all its descriptors on, and exec(2) or the child closes them. Hadoop starts a ``chmod`` for each file that it creates.
Without this filter each file being written would be sent incomplete, and the ``chmod``, for which a task waits, would wait
for the upload. So the process that opened a file for writing is recorded. While it is the only writer and has closed none
of its descriptors, its own close is still to come, at the latest when it exits, and closes of other processes are ignored.

In doubt a close counts: with several writers, after a takeover, for processes that the daemon does not see. A process that
shares its descriptor table with another (clone(2), CLONE_FILES) may close for both and is still ignored. Its bytes are sent
with the last handle.
"""

from __future__ import annotations

from holdfast.fs.inodes.open_file import OpenFile
from holdfast.system.processes import leader_of


def note_writer(opened: OpenFile, thread: int) -> None:
    """Note that ``thread`` is about to get a writable handle, whose closes the kernel will report."""
    opened.opened_by(_process(thread))


def closes_inherited(opened: OpenFile, thread: int) -> bool:
    """Say whether ``thread`` closes a descriptor inherited from a process that will still close its own."""
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
