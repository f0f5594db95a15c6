"""Ownership of working directories: what an acquirer finds must be the work of its own user, or nothing of it is trusted.

Anybody may make a directory in a base, also under the name that somebody else's process will ask for, and leave there what
that process takes for its own state. So a directory of another user is refused, and so is one with something in place of
the directories that Holdfast makes. Root may adopt it instead. No symbolic link is followed, whoever put it there.
"""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.errors import ForeignWorkdirError
from holdfast.store import descend
from holdfast.system.file_id import FileId, FileStat, file_stat
from holdfast.zones import SKELETON

LEASE_FILE = b".lease"
_OTHERS_WRITE = stat_module.S_IWGRP | stat_module.S_IWOTH
_SET_ID = stat_module.S_ISUID | stat_module.S_ISGID
_HOW = "acquire with another id, remove it, or let root acquire it with --adopt"


class Given(NamedTuple):
    """The entries that have changed hands, and the regular files that the new owner has; both by inode number."""

    inodes: list[FileId]
    files: list[FileId]


def check(path: bytes, fd: int, uid: int) -> None:
    """Raise ``ForeignWorkdirError`` if the directory at ``path``, open as ``fd``, is not plainly the user's own."""
    for problem in _problems(fd, uid):
        raise ForeignWorkdirError(f"{os.fsdecode(path)}: {problem}; {_HOW}")


def strangers(fd: int, *uids: int) -> list[bytes]:
    """Return the names among those that Holdfast makes which are something else, or of a user not among ``uids``."""
    return [name for name in SKELETON if all(_problem_of(fd, name, uid) is not None for uid in uids)]


def files_of(path: bytes, fd: int, before: int, uid: int) -> list[FileId]:
    """Return the inode numbers of the regular files that ``uid`` would have after ``give``. Raises as that does."""
    return [stat.st_ino for _, stat in _all_in(path, fd, before) if _is_file_of(stat, before, uid)]


def give(path: bytes, fd: int, before: int, uid: int, gid: int) -> Given:
    """Give all of the user ``before`` in the directory at ``path``, open as ``fd``, and itself, to another user.

    What belongs to third users stays theirs. Nobody but the new owner may write then, and no set-id bit stays on a file.
    Each entry is opened first and judged as what was opened, whatever gets its name meanwhile. Call it in a thread.
    Raises ``OSError``, and ``ForeignWorkdirError`` at a FIFO or socket of ``before``: the kernel passes on what is sent
    through those without a look at the daemon, so nobody here knows who has one open.
    """
    given = Given([], [])
    for opened_fd, stat in _all_in(path, fd, before):
        if _is_file_of(stat, before, uid):
            given.files.append(stat.st_ino)
        if stat.st_uid == before:
            given.inodes.append(stat.st_ino)
            _give_one(opened_fd, stat, uid, gid)
    return given


def _all_in(path: bytes, fd: int, before: int) -> Iterator[tuple[int, FileStat]]:
    """Yield the directory and all in it, each open without being read or followed (``O_PATH``) until the next step."""
    for trail, directory_fd, entries in descend(fd):
        yield directory_fd, file_stat(directory_fd)
        for entry in entries:
            if entry.is_directory or (not trail and entry.name in SKELETON):  # the latter is in place of a directory
                continue
            try:
                entry_fd = os.open(entry.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory_fd)
            except FileNotFoundError:  # its owner was faster
                continue
            try:
                stat = file_stat(entry_fd)
                if stat.st_uid == before and (stat_module.S_ISFIFO(stat.st_mode) or stat_module.S_ISSOCK(stat.st_mode)):
                    name = os.fsdecode(b"/".join([path, *trail, entry.name]))
                    raise ForeignWorkdirError(f"{name} is a FIFO or socket, which others may have open; remove it")
                yield entry_fd, stat
            finally:
                os.close(entry_fd)


def _is_file_of(stat: FileStat, *uids: int) -> bool:
    return stat_module.S_ISREG(stat.st_mode) and stat.st_uid in uids


def _give_one(fd: int, stat: FileStat, uid: int, gid: int) -> None:
    opened = f"/proc/self/fd/{fd}"
    os.chown(opened, uid, gid)
    if not stat_module.S_ISLNK(stat.st_mode):
        withdrawn = _OTHERS_WRITE if stat_module.S_ISDIR(stat.st_mode) else _OTHERS_WRITE | _SET_ID
        os.chmod(opened, stat_module.S_IMODE(os.stat(fd).st_mode) & ~withdrawn)


def is_lease(fd: int, uid: int) -> bool:
    """Say whether the directory has a lease file that is its owner's, or as an earlier version made it."""
    try:
        stat = file_stat(LEASE_FILE, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat_module.S_ISREG(stat.st_mode) and stat.st_nlink == 1 and stat.st_uid in (0, uid)


def _problems(fd: int, uid: int) -> Iterator[str]:
    stat = file_stat(fd)
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
        stat = file_stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat_module.S_ISDIR(stat.st_mode):
        return f"{name.decode()} in it is not a directory"
    return f"{name.decode()} in it belongs to user {stat.st_uid}, not to user {uid}" if stat.st_uid != uid else None
