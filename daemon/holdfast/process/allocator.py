"""Settings of the C library's allocator for a process that runs for months, with many threads that come and go.

glibc gives each thread an arena of its own, 16 on two cores, and each keeps the most that a thread ever needed at a time.
So memory goes on growing while rarer and rarer peaks come to one arena after the other: in 20 minutes of everything at once
(docs/reliability.md) from 2 to 8 MB, of which 7 were free. Threads of Python seldom allocate at the same time, since they
hold the interpreter's lock while they do, so one arena for all costs nothing that could be measured.
"""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8  # malloc.h


def use_one_arena() -> None:
    """Let all threads share the main arena. Call it before there is a second thread; arenas that exist stay.

    Other C libraries than glibc have no such setting, and are left as they are (mallopt(3)).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
