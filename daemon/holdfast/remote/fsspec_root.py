"""An fsspec file system and the directory in it that is a store's root: paths, and the steps of a write."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from fsspec import AbstractFileSystem

from holdfast.errors import HoldfastError, NameNotStorableError, ObjectExistsError, RemoteUnavailableError
from holdfast.remote.contract import ObjectInfo, UploadSource, storable_size_bytes, storable_time_ns
from holdfast.remote.fsspec_ftp import FtpFiles
from holdfast.remote.keys import PRIVATE, staged_key
from holdfast.remote.life_signs import sign_of_life

DIRECTORY = "directory"
FILE = "file"
_BUFFER_BYTES = 1 << 20
_NOT_SHARED = frozenset({"ftp", "sftp", "ssh"})
"""The schemes of ftplib, and of paramiko, whose SFTPClient is not for several threads."""
_ANSWERS = (HoldfastError, FileNotFoundError, NotADirectoryError, FileExistsError, PermissionError)
"""Errors that say something of a file, so the connection works."""


class FsspecRoot(NamedTuple):
    """A store's root. Keys are relative to ``directory``. Errors of the file system are passed on untranslated."""

    files: Any
    """An ``fsspec.AbstractFileSystem``."""
    directory: str

    def path(self, key: str) -> str:
        """Return the path of ``key`` in the file system."""
        return f"{self.directory}/{key}" if key else self.directory

    def type_of(self, key: str) -> str | None:
        """Return fsspec's type of what is at ``key``, mostly ``file`` or ``directory``; None when nothing is there."""
        try:
            found: str = self.files.info(self.path(key))["type"]
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found

    def entries(self, key: str) -> list[Any]:
        """Return fsspec's details of what is in the directory ``key``. Raises ``NotADirectoryError`` if it is an object."""
        found: list[Any] = self.files.ls(self.path(key), detail=True)
        return found

    def check_free(self, key: str, what: str, *, create_only: bool) -> bool:
        """Say whether there is an object, which may be replaced.

        Raises ``NameNotStorableError`` for a name that is no file, and ``ObjectExistsError`` with ``create_only``.
        """
        there = self.type_of(key)
        if there is not None and there != FILE:
            raise NameNotStorableError(f"{what}: a {there} has this name")
        if there and create_only:
            raise ObjectExistsError(f"{what}: the object exists already")
        return there is not None

    def make_parent(self, key: str) -> None:
        """Make the directories above ``key``. Raises ``NameNotStorableError`` when one of them is an object."""
        parent = key.rpartition("/")[0]
        there = self.type_of(parent)
        if there is None:
            try:
                self.make_directory(parent)
            except OSError:  # each library has its own kind for it
                if not self._is_below_object(parent):
                    raise
                raise NameNotStorableError(f"{key}: there is an object among the directories above") from None
        elif there != DIRECTORY:
            raise NameNotStorableError(f"{key}: {parent} is an object itself")

    def make_directory(self, key: str) -> None:
        """Make the directory ``key`` and those above it, also while others do so.

        To some libraries it is an error, of whatever kind, if one has come since they looked (SFTP: "Failure"). The next try
        then finds one more of them.
        """
        path = self.path(key)
        for others in reversed(range(path.count("/") + 1)):
            try:
                self.files.makedirs(path, exist_ok=True)
            except PermissionError:
                raise
            except OSError:
                if self.type_of(key) == DIRECTORY:
                    return
                if not others or self._is_below_object(key):
                    raise
            else:
                return

    def _is_below_object(self, directory: str) -> bool:
        parts = directory.split("/")
        return any(self.type_of("/".join(parts[:count])) == FILE for count in range(1, len(parts) + 1))

    def put(self, key: str, what: str, stage: Callable[[str], None], *, create_only: bool) -> None:
        """Let ``stage`` store the bytes at a path below ``.holdfast/``, and rename that to ``key``.

        Raises what ``check_free`` and ``make_parent`` raise, and ``RemoteUnavailableError`` if another write got in between.
        """
        self.check_free(key, what, create_only=create_only)
        self.make_parent(key)
        staged = self.path(staged_key())
        try:
            try:
                stage(staged)
            except FileNotFoundError:  # this is the first write to the store
                self.make_directory(PRIVATE)
                stage(staged)
            sign_of_life()
            if self.check_free(key, what, create_only=create_only):
                with suppress(FileNotFoundError):  # not every file system can rename over an existing file
                    self.files.rm_file(self.path(key))
            sign_of_life()
            self._move(staged, key, what, create_only=create_only)
        except BaseException:
            with suppress(Exception):  # this may fail for the same reason, or nothing was staged yet
                self.files.rm_file(staged)
            raise

    def _move(self, staged: str, key: str, what: str, *, create_only: bool) -> None:
        try:
            self.files.mv(staged, self.path(key))
        except FileExistsError:
            if create_only:
                raise
            raise RemoteUnavailableError(f"{what}: another object was stored at the same moment", of_store=False) from None

    def stage(self, source: UploadSource, staged: str) -> None:
        """Store the bytes at the path ``staged``."""
        sign_of_life(source.size_bytes)
        body = source.body(f"PUT {staged}")
        if isinstance(body, Path) or (source.path is not None and isinstance(self.files, FtpFiles)):
            self.files.put_file(str(source.path), staged)
        elif isinstance(body, bytes):
            self.files.pipe_file(staged, body)
        else:
            with self.files.open(staged, "wb") as written:
                for buffer in body:
                    written.write(buffer)

    def stage_copy(self, source: str, size_bytes: int, staged: str) -> None:
        """Store the bytes of the file at the path ``source`` at ``staged``."""
        sign_of_life(size_bytes)
        try:
            self.files.cp_file(source, staged)
        except NotImplementedError:  # SFTP's
            with self.files.open(source, "rb") as read, self.files.open(staged, "wb") as written:
                shutil.copyfileobj(read, written, _BUFFER_BYTES)

    def read(self, key: str, start: int, end: int) -> bytes:
        """Return the bytes ``start`` to ``end`` (exclusive), as far as there are any."""
        data: bytes = self.files.cat_file(self.path(key), start=start, end=end)
        return data

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory, also where there is no ``rmdir`` but fsspec's own, which does nothing."""
        if type(self.files).rmdir is AbstractFileSystem.rmdir:
            self.files.rm(path, recursive=False)
        else:
            self.files.rmdir(path)


