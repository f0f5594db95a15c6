"""Watches a disk of the store: how much is free, how fast it is taken, and when to look again.

The kernel writes by itself into files that are open in passthrough, and asks nobody when the disk is full. So while such a
file is open, the disk is looked at so often that what is free can't be taken between two looks. As much as was taken lately
is kept free for what comes next, beside what may be written before a busy daemon gets to look. A look is one fstatvfs(3).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import trio

from holdfast.store import DiskSpace, Space, measured

_BURST_BYTES_PER_SECOND = 4 * 2**30
"""The rate at which a writer may fill the page cache; twice the measured rate counts where that is more."""
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.005, 5.0
_WINDOW_SECONDS = 1.0
_MOST_AHEAD = 1 / 4
"""The largest share of the disk that is kept free because of the rate of writing."""
_SCARCE_BYTES, _SCARCE_SHARE = 512 * 2**20, 1 / 4
"""The free space, on a small disk as a share, below which the disk is scarce. A burst takes an eighth of a second for it: a
busy daemon may look, and evict, that late."""
_WISH_SECONDS = 1.0
_FRESH_SECONDS = 0.02
_NEAR_END_BYTES = 16 * 2**30
"""The free space below which the disk is near its end: more than the files that are open at one time grow by, and than what
is written between two looks."""
_PLENTY_FILES = 100_000


class Disk:
    """Watches a disk. ``measure`` looks at it, ``deleted`` tells what has been deleted there and is not free yet.

    ``number`` is that in ids of files, 0 for the first disk; ``path`` is the store's directory there.
    """

    def __init__(
        self,
        measure: Callable[[], DiskSpace],
        deleted: Callable[[], Space],
        clock: Callable[[], float] = time.monotonic,
        *,
        number: int = 0,
        path: str = "",
    ) -> None:
        self.number = number
        self.path = path
        self._measure = measure
        self._deleted = deleted
        self._clock = clock
        self._writers = 0
        self._passer: trio.Event | None = None
        """The event that the next writer sets that passes the daemon by, or wants to; None if nobody waits for that."""
        self._wanted_until = 0.0
        self._evicted_bytes = 0
        self._admitted_bytes = 0
        self._admitted_until = 0.0
        self._looks: deque[tuple[float, int]] = deque([(clock(), 0)])
        """The recent looks, oldest first: the time, and the number of bytes taken since the one before (0 for the first)."""
        self._taken_bytes = 0
        """The bytes taken in all of these looks."""
        self.now = measure()
        """The space at the last look."""
        self.is_freeing = False
        """True if the last look found something deleted that was not free yet."""
        self._free_bytes = self.now.free_bytes

    def look(self) -> DiskSpace:
        """Look at the disk; return its space, in which all that has been deleted counts as free."""
        now, deleted = measured(self._measure, self._deleted)
        self.now, self.is_freeing = now, any(deleted)
        files = now.free_files + deleted.files if now.files else 0
        seen = now._replace(free_bytes=now.free_bytes + deleted.size_bytes, free_files=files)
        taken_bytes = max(0, self._free_bytes + self._evicted_bytes - seen.free_bytes)
        admitted_bytes = min(taken_bytes, self._admitted_bytes)
        self._admitted_bytes -= admitted_bytes if self._clock() < self._admitted_until else self._admitted_bytes
        self._note(taken_bytes - admitted_bytes)
        self._free_bytes, self._evicted_bytes = seen.free_bytes, 0
        return seen

    def admitted(self, size_bytes: int) -> None:
        """Note that the daemon is about to take so many bytes, for which there is room: they tell nothing of later ones."""
        self._admitted_bytes += size_bytes
        self._admitted_until = self._clock() + _WINDOW_SECONDS

    def evicted(self, size_bytes: int) -> None:
        """Note that so much has become free by eviction: it hides what others take meanwhile."""
        self._evicted_bytes += size_bytes

    @property
    def bytes_per_second(self) -> float:
        """The rate at which the disk has been filled lately."""
        return self._taken_bytes / max(_WINDOW_SECONDS, self._looks[-1][0] - self._looks[0][0])

    @property
    def ahead_bytes(self) -> int:
        """The bytes to keep free while writers pass the daemon by, or just wanted to.

        As much as they wrote in the last second they may write in the next; and what makes the disk scarce is not theirs.
        """
        if not self._has_passers():
            return 0
        return int(self._scarce_bytes + min(self.bytes_per_second * _WINDOW_SECONDS, _MOST_AHEAD * self.now.size_bytes))

    def is_scarce(self) -> bool:
        """Say whether so little is free that a writer may be faster than eviction: then none should pass the daemon by.

        Then evictions begin at once, so that the next writer may.
        """
        if self._clock() - self._looks[-1][0] > _FRESH_SECONDS:
            self.look()
        free_bytes = self.now.free_bytes
        if free_bytes >= _SCARCE_BYTES or free_bytes >= self._scarce_bytes:  # nearly always the first, which costs no call
            return False
        self._wanted_until = self._clock() + _WISH_SECONDS
        if self._passer is not None:
            self._passer.set()
        return True

    @property
    def _scarce_bytes(self) -> float:
        return min(_SCARCE_BYTES, self.now.size_bytes * _SCARCE_SHARE)

    def is_near_end(self) -> bool:
        """Say whether so little is left for users that what is open now may yet take what is kept for root.

        Safe and instant in any thread: it goes by the last look.
        """
        return self.now.free_bytes < _NEAR_END_BYTES

    def had_plenty(self) -> bool:
        """Say whether the last look has seen far more than what is taken between two looks."""
        return self.now.free_bytes > _NEAR_END_BYTES and (not self.now.files or self.now.free_files > _PLENTY_FILES)

    def has_room(self, wanted: Space) -> bool:
        """Look, and say whether ``wanted`` could be taken now."""
        self.look()
        return self.now.free_bytes > wanted.size_bytes and (not self.now.files or self.now.free_files >= wanted.files)

    async def answers(self) -> None:
        """Return once a thread has had an answer of the disk, if it is not the first: one that hangs holds up no other."""
        if self.number:
            await trio.to_thread.run_sync(self._measure, abandon_on_cancel=True)

    # --- writers that pass the daemon by -----------------------------------------------------------------------------

    def writer_begins(self) -> None:
        """Note that the kernel may write into one more file by itself."""
        self._writers += 1
        if self._passer is not None:
            self._passer.set()

    def writer_ends(self) -> None:
        """Note that the kernel has closed one of these files."""
        self._writers -= 1

    async def wait_to_look(self) -> None:
        """Return when the disk should be looked at again: never while nobody passes the daemon by."""
        fastest = max(_BURST_BYTES_PER_SECOND, 2 * self.bytes_per_second)
        await trio.sleep(min(_LONGEST_SECONDS, max(_SHORTEST_SECONDS, self.now.free_bytes / fastest)))
        if not self._has_passers():
            self._passer = trio.Event()
            await self._passer.wait()
            self._passer = None

    def _has_passers(self) -> bool:
        return self._writers > 0 or self._clock() < self._wanted_until

    def _note(self, taken_bytes: int) -> None:
        now = self._clock()
        if len(self._looks) > 1 and now - self._looks[-1][0] < _SHORTEST_SECONDS:
            now, more = self._looks.pop()
            self._looks.append((now, taken_bytes + more))
        else:
            self._looks.append((now, taken_bytes))
        self._taken_bytes += taken_bytes
        while len(self._looks) > 2 and self._looks[1][0] < now - _WINDOW_SECONDS:
            self._looks.popleft()
            at, before = self._looks[0]
            self._looks[0] = at, 0
            self._taken_bytes -= before
