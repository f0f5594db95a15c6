"""The system calls behind ``file://``: reading an object through a descriptor, writing a staged file, moving it to its key.

All that this module knows of stores is that an object is a regular file with its metadata in an extended attribute, which
anybody may have written who may write the file. Order of a write: data, metadata, fsync, name, fsync of the directories. A
crash leaves a staged file, or the whole object.
"""

from __future__ import annotations

import errno
import json
import os
import stat as stat_module
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import (
    NameNotStorableError,
    ObjectChangedError,
    ObjectExistsError,
    RemoteRefusedError,
    RemoteUnavailableError,
)
from holdfast.remote.contract import ObjectInfo, UploadSource, storable_time_ns
from holdfast.remote.file_directories import directory_below, make_directories, open_below, sync_directories
from holdfast.remote.keys import UNSTORABLE_NAME
from holdfast.remote.life_signs import sign_of_life

ATTRIBUTE = "user.holdfast"

_BUFFER_BYTES = 2**20
_SEND_BYTES = 2**30
_MOST_ATTEMPTS = 100
_LONGEST_TICK_NS = 10 * 10**6
"""The length of a tick with CONFIG_HZ=100, the least that Linux has."""
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}
_OF_STORE = {errno.EROFS, errno.ENOSPC, errno.EDQUOT}
"""The errors that concern the whole store: what fails for one file would fail for any other."""


class Place(NamedTuple):
    """A name in an open directory."""

    directory_fd: int
    name: str


class OpenObject:
    """One version of an object, held open by a descriptor, which is closed with the last reference at the latest."""

    def __init__(self, root_fd: int, key: str) -> None:
        self._fd = -1
        self._fd = open_below(root_fd, key, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        stat = os.fstat(self._fd)
        if not stat_module.S_ISREG(stat.st_mode):
            number = errno.EISDIR if stat_module.S_ISDIR(stat.st_mode) else errno.ENOENT
            raise OSError(number, os.strerror(number), key)
        self.info = info_of(key, stat, _metadata_of(self._fd))

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
                sign_of_life()
                data = os.pread(self._fd, min(_BUFFER_BYTES, end - start), start)
                if not data:
                    raise ObjectChangedError(f"GET {self.info.key}: the object is shorter than it was")
                start += len(data)
                yield data


def info_of(key: str, stat: os.stat_result, metadata: dict[str, str]) -> ObjectInfo:
    """Return the info of the object ``key`` whose file has the attributes ``stat``."""
    etag = f"{stat.st_ino:x}-{stat.st_mtime_ns:x}-{stat.st_size:x}"
    return ObjectInfo(key, stat.st_size, etag, storable_time_ns(stat.st_mtime_ns), metadata)


def _metadata_of(fd: int) -> dict[str, str]:
    """Return an object's metadata; none where another tool has put there something else than names with texts."""
    try:
        found = json.loads(os.getxattr(fd, ATTRIBUTE))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        return {}
    return found


def write_file(place: Place, source: UploadSource, metadata: dict[str, str]) -> os.stat_result:
    """Write a new file and sync it; if the source is a file, the kernel copies it where it may. Raises ``OSError``."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    sign_of_life(source.size_bytes)
    fd = os.open(place.name, flags, 0o666, dir_fd=place.directory_fd)
    try:
        body = source.body(f"PUT {place.name}")
        if isinstance(body, Path):
            with body.open("rb", buffering=0) as file:
                while os.sendfile(fd, file.fileno(), os.lseek(fd, 0, os.SEEK_CUR), _SEND_BYTES):
                    pass
        else:
            for buffer in [body] if isinstance(body, bytes) else body:
                _write_all(fd, buffer)
        if metadata:
            os.setxattr(fd, ATTRIBUTE, json.dumps(metadata).encode())
        _tell_time_precisely(fd)
        sign_of_life(source.size_bytes)
        os.fsync(fd)
        return os.fstat(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while len(view):
        view = view[os.write(fd, view) :]


def _tell_time_precisely(fd: int) -> None:
    """Set the mtime of a file that was just written to the nanosecond: file systems tell the kernel's last tick.

    Within a tick one object may be removed and another be stored that gets its inode number: with the same size they would
    be one version. Where another machine's clock tells the time, as on NFS, it stays that clock's.
    """
    now_ns = time.time_ns()
    if 0 <= now_ns - os.fstat(fd).st_mtime_ns < _LONGEST_TICK_NS:
        with suppress(OSError):  # a file system that has only its own times
            os.utime(fd, ns=(now_ns, now_ns))


def move_to_key(staged: Place, root_fd: int, key: str, *, create_only: bool) -> None:
    """Move a staged file to its name, making directories as needed. Raises ``OSError``: ``FileExistsError`` if taken."""
    directory, _, name = key.rpartition("/")
    above: list[str] = []
    for left in reversed(range(_MOST_ATTEMPTS)):
        sign_of_life()
        try:
            with directory_below(root_fd, directory, readable=True) as directory_fd:
                (_link if create_only else _rename)(staged, Place(directory_fd, name))
                os.fsync(directory_fd)
            break
        except FileNotFoundError:  # a directory is missing, or was pruned since the last attempt
            if left == 0:
                raise
        with suppress(FileNotFoundError):
            above += make_directories(root_fd, directory)
    sync_directories(root_fd, above)


def _rename(staged: Place, target: Place) -> None:
    os.rename(staged.name, target.name, src_dir_fd=staged.directory_fd, dst_dir_fd=target.directory_fd)


def _link(staged: Place, target: Place) -> None:
    try:
        link(staged, target)
    except FileExistsError:
        if stat_module.S_ISDIR(_stat(target).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target.name) from None
        if _stat(staged).st_nlink == 1:  # else the link is ours: NFS may make it and lose the answer (open(2), O_EXCL)
            raise


def link(source: Place, target: Place) -> None:
    """Make ``target`` another name of the file ``source``. Raises ``OSError``."""
    places = {"src_dir_fd": source.directory_fd, "dst_dir_fd": target.directory_fd}
    os.link(source.name, target.name, **places, follow_symlinks=False)


def _stat(place: Place) -> os.stat_result:
    return os.stat(place.name, dir_fd=place.directory_fd, follow_symlinks=False)


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
            raise NameNotStorableError(text, UNSTORABLE_NAME[problem.errno]) from None
        if problem.errno in _REFUSED:
            raise RemoteRefusedError(text, of_store=problem.errno in _OF_STORE) from None
        raise RemoteUnavailableError(text, of_store=problem.errno in _OF_STORE) from None
