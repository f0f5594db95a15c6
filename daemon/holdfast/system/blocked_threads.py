"""Which threads of this machine sleep in the kernel and no signal wakes them, as those do that want a directory's lock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

_MOST_THREADS = 20_000
"""The number of threads that are looked at, which takes 0.4 s: users decide how many there are."""
_SLEEPS = b"D"
_SWITCHES = b"\nvoluntary_ctxt_switches:"
_FOR_A_PAGE = (b"folio_", b"__folio_", b"wait_on_page", b"__lock_page", b"io_schedule")
"""The beginnings of the names of kernel functions in which a thread waits for the bytes of a file."""


def blocked_threads(proc: str = "/proc") -> dict[int, int]:
    """Return the threads in uninterruptible sleep, each with the number of times that it has gone to sleep so far.

    Those that wait for the bytes of a file are left out: their request is under way, and they do not wait for others.
    A thread with the same number in two looks has slept from the one to the other. Threads that end meanwhile, or that this
    process may not see, are left out. A thousand threads take about 20 ms.
    """
    found = {}
    for directory in islice(_threads(proc), _MOST_THREADS):
        with suppress(OSError, ValueError, IndexError):
            sleeps = _read(f"{directory}/stat").rpartition(b")")[2].split()[0] == _SLEEPS
            if sleeps and not _waits_for_a_page(directory):
                switches = _read(f"{directory}/status").partition(_SWITCHES)[2].partition(b"\n")[0]
                found[int(directory.rpartition("/")[2])] = int(switches)
    return found


def _waits_for_a_page(thread: str) -> bool:
    where = _read(f"{thread}/wchan")
    if where == b"0":  # it does not sleep yet
        where = _read(f"{thread}/wchan")
    return where.startswith(_FOR_A_PAGE)


def _threads(proc: str) -> Iterator[str]:
    for process in os.listdir(proc):
        if process.isdigit():
            tasks = f"{proc}/{process}/task"
            with suppress(OSError):
                yield from [f"{tasks}/{thread}" for thread in os.listdir(tasks)]


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()
