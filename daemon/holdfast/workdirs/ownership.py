"""Whose a working directory is: what an acquirer finds must be the work of its own user, or nothing of it is trusted.

Anybody may make a directory in a base, also under the name that somebody else's process will ask for, and leave there what
that process takes for its own state. So a directory of another user is refused, and so is one with something in place of
the directories that Holdfast makes. Root may adopt it instead. No symbolic link is followed, whoever put it there.
"""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from holdfast.errors import ForeignWorkdirError
from holdfast.store import descend
from holdfast.zones import SKELETON

LEASE_FILE = b".lease"
_OTHERS_WRITE = stat_module.S_IWGRP | stat_module.S_IWOTH
_SET_ID = stat_module.S_ISUID | stat_module.S_ISGID
_HOW = "acquire with another id, remove it, or let root acquire it with --adopt"


class Given(NamedTuple):
    """What has changed hands, and which regular files the new owner has; both by inode number."""

    inodes: list[int]
    files: list[int]


def check(path: bytes, fd: int, uid: int) -> None:
    """Raise ``ForeignWorkdirError`` if the directory at ``path``, open as ``fd``, is not plainly the user's own."""
    for problem in _problems(fd, uid):
        raise ForeignWorkdirError(f"{os.fsdecode(path)}: {problem}; {_HOW}")


def strangers(fd: int, *uids: int) -> list[bytes]:
    """Return the names among those that Holdfast makes which are something else, or of a user not among ``uids``."""
    return [name for name in SKELETON if all(_problem_of(fd, name, uid) is not None for uid in uids)]


def give(fd: int, before: int, uid: int, gid: int) -> Given:
    """Give all of the user ``before`` in the directory open as ``fd``, and itself, to another user.

    What belongs to third users stays theirs. Nobody but the new owner may write then, and no set-id bit stays. Each entry
    is opened first and judged as what was opened, whatever gets its name meanwhile. Takes time: call it in a thread.
    Raises ``OSError``.
    """
    given = Given([], [])
    for _, directory_fd, entries in descend(fd):
        _give_one(directory_fd, before, uid, gid, given)
        for entry in entries:
            if not entry.is_directory:
                with suppress(FileNotFoundError):  # its owner was faster
                    _give_entry(directory_fd, entry.name, before, uid, gid, given)
    return given


def _give_entry(directory_fd: int, name: bytes, before: int, uid: int, gid: int, given: Given) -> None:
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory_fd)
    try:
        _give_one(fd, before, uid, gid, given)
    finally:
        os.close(fd)


def _give_one(fd: int, before: int, uid: int, gid: int, given: Given) -> None:
    """Give what is open as ``fd``, without reading or following it (``O_PATH``)."""
    stat = os.stat(fd)
    if stat_module.S_ISREG(stat.st_mode) and stat.st_uid in (before, uid):
        given.files.append(stat.st_ino)
    if stat.st_uid != before:
        return
    given.inodes.append(stat.st_ino)
    opened = f"/proc/self/fd/{fd}"
    os.chown(opened, uid, gid)
    if not stat_module.S_ISLNK(stat.st_mode):
        withdrawn = _OTHERS_WRITE if stat_module.S_ISDIR(stat.st_mode) else _OTHERS_WRITE | _SET_ID
        os.chmod(opened, stat_module.S_IMODE(os.stat(fd).st_mode) & ~withdrawn)


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
