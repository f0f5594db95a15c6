"""Files that wait to be hashed in the background, in the order in which they were asked for.

A large file would keep all after it waiting, and one of holes costs its maker nothing. So the large files of each user wait
apart, for those of the same user only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import trio

_LONGEST = 10_000
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
        self._add, self._next = trio.open_memory_channel[bytes](_LONGEST)
        self._large: dict[int, deque[bytes]] = {}
        """The large files of each user who has any; the first one is being hashed."""

    def add(self, path: bytes) -> None:
        """Add a file; do nothing if 10,000 wait already."""
        try:
            self._add.send_nowait(path)
        except trio.WouldBlock:
            return

    async def run(self) -> None:
        """Serve the queue until cancelled."""
        async with trio.open_nursery() as nursery:
            async for path in self._next:
                found = self._size_and_owner(path)
                if found is None:
                    continue
                size_bytes, uid = found
                if size_bytes <= _LARGE_BYTES:
                    await self._digest(path)
                elif uid not in self._large:
                    self._large[uid] = deque([path])
                    nursery.start_soon(self._run_large, uid)
                elif len(self._large[uid]) < _MOST_LARGE_OF_USER:
                    self._large[uid].append(path)

    async def _run_large(self, uid: int) -> None:
        waiting = self._large[uid]
        while waiting:
            await self._digest(waiting[0])
            waiting.popleft()
        del self._large[uid]
