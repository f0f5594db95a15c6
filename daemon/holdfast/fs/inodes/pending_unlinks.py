"""Unlinks that the kernel may not have finished, and what must not be reported to it about these files meanwhile.

After the reply to an unlink, a rmdir or a rename over a name, the calling process continues in the kernel as soon as it is
scheduled. It then decrements the link count that the kernel keeps itself (``fuse_entry_unlinked``). Until then

- the kernel must not cache a lower link count that another process asks for, or the count drops twice. At 0 the kernel
  refuses link(2) with ENOENT without a request, though the file has other names (``vfs_link``);
- the node id of a removed file must not be reused for a new file with the same inode number, or the new file's count drops.
  For a directory the kernel finds the old inode in use, and mkdir(2) fails with ESTALE.

An id is safe while its node is in the table, which ends with the kernel's FORGET. But a daemon that has taken over does not
know nodes that were removed earlier, and knows others only by their records. It also answers requests that its predecessor
carried out without answering. So unlinks are recorded for it (``session.UnlinkTable``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container

from holdfast.session import UnlinkTable
from holdfast.system.file_id import FileId

_SECONDS = 10.0
"""The time to live of an inode number: far longer than a process waits to be scheduled after its reply."""
_MOST_DROPPED = 2
"""The number of expired ones that go with each addition: users decide how many there are."""


class RecentInodes:
    """A set of inode numbers that expire after some seconds. ``clock`` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: OrderedDict[int, float] = OrderedDict()
        """Oldest first. A plain dictionary would look for its first key through all places of those that were removed."""
        self.candidates = self._until.keys()
        """The inode numbers that may be in the set; no others are. Every request asks this first, because it is faster."""

    def __contains__(self, inode: int) -> bool:
        until = self._until.get(inode)
        return until is not None and until > self._clock()

    def add(self, inode: int) -> None:
        """Add ``inode``, or restart its time."""
        now = self._clock()
        self._until.pop(inode, None)
        self._until[inode] = now + _SECONDS
        for _ in range(_MOST_DROPPED):
            if self._until[oldest := next(iter(self._until))] <= now:
                del self._until[oldest]

    def discard(self, inode: int) -> None:
        """Remove ``inode``, if it is in the set."""
        self._until.pop(inode, None)


class PendingUnlinks:
    """The files that are ``losing`` one of several names, and those that are ``gone`` and whose ids are not free yet.

    Code that removes a last name adds the inode to ``gone`` if the table has no node for it.
    """

    def __init__(self, table: UnlinkTable, clock: Callable[[], float]) -> None:
        self._table = table
        self.losing = RecentInodes(clock)
        self.gone = RecentInodes(clock)

    def begin(self, inode: FileId, *, is_last: bool) -> None:
        """Note that a request is about to remove a name of a file or directory; ``is_last`` if it is the only one."""
        self._table.note(inode, is_last=is_last)
        if not is_last:
            self.losing.add(inode)

    def inherit(self, still_there: Container[FileId]) -> None:
        """Take over the unlinks that earlier daemons recorded; ``still_there`` are inode numbers of named files."""
        for inode, is_last in self._table.records():
            if not is_last:
                self.losing.add(inode)
            elif inode not in still_there:
                self.gone.add(inode)
