"""Files that lost a name a moment ago: the kernel must not keep the attributes it asks for.

The kernel counts links itself: the process whose unlink or rename was answered takes one off, once it runs again. If another
process has been told the attributes meanwhile, the same name is taken off twice. At 0 the kernel refuses link(2) with
ENOENT and asks nobody, though the file has other names (``vfs_link``, ``fuse_entry_unlinked``).
"""

from __future__ import annotations

from collections.abc import Callable

_SECONDS = 10.0
"""Far longer than a process that has its answer waits for a processor."""


class RecentUnlinks:
    """Remembers for some seconds which files lost one of several names. ``clock`` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[int, float] = {}  # by inode number; the oldest first
        self._all_until = 0.0

    def note(self, inode: int) -> None:
        """The file ``inode`` loses a name; who asked for that is answered next."""
        self._until.pop(inode, None)
        self._until[inode] = self._clock() + _SECONDS

    def note_any(self) -> None:
        """Some file lost a name, by an earlier daemon: who asked for that is answered by this one."""
        self._all_until = self._clock() + _SECONDS

    def is_recent(self, inode: int) -> bool:
        """Say whether the kernel may be about to take a name off the links of the file ``inode``."""
        if not self._until and not self._all_until:
            return False
        self._expire(self._clock())
        return inode in self._until or self._all_until > 0.0

    def _expire(self, now: float) -> None:
        if self._all_until < now:
            self._all_until = 0.0
        while self._until:
            oldest = next(iter(self._until))
            if self._until[oldest] >= now:
                return
            del self._until[oldest]
