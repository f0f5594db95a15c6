"""Uploading a file as an object, with its digest, so that a lost answer never turns success into failure.

A PUT whose answer was lost may have been carried out, whether this daemon sent it or the one before. To repeat an
unconditional PUT of the same bytes does no harm; a repeated conditional one would find its own object and take it for
another writer's. So every PUT carries a signature in the metadata, and if the name is taken, the object's signature and
digest are compared.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio

from holdfast.digest import Fingerprint, fingerprint_of_buffer, fingerprint_of_file, is_hollow
from holdfast.errors import HollowFileError, ObjectChangedError, ObjectExistsError
from holdfast.remote import ObjectInfo, UploadSource
from holdfast.store import Stamp, check_nothing_lost, stamp_of
from holdfast.system.file_reading import FileReader
from holdfast.telemetry import Counters, waiting_for
from holdfast.transfer.conditional_delete import OWNER
from holdfast.transfer.remotes import Remote

_TOKEN = "holdfast-put"
_TOKEN_BYTES = 8
_SMALL_BYTES = 64 * 1024
_MOST_TRIES = 3
_T = TypeVar("_T")
_THREADS_PER_USER = 4


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload that is under way."""

    store: str
    key: str
    size_bytes: int


class Uploader:
    """Uploads files. ``single_put_limit_bytes`` is the largest file that is read into memory and sent in one request.

    ``owner`` is the local store's id, with which this node signs its objects. ``check`` raises ``LostBytesError`` if the
    disk has refused bytes of a file: those that were read may be others then.
    """

    def __init__(
        self,
        single_put_limit_bytes: int,
        owner: str,
        hashing: HashingThreads,
        counters: Counters,
        check: Callable[[int], None] = check_nothing_lost,
    ) -> None:
        self._single_put_limit_bytes = single_put_limit_bytes
        self._owner = owner
        self._hashing = hashing
        self._counters = counters
        self._check = check
        self._under_way: dict[int, Upload] = {}

    def uploads(self) -> list[Upload]:
        """Return all uploads under way, oldest first."""
        return list(self._under_way.values())

    async def send(
        self, fd: int, remote: Remote, key: str, *, create_only: bool, replaces: str = ""
    ) -> tuple[ObjectInfo, Fingerprint]:
        """Store the bytes behind ``fd`` as ``key``; return the object and the fingerprint stored with it.

        If the file is written to meanwhile, the object may differ from its digest: compare mtime and size before and after,
        and send again. With ``create_only`` an existing object is replaced only if it is the version ``replaces``; for any
        other this raises ``ObjectExistsError``. Raises ``RemoteError``, ``LostBytesError``, and ``HollowFileError`` as
        ``check_can_be_sent``.
        """
        for left in reversed(range(_MOST_TRIES)):
            try:
                return await self._send(fd, remote, key, create_only=create_only, replaces=replaces, is_last=left == 0)
            except ObjectChangedError:  # only of a large file that is created
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    async def _send(
        self, fd: int, remote: Remote, key: str, *, create_only: bool, replaces: str, is_last: bool
    ) -> tuple[ObjectInfo, Fingerprint]:
        """Send the file as it is now. On the ``is_last`` try it may be written to meanwhile."""
        stat = os.fstat(fd)
        _check_not_hollow(stat)
        signed = _signature(self._owner, stat)
        prepared = self._prepare_at_once(fd, stat.st_size)
        if prepared is None:
            prepared = await self._hashing.run(partial(self._prepare, may_change=is_last), fd)
        source, fingerprint = prepared
        self._check(fd)
        metadata = {**fingerprint.metadata(), **signed}
        if create_only and replaces:
            put = partial(remote.access.replace_once, key, replaces, source, metadata)
        else:
            put = partial(remote.access.write_once, key, source, metadata, create_only)
        upload = Upload(remote.access.name, key, source.size_bytes)
        self._under_way[id(upload)] = upload
        try:
            info = await remote.access.retry().run(put)
        except ObjectExistsError:
            if not remote.access.store.capabilities.metadata:
                raise
            info = await remote.access.head(key)
            if info.metadata != metadata:
                raise
        finally:
            del self._under_way[id(upload)]
        if source.path is not None:
            self._check(fd)  # it was read again; where nothing asks ``is_unchanged``, the store may have got other bytes
        self._counters.objects_uploaded += 1
        self._counters.bytes_uploaded += source.size_bytes
        return info, fingerprint

    def _prepare_at_once(self, fd: int, size_bytes: int) -> tuple[UploadSource, Fingerprint] | None:
        """Read and hash a small file from the page cache, where a file just written is; None for any other file.

        This takes microseconds, far less than a switch to a thread.
        """
        if size_bytes > min(_SMALL_BYTES, self._single_put_limit_bytes):
            return None
        buffer = bytearray(size_bytes + 1)
        try:
            count = os.preadv(fd, [buffer], 0, os.RWF_NOWAIT)
        except OSError as problem:
            if problem.errno not in (errno.EAGAIN, errno.EOPNOTSUPP):
                raise
            return None
        if count != size_bytes:
            return None
        data = bytes(buffer[:count])
        return UploadSource(size_bytes, data=data), fingerprint_of_buffer(data)

    def _prepare(self, fd: int, *, may_change: bool) -> tuple[UploadSource, Fingerprint]:
        before = stamp_of(os.fstat(fd))
        size_bytes = os.fstat(fd).st_size
        if size_bytes > self._single_put_limit_bytes:
            path = Path(f"/proc/self/fd/{fd}")
            source = UploadSource(size_bytes, path=path, is_unchanged=partial(self._is_unchanged, fd, before, may_change))
            return source, fingerprint_of_file(fd)
        data = _read_all(fd, size_bytes)
        return UploadSource(len(data), data=data), fingerprint_of_buffer(data)

    def _is_unchanged(self, fd: int, stamp: Stamp, may_change: bool) -> bool:
        self._check(fd)
        return may_change or stamp_of(os.fstat(fd)) == stamp


