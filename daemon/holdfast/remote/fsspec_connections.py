"""The file systems behind a store of fsspec's: one for all requests, or one for each at a time.

The clients behind some schemes have one connection and no lock: of two threads, each may take the other's answer for a late
one and throw it away, and then wait for ever. These get a file system each, which later requests use again unless an error
may have come from a broken connection. There are at most as many as there were requests at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.errors import HoldfastError
from holdfast.remote.fsspec_root import FsspecRoot

_NOT_SHARED = frozenset({"ftp", "sftp", "ssh"})
"""The schemes of ftplib, and of paramiko, whose SFTPClient is not for several threads."""
_ANSWERS = (HoldfastError, FileNotFoundError, NotADirectoryError, FileExistsError, PermissionError)
"""Errors that say something of a file, so the connection works."""


class FsspecConnections:
    """Opens file systems of ``scheme`` by ``connect``, each when it is first needed. Safe to use from any thread."""

    def __init__(self, scheme: str, connect: Callable[[], FsspecRoot]) -> None:
        self._is_shared = scheme not in _NOT_SHARED
        self._connect = connect
        self._lock = threading.Lock()
        self._idle: list[FsspecRoot] = []

    @contextmanager
    def one(self) -> Iterator[FsspecRoot]:
        """Yield a file system for a request."""
        with self._lock:  # also while it connects: servers refuse many who do that at once
            root = self._idle.pop() if self._idle else self._connect()
            if self._is_shared:
                self._idle.append(root)
        try:
            yield root
        except _ANSWERS:
            self._give_back(root)
            raise
        self._give_back(root)

    def _give_back(self, root: FsspecRoot) -> None:
        if not self._is_shared:
            self._idle.append(root)
