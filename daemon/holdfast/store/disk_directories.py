"""The directories of a store's tree on another disk, as the disk lists them when the daemon starts.

All is read before anything is changed, piece by piece within a deadline: a disk that can't be read, or does not answer, is
found out here.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from holdfast.store.other_disk import OtherDisk

PATIENCE_SECONDS = 30.0
_AT_ONCE = 100
"""The number of directories that are looked at within one deadline: a healthy disk may have tens of thousands."""


class Directory(NamedTuple):
    """A directory: its name on the disk, its path in the tree, None if it knows none, and its attributes."""

    name: bytes
    path: bytes | None
    stat: os.stat_result


def directories(disk: OtherDisk, area: str) -> list[Directory]:
    """Return the directories in an area, one of ``AREAS_OF_DIRECTORIES``. Raises ``OSError``, as ``within`` does."""
    names: list[bytes] = []
    within(PATIENCE_SECONDS, lambda: names.extend(map(os.fsencode, os.listdir(disk.fds[area]))))
    found: list[Directory] = []
    for start in range(0, len(names), _AT_ONCE):
        within(PATIENCE_SECONDS, partial(_look, disk, area, names[start : start + _AT_ONCE], found))
    return found


def _look(disk: OtherDisk, area: str, names: list[bytes], found: list[Directory]) -> None:
    for name in names:
        stat = os.stat(name, dir_fd=disk.fds[area], follow_symlinks=False)
        found.append(Directory(name, disk.place_of(name, area), stat))


def is_empty(disk: OtherDisk, name: bytes, area: str) -> bool:
    """Say whether a directory is empty. One that can't be read is not."""
    names: list[bytes] = []
    try:
        within(PATIENCE_SECONDS, lambda: names.extend(os.listdir(b"/proc/self/fd/%d/%s" % (disk.fds[area], name))))
    except OSError:
        return False
    return not names


def within(seconds: float, function: Callable[[], None]) -> None:
    """Call a function that may wait for a disk. Raises as it does, and ``OSError`` with ETIMEDOUT; it may go on then."""
    problems: list[OSError] = []

    def call() -> None:
        try:
            function()
        except OSError as problem:
            problems.append(problem)

    thread = threading.Thread(target=call, name="disk", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise OSError(errno.ETIMEDOUT, f"it has not answered for {seconds:g} s")
    if problems:
        raise problems[0]
