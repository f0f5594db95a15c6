"""A local or shared directory as a store (``file://``): obstore's local store, and what it leaves out.

obstore keeps no metadata here and does not sync. So an object is written under ``.holdfast/``, gets its metadata as an
extended attribute, is synced, and is then renamed or, for a conditional creation, hard-linked to its name: all or nothing,
on this machine and on an NFS mount alike.
"""

from __future__ import annotations

import errno
import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import obstore
from obstore.store import LocalStore

from holdfast.errors import ObjectChangedError, RemoteRefusedError
from holdfast.remote.contract import DirectoryListing, ObjectBody, ObjectInfo, UploadSource
from holdfast.remote.objects import ObstoreStore
from holdfast.remote.translation import translated

_PRIVATE = ".holdfast"
_ATTRIBUTE = "user.holdfast"


class DirectoryStore(ObstoreStore):
    """Objects as files below ``root``. Deleting an object leaves its directories; ``prune`` removes them."""

    def __init__(self, root: Path) -> None:
        try:
            (root / _PRIVATE).mkdir(parents=True, exist_ok=True)
            probe = root / _PRIVATE / f"probe-{uuid.uuid4().hex}"
            probe.touch()
            os.setxattr(probe, _ATTRIBUTE, b"{}")
            probe.unlink()
        except OSError as problem:
            raise RemoteRefusedError(
                f"the directory {root} can't be a remote store: {problem.strerror}; "
                "it must be writable, on a file system with extended attributes"
            ) from None
        self._root = root
        super().__init__(f"file://{root}", LocalStore(root))

    def head(self, key: str) -> ObjectInfo:
        return self._with_metadata(super().head(key))

    def list_directory(self, prefix: str) -> DirectoryListing:
        if prefix and not (self._root / prefix).is_dir():
            return DirectoryListing({}, frozenset(), exists=False)
        listing = super().list_directory(prefix)
        directories = listing.directories - {_PRIVATE} if not prefix else listing.directories
        return DirectoryListing(listing.objects, directories, exists=True)

    def list_tree(self, prefix: str) -> Iterator[ObjectInfo]:
        private = f"{_PRIVATE}/"
        yield from (info for info in super().list_tree(prefix) if not info.key.startswith(private))

    def read(self, key: str, start: int, end: int, etag: str) -> ObjectBody:
        body = super().read(key, start, end, etag)
        info = self._with_metadata(body.info)
        if super().head(key).etag != info.etag:
            raise ObjectChangedError(f"GET {key}: replaced while it was opened")
        return ObjectBody(info, body.start, body.buffers)

    def write(self, key: str, source: UploadSource, metadata: dict[str, str], *, create_only: bool) -> ObjectInfo:
        staged = f"{_PRIVATE}/{uuid.uuid4().hex}"
        file = self._root / staged
        try:
            super().write(staged, source, {}, create_only=False)
            with translated(f"PUT {key}"):
                self._seal(file, metadata)
                obstore.rename(self._store, staged, key, overwrite=not create_only)
                _sync(self._root / os.path.dirname(key))
        finally:
            file.unlink(missing_ok=True)
        return replace(super().head(key), metadata=metadata)

    def copy(self, source: str, target: str) -> ObjectInfo:
        staged = f"{_PRIVATE}/{uuid.uuid4().hex}"
        info = self.head(source)
        with translated(f"COPY {source} to {target}"):
            obstore.copy(self._store, source, staged)
            self._seal(self._root / staged, info.metadata)
            obstore.rename(self._store, staged, target)
            _sync(self._root / os.path.dirname(target))
        return self.head(target)

    def prune(self, prefix: str) -> None:
        try:
            (self._root / prefix).rmdir()
        except OSError as problem:
            if problem.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise RemoteRefusedError(f"removing the directory {prefix}: {problem.strerror}") from None

    def _seal(self, file: Path, metadata: dict[str, str]) -> None:
        if metadata:
            os.setxattr(file, _ATTRIBUTE, json.dumps(metadata).encode())
        _sync(file)

    def _with_metadata(self, info: ObjectInfo) -> ObjectInfo:
        try:
            metadata = json.loads(os.getxattr(self._root / info.key, _ATTRIBUTE))
        except (OSError, ValueError):
            metadata = {}
        return replace(info, metadata=metadata)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