def check_can_be_sent(fd: int) -> None:
    """Raise ``HollowFileError`` for a file that is too large for what was written to it (``holdfast.digest.is_hollow``)."""
    _check_not_hollow(os.fstat(fd))


def _check_not_hollow(stat: os.stat_result) -> None:
    if is_hollow(stat):
        raise HollowFileError("files with more than 64 GiB that were never written are not sent to a store")


def _signature(owner: str, stat: os.stat_result) -> dict[str, str]:
    """Return the metadata for a PUT of the file ``stat`` by the node whose local store has the id ``owner``.

    They tell which node has stored an object, from which file. Two files never share a token: files of two nodes differ in
    the store id, and files that use the same inode number one after the other differ in their mtime.
    """
    file = f"{owner} {stat.st_ino} {stat.st_mtime_ns}"
    return {_TOKEN: hashlib.blake2b(file.encode(), digest_size=_TOKEN_BYTES).hexdigest(), OWNER: owner}


def _read_all(fd: int, size_bytes: int) -> bytes:
    pieces = []
    reader = FileReader(fd)
    offset = 0
    while piece := reader.read(size_bytes - offset + 1, offset):
        pieces.append(piece)
        offset += len(piece)
    return b"".join(pieces)


class HashingThreads:
    """Runs functions that read and hash a whole file, a few at once for the files of each user.

    One user's large files then keep nobody else's waiting, and none of the threads that everything else shares.
    """

    def __init__(self) -> None:
        self._of_user: dict[int, trio.CapacityLimiter] = {}

    async def run(self, function: Callable[[int], _T], fd: int) -> _T:
        """Return ``function(fd)``, run in one of the threads for the owner of the file; no more than four run at once.

        Cancellation waits for the function, which may ask for it (``trio.from_thread.check_cancelled``).
        """
        uid = os.fstat(fd).st_uid
        limiter = self._of_user.get(uid)
        if limiter is None:
            limiter = self._of_user[uid] = trio.CapacityLimiter(_THREADS_PER_USER)
        try:
            with waiting_for("hash"):
                return await trio.to_thread.run_sync(function, fd, limiter=limiter)
        finally:
            if limiter.borrowed_tokens == 0 and self._of_user.get(uid) is limiter:
                del self._of_user[uid]
