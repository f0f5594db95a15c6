"""Threads that hash files, a few for the files of each user.

One user's large files then keep nobody else's waiting, and none of the threads that everything else shares.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import trio

from holdfast.telemetry import waiting_for

_T = TypeVar("_T")
_THREADS_PER_USER = 4


class HashingThreads:
    """Runs functions that read and hash a whole file."""

    def __init__(self) -> None:
        self._of_user: dict[int, trio.CapacityLimiter] = {}

    async def run(self, function: Callable[[int], _T], fd: int) -> _T:
        """Return ``function(fd)``, run in one of the threads for the owner of the file; no more than four run at once.

        Cancellation waits for the function, which may ask for it (``trio.from_thread.check_cancelled``).
        """
        uid = os.fstat(fd).st_uid
        limiter = self._of_user.get(uid)
        if limiter is None:
            limiter = self._of_user[uid] = trio.CapacityLimiter(_THREADS_PER_USER)
        try:
            with waiting_for("hash"):
                return await trio.to_thread.run_sync(function, fd, limiter=limiter)
        finally:
            if limiter.borrowed_tokens == 0 and self._of_user.get(uid) is limiter:
                del self._of_user[uid]
