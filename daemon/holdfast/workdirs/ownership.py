"""Whose a working directory is: what an acquirer finds must be the work of its own user, or nothing of it is trusted.

Anybody may make a directory in a base, also under the name that somebody else's process will ask for, and leave there what
that process takes for its own state. So a directory of another user is refused, and so is one with something in place of
the directories that Holdfast makes. Root may adopt it instead. No symbolic link is followed, whoever put it there.
"""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import Iterator

from holdfast.errors import ForeignWorkdirError
from holdfast.store import descend
from holdfast.zones import SKELETON

LEASE_FILE = b".lease"
_HOW = "acquire with another id, remove it, or let root acquire it with --adopt"


def check(path: bytes, fd: int, uid: int) -> None:
    """Raise ``ForeignWorkdirError`` if the directory at ``path``, open as ``fd``, is not plainly the user's own."""
    for problem in _problems(fd, uid):
        raise ForeignWorkdirError(f"{os.fsdecode(path)}: {problem}; {_HOW}")


def strangers(fd: int, uid: int) -> list[bytes]:
    """Return the names among those that Holdfast makes which are something else, or another user's."""
    return [name for name in SKELETON if _problem_of(fd, name, uid) is not None]


def give(fd: int, uid: int, gid: int) -> None:
    """Give the directory open as ``fd``, and what its owner has put into it, to another user.

    What belongs to third users stays theirs. Takes time: call it in a thread. Raises ``OSError``.
    """
    before = os.stat(fd).st_uid
    for _, directory_fd, entries in descend(fd):
        os.chown(f"/proc/self/fd/{directory_fd}", uid, gid)
        for entry in entries:
            stat = os.stat(entry.name, dir_fd=directory_fd, follow_symlinks=False)
            if stat.st_uid == before and not entry.is_directory:
                os.chown(entry.name, uid, gid, dir_fd=directory_fd, follow_symlinks=False)


def is_lease(fd: int, uid: int) -> bool:
    """Say whether the directory has a lease file that is its owner's, or as an earlier version made it."""
    try:
        stat = os.stat(LEASE_FILE, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat_module.S_ISREG(stat.st_mode) and stat.st_nlink == 1 and stat.st_uid in (0, uid)


def _problems(fd: int, uid: int) -> Iterator[str]:
    stat = os.stat(fd)
    if stat.st_uid != uid:
        yield f"it belongs to user {stat.st_uid}, not to user {uid}"
    if stat.st_mode & stat_module.S_IWOTH:
        yield "all users may write into it"
    for name in SKELETON:
        problem = _problem_of(fd, name, uid)
        if problem is not None:
            yield problem


def _problem_of(fd: int, name: bytes, uid: int) -> str | None:
    try:
        stat = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat_module.S_ISDIR(stat.st_mode):
        return f"{name.decode()} in it is not a directory"
    return f"{name.decode()} in it belongs to user {stat.st_uid}, not to user {uid}" if stat.st_uid != uid else None
