"""Directories of the store in which a call of the other process (``outside_calls``) has not ended in time.

The call may hold the directory's lock until a user lets go of a file. Whoever needs the lock would wait as long, so nobody
enters the directory: ``check`` is called before each walk by path, ``check_moved`` before a directory changes its own name,
``has`` during a walk.

The call outlives the daemon. So the directories are written down before it begins, for the next daemon, which asks the
other process for the lock of each, and enters the directory once the process has had it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from holdfast.errors import FileBusyError
from holdfast.store.outside_calls import Answer
from holdfast.system.file_id import FileId

NOTES_BYTES = 1 << 16
"""The disk space reserved for the notes: enough for 15 of the longest paths, or hundreds of usual ones."""


class HeldDirectory(NamedTuple):
    """A directory in the tree at ``path``, or outside of it, where ``path`` is None."""

    inode: FileId
    path: bytes | None


class HeldDirectories:
    """The directories that calls may hold. ``notes_fd`` is for the next daemon."""

    def __init__(self, notes_fd: int | None = None) -> None:
        self._notes_fd = notes_fd
        self.calls: dict[HeldDirectory, Answer] = {}
        """The calls. There are nearly always none, which every way through the tree asks first."""
        self._inodes: frozenset[FileId] = frozenset()

    def restore(self, begin: Callable[[HeldDirectory], Answer]) -> None:
        """Hold what an earlier daemon has written down until the calls that ``begin`` makes have had the locks."""
        if self._notes_fd is not None:
            for directory in _read(self._notes_fd):
                self.add(directory, begin(directory))

    def about_to_be(self, directories: Iterable[HeldDirectory]) -> None:
        """Write down that a call is about to take the locks of these. Raises ``OSError``, and ``FileBusyError``."""
        if self._notes_fd is not None:
            _write(self._notes_fd, [*self.calls, *directories])

    def add(self, directory: HeldDirectory, call: Answer) -> None:
        """Let nobody into the directory until ``call`` has ended."""
        self.calls[directory] = call
        self._inodes = frozenset(each.inode for each in self.calls)

    def has(self, inode: FileId) -> bool:
        """Say whether the directory ``inode`` is held. Safe to use from any thread."""
        return inode in self._inodes

    def check(self, path: bytes) -> None:
        """Raise ``FileBusyError``, which is an ``OSError`` too, if ``path`` is, or leads through, a held directory."""
        self._let_go()
        if any(_is_at_or_below(path, held) for held in self._paths()):
            raise _HeldError(path)

    def check_moved(self, path: bytes) -> None:
        """Raise ``FileBusyError`` as ``check`` does, also if ``path`` contains a held directory."""
        self.check(path)
        if any(_is_at_or_below(held, path) for held in self._paths()):
            raise _HeldError(path)

    def _paths(self) -> Iterable[bytes]:
        return (directory.path for directory in self.calls if directory.path is not None)

    def _let_go(self) -> None:
        ended = [directory for directory, call in self.calls.items() if call.has_ended()]
        for directory in ended:
            del self.calls[directory]
        if ended:
            self._inodes = frozenset(each.inode for each in self.calls)
            self.about_to_be(())


def _write(fd: int, directories: Iterable[HeldDirectory]) -> None:
    notes = b"\0".join(b"%d%s" % (inode, b"" if path is None else b"/" + path) for inode, path in directories) + b"\0\0"
    if len(notes) > NOTES_BYTES:
        raise FileBusyError("too many directories are held up by processes that hold the locks of files in them")
    os.pwrite(fd, notes, 0)


def _read(fd: int) -> list[HeldDirectory]:
    found = []
    notes, _, _ = os.pread(fd, NOTES_BYTES, 0).partition(b"\0\0")
    for note in notes.split(b"\0"):
        inode, slash, path = note.partition(b"/")
        if inode.isdigit():
            found.append(HeldDirectory(FileId(int(inode)), path if slash else None))
    return found


def _is_at_or_below(path: bytes, directory: bytes) -> bool:
    return path == directory or not directory or path.startswith(directory + b"/")


class _HeldError(FileBusyError, OSError):  # type: ignore[misc]  # either's errno is a number
    """A directory is held. Callers that handle errors of the disk handle it like one: what they do there fails."""

    def __init__(self, path: bytes) -> None:
        super().__init__(f"{os.fsdecode(path)}: a process holds the lock of a file in this directory")
