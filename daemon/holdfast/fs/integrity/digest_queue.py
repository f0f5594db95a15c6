"""Files that wait to be hashed in the background: a queue for each user, by turns.

With one queue for all, who makes files fastest would be the only one whose files get digests. A large file would keep all
after it waiting, and one of holes costs its maker nothing: so the large files of each user wait apart, for those of the same
user only. How many files wait is limited. One that finds no place gets its digest when it is used or scrubbed.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable

import trio

from holdfast.telemetry.slices import Slices

_AT_ONCE = 16
_MOST_NEW = 10_000
"""The limit of files of which nobody has looked yet whose they are: those of one step of the event loop."""
_MOST_OF_USER = 10_000
_MOST_WAITING = 40_000
"""The number of files that users share once their queues have so many together."""
_MOST_LARGE_OF_USER = 1000
_LARGE_BYTES = 64 * 2**20
"""The size of a file that takes some 20 ms to hash."""


class DigestQueue:
    """Calls ``digest`` with each path, while ``run`` runs.

    ``size_and_owner`` returns bytes and user id of the file at a path; None if there is none, and the path is left out.
    """

    def __init__(
        self, digest: Callable[[bytes], Awaitable[None]], size_and_owner: Callable[[bytes], tuple[int, int] | None]
    ) -> None:
        self._digest = digest
        self._size_and_owner = size_and_owner
        self._new: deque[bytes] = deque()
        self._added = trio.Event()
        self._waiting: OrderedDict[int, deque[bytes]] = OrderedDict()
        """The files of each user who has any; the user whose turn is next comes first."""
        self._large: dict[int, deque[bytes]] = {}
        """The large files of each user who has any; the first one is being hashed."""
        self._working = 0

    def add(self, path: bytes) -> None:
        """Add a file; do nothing if too many wait already."""
        if len(self._new) < _MOST_NEW:
            self._new.append(path)
            self._added.set()

    async def run(self) -> None:
        """Serve the queues until cancelled."""
        slices = Slices()
        async with trio.open_nursery() as nursery:
            while True:
                await self._added.wait()
                self._added = trio.Event()
                while self._new:
                    self._sort(self._new.popleft(), nursery)
                    await slices.pause()

    def _sort(self, path: bytes, nursery: trio.Nursery) -> None:
        """Put a file into the queue of its owner, and see that somebody takes it from there."""
        found = self._size_and_owner(path)
        if found is None:
            return
        size_bytes, uid = found
        if size_bytes > _LARGE_BYTES:
            if uid not in self._large:
                self._large[uid] = deque([path])
                nursery.start_soon(self._run_large, uid)
            elif len(self._large[uid]) < _MOST_LARGE_OF_USER:
                self._large[uid].append(path)
            return
        queue = self._waiting.setdefault(uid, deque())
        if len(queue) < min(_MOST_OF_USER, _MOST_WAITING // len(self._waiting) + 1):
            queue.append(path)
        if self._working < _AT_ONCE:
            self._working += 1
            nursery.start_soon(self._work)

    async def _work(self) -> None:
        while self._waiting:
            uid, queue = next(iter(self._waiting.items()))
            path = queue.popleft()
            if queue:
                self._waiting.move_to_end(uid)
            else:
                del self._waiting[uid]
            await self._digest(path)
            await trio.lowlevel.checkpoint()  # hashing a file that was removed waits for nothing
        self._working -= 1

    async def _run_large(self, uid: int) -> None:
        waiting = self._large[uid]
        while waiting:
            await self._digest(waiting[0])
            waiting.popleft()
        del self._large[uid]
