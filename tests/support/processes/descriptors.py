"""Which files this process has open: only below a directory, for other threads open and close theirs meanwhile.

And of any process, how many descriptors stand for processes, and how it does without free ones.
"""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_STANDARD_STREAMS = 3


def open_below(directory: Path) -> list[str]:
    """Return what the descriptors lead to that are open in ``directory``, itself and unlinked files included."""
    gc.collect()
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the listing's own, and those of other threads
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [path for path in found if path.startswith(str(directory))]


@contextmanager
def no_free_descriptors(pid: int) -> Iterator[None]:
    """Let a process open nothing (EMFILE) until the block ends; what it has open it keeps."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (_STANDARD_STREAMS, hard))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


def pidfds(pid: int) -> int:
    """Return how many descriptors of a process stand for processes (pidfd_open(2))."""
    directory = f"/proc/{pid}/fd"
    links = []
    for fd in os.listdir(directory):
        with suppress(FileNotFoundError):
            links.append(os.readlink(f"{directory}/{fd}"))
    return sum("pidfd" in link for link in links)
