"""Removals of names that the kernel may not have finished: what it must not be told of these files meanwhile.

The process whose unlink, rmdir or rename over a name is answered goes on in the kernel, once it gets a processor: it takes
the name off the kernel's own count of links, which it holds beside the daemon's (``fuse_entry_unlinked``). Until then

- the kernel must not take over a lower count that another process asks for, or the name is off twice. At 0 the kernel
  refuses link(2) with ENOENT and asks nobody, though the file has other names (``vfs_link``);
- the node id of a file that is gone must not be given to a new file with the same inode number, or the name is taken off
  the new file's count. For a directory the kernel finds the old one in use, and mkdir(2) ends with ESTALE.

An id is safe as long as its node is in the table, which the kernel's FORGET ends. But a daemon that has taken over does not
know of nodes that were removed before, and of others only what it has heard; and what its predecessor removed and did not
answer, it answers. So removals are written down for it (``session.UnlinkTable``).
"""

from __future__ import annotations

from collections.abc import Callable, Container

from holdfast.session import UnlinkTable

_SECONDS = 10.0
"""Far longer than a process that has its answer waits for a processor."""


class RecentInodes:
    """A set of inode numbers that each stay for some seconds. ``clock`` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[int, float] = {}  # the oldest first

    def __contains__(self, inode: int) -> bool:
        until = self._until.get(inode)
        return until is not None and until > self._clock()

    def add(self, inode: int) -> None:
        """Let ``inode`` be in it from now on."""
        now = self._clock()
        self._until.pop(inode, None)
        self._until[inode] = now + _SECONDS
        while self._until[oldest := next(iter(self._until))] <= now:
            del self._until[oldest]

    def discard(self, inode: int) -> None:
        """Take ``inode`` out, if it is there."""
        self._until.pop(inode, None)


class PendingUnlinks:
    """Which files are ``losing`` one of several names, and which are ``gone``, with ids that are not free yet.

    Whoever takes a last name away adds to ``gone`` what has no node in the table.
    """

    def __init__(self, table: UnlinkTable, clock: Callable[[], float]) -> None:
        self._table = table
        self.losing = RecentInodes(clock)
        self.gone = RecentInodes(clock)

    def begin(self, inode: int, *, is_last: bool) -> None:
        """A file or directory is about to lose a name, because of a request; ``is_last``: its only one."""
        self._table.note(inode, is_last=is_last)
        if not is_last:
            self.losing.add(inode)

    def inherit(self, still_there: Container[int]) -> None:
        """Take over what earlier daemons have begun; ``still_there`` are the inode numbers of all that have names."""
        for inode, is_last in self._table.records():
            if not is_last:
                self.losing.add(inode)
            elif inode not in still_there:
                self.gone.add(inode)
