"""Directories of the tree in which a call of the other process (``outside_calls``) has not ended in time.

It may hold the directory's lock until a user lets go of a file. Whoever then needs the lock would wait as long, so nobody
goes there: ``check`` before each walk by path, ``check_moved`` before a directory changes its own name.
"""

from __future__ import annotations

import os

from holdfast.errors import FileBusyError
from holdfast.store.outside_calls import Answer


class HeldDirectories:
    """By path in the tree, the call that may hold the directory. False while there is none."""

    def __init__(self) -> None:
        self._calls: dict[bytes, Answer] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, path: bytes, call: Answer) -> None:
        """Let nobody into the directory until ``call`` has ended."""
        self._calls[path] = call

    def check(self, path: bytes) -> None:
        """Raise ``FileBusyError``, which is an ``OSError`` too, if ``path`` is, or leads through, a held directory."""
        self._let_go()
        if any(_is_at_or_below(path, held) for held in self._calls):
            raise _HeldError(path)

    def check_moved(self, path: bytes) -> None:
        """Raise ``FileBusyError`` as ``check`` does, also if ``path`` contains a held directory."""
        self.check(path)
        if any(_is_at_or_below(held, path) for held in self._calls):
            raise _HeldError(path)

    def _let_go(self) -> None:
        for path in [path for path, call in self._calls.items() if call.has_ended()]:
            del self._calls[path]


def _is_at_or_below(path: bytes, directory: bytes) -> bool:
    return path == directory or not directory or path.startswith(directory + b"/")


class _HeldError(FileBusyError, OSError):  # type: ignore[misc]  # either's errno is a number
    """A directory is held. Callers that handle errors of the disk handle it like one: what they do there fails."""

    def __init__(self, path: bytes) -> None:
        super().__init__(f"{os.fsdecode(path)}: a process holds the lock of a file in this directory")