def info_of(key: str, detail: Mapping[str, Any]) -> ObjectInfo:
    """Return the info of the object ``key`` from fsspec's ``detail`` of it."""
    time_ns = modified_ns(detail)
    etag = str(detail.get("ETag") or detail.get("etag") or f"{detail['size']:x}-{time_ns:x}")
    etag = etag.encode(errors="backslashreplace").decode()
    return ObjectInfo(key, storable_size_bytes(int(detail["size"]), key), etag, time_ns)


def modified_ns(detail: Mapping[str, Any]) -> int:
    """Return the file's mtime, or 0 if unknown; in whole microseconds, which a float of seconds can represent."""
    return storable_time_ns(_given_ns(detail))


def _given_ns(detail: Mapping[str, Any]) -> int:
    for name in ("mtime", "modified", "LastModified", "last_modified", "created"):
        value = detail.get(name)
        if isinstance(value, datetime):
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            return int(aware.timestamp()) * 10**9 + aware.microsecond * 1000
        if isinstance(value, int | float):
            return round(value * 10**6) * 1000
    return 0


class FsspecConnections:
    """The file systems behind a store, opened by ``connect`` when they are first needed. Safe to use from any thread.

    The clients behind some schemes have one connection and no lock: of two threads, each may take the other's answer for a
    late one and throw it away, and then wait for ever. These get a file system for each request at a time, which later ones
    use again unless an error may have come from a broken connection. The others share one.
    """

    def __init__(self, scheme: str, connect: Callable[[], FsspecRoot], connect_seconds: float) -> None:
        """``connect_seconds``: so long a request waits for others that connect."""
        self._connect_seconds = connect_seconds
        self._is_shared = scheme not in _NOT_SHARED
        self._connect = connect
        self._lock = threading.Lock()
        self._idle: list[FsspecRoot] = []

    @contextmanager
    def one(self) -> Iterator[FsspecRoot]:
        """Yield a file system for a request."""
        if not self._lock.acquire(timeout=self._connect_seconds):
            raise RemoteUnavailableError("another request has not connected yet")
        try:  # also while it connects: servers refuse many who do that at once
            root = self._idle.pop() if self._idle else self._connect()
            if self._is_shared:
                self._idle.append(root)
        finally:
            self._lock.release()
        try:
            yield root
        except _ANSWERS:
            self._give_back(root)
            raise
        self._give_back(root)

    def _give_back(self, root: FsspecRoot) -> None:
        if not self._is_shared:
            self._idle.append(root)
