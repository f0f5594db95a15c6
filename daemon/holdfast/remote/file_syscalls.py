"""The system calls behind ``file://``: reading an object through a descriptor, writing a staged file, moving it to its key.

All that this module knows of stores is that an object is a regular file with its metadata in an extended attribute. Order
of a write: data, metadata, fsync, name, fsync of the directories. A crash leaves a staged file, or the whole object.
"""

from __future__ import annotations

import errno
import json
import os
import stat as stat_module
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from holdfast.errors import (
    NameNotStorableError,
    ObjectChangedError,
    ObjectExistsError,
    RemoteRefusedError,
    RemoteUnavailableError,
)
from holdfast.remote.contract import ObjectInfo, UploadSource
from holdfast.remote.keys import UNSTORABLE_NAME

ATTRIBUTE = "user.holdfast"

_BUFFER_BYTES = 2**20
_SEND_BYTES = 2**30
_MOST_ATTEMPTS = 100
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}


class OpenObject:
    """One version of an object, held open by a descriptor, which is closed with the last reference at the latest."""

    def __init__(self, path: str, key: str) -> None:
        self._fd = -1
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        stat = os.fstat(self._fd)
        if not stat_module.S_ISREG(stat.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        try:
            metadata = json.loads(os.getxattr(self._fd, ATTRIBUTE))
        except (OSError, ValueError):  # put there by another tool
            metadata = {}
        self.info = info_of(key, stat, metadata)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the file now."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def buffers(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from ``start`` to ``end``."""
        with translated_errors(f"GET {self.info.key}"):
            while start < end:
                data = os.pread(self._fd, min(_BUFFER_BYTES, end - start), start)
                if not data:
                    raise ObjectChangedError(f"GET {self.info.key}: the object is shorter than it was")
                start += len(data)
                yield data


def info_of(key: str, stat: os.stat_result, metadata: dict[str, str]) -> ObjectInfo:
    """Return the info of the object ``key`` whose file has the attributes ``stat``."""
    etag = f"{stat.st_ino:x}-{stat.st_mtime_ns:x}-{stat.st_size:x}"
    return ObjectInfo(key, stat.st_size, etag, stat.st_mtime_ns, metadata)


def write_file(path: str, source: UploadSource, metadata: dict[str, str]) -> os.stat_result:
    """Write a new file and sync it; if the source is a file, the kernel copies it. Raises ``OSError``."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        if source.path is not None:
            with source.path.open("rb", buffering=0) as file:
                while os.sendfile(fd, file.fileno(), os.lseek(fd, 0, os.SEEK_CUR), _SEND_BYTES):
                    pass
        else:
            view = memoryview(source.data or b"")
            while len(view):
                view = view[os.write(fd, view) :]
        if metadata:
            os.setxattr(fd, ATTRIBUTE, json.dumps(metadata).encode())
        os.fsync(fd)
        return os.fstat(fd)
    finally:
        os.close(fd)


def move_to_key(staged: str, target: str, *, create_only: bool) -> None:
    """Move a staged file to its name, making directories as needed. Raises ``OSError``: ``FileExistsError`` if taken."""
    name = _link if create_only else os.rename
    changed = [os.path.dirname(target)]
    for left in reversed(range(_MOST_ATTEMPTS)):
        try:
            name(staged, target)
            break
        except FileNotFoundError:  # a directory is missing, or was pruned since the last attempt
            if left == 0:
                raise
        with suppress(FileNotFoundError):
            changed = _make_directories(changed[0])
    sync(changed)


def _make_directories(path: str) -> list[str]:
    """Make the directory ``path``; return the directories that must be synced once a name has been added to it."""
    changed = [path]
    while not os.path.isdir(changed[-1]):
        changed.append(os.path.dirname(changed[-1]))
    try:
        os.makedirs(path, exist_ok=True)
    except FileExistsError:
        if any(os.path.lexists(directory) and not os.path.isdir(directory) for directory in changed):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
        raise FileNotFoundError(
            errno.ENOENT, os.strerror(errno.ENOENT), path
        ) from None  # another process made and pruned it
    return changed


def _link(staged: str, target: str) -> None:
    try:
        os.link(staged, target)
    except FileExistsError:
        if os.path.isdir(target):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target) from None
        if os.stat(staged).st_nlink == 1:  # else the link is ours: NFS may make it and lose the answer (open(2), O_EXCL)
            raise


def sync(directories: Iterable[str]) -> None:
    """Make the names in ``directories`` durable. Raises ``OSError``."""
    for directory in directories:
        with suppress(FileNotFoundError):  # pruned meanwhile, so it was empty
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


@contextmanager
def translated_errors(what: str) -> Iterator[None]:
    """Turn ``OSError`` inside the block into ``HoldfastError``; ``what`` names the request in their messages."""
    try:
        yield
    except FileExistsError:
        raise ObjectExistsError(f"{what}: the object exists already") from None
    except OSError as problem:
        text = f"{what}: {problem.strerror}"
        if problem.errno in UNSTORABLE_NAME:
            raise NameNotStorableError(text) from None
        if problem.errno in _REFUSED:
            raise RemoteRefusedError(text) from None
        raise RemoteUnavailableError(text) from None
