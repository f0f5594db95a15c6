"""Any other scheme through fsspec (hdfs, webhdfs, sftp, smb, …), with what each of them can promise.

fsspec has no conditional creation and no object metadata: a write-once name is checked, then renamed to, which two nodes
can both do at the same moment; and digests are known only to the node that wrote or fetched. ``docs/configuration.md``
says so to users.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import fsspec

from holdfast.errors import (
    ConfigurationError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectMissingError,
    RemoteRefusedError,
    RemoteUnavailableError,
)
from holdfast.remote.contract import (
    Capabilities,
    DirectoryListing,
    ObjectBody,
    ObjectInfo,
    RemoteStore,
    UploadSource,
)

_BUFFER_BYTES = 2**20
_PRIVATE = ".holdfast"


class FsspecStore(RemoteStore):
    """A directory of an fsspec file system."""

    capabilities = Capabilities(conditional_create=False, atomic=False, metadata=False, versions=False)

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        try:
            self._files, root = fsspec.core.url_to_fs(url, **options)
        except (ImportError, ValueError) as problem:
            raise ConfigurationError(f"{url}: {problem}") from None
        self.url = self._files.unstrip_protocol(root)
        self._root = root.rstrip("/")

    def probe(self) -> None:
        with _translated(f"asking {self.url}"):
            self._files.makedirs(f"{self._root}/{_PRIVATE}", exist_ok=True)

    def head(self, key: str) -> ObjectInfo:
        with _translated(f"stat {key}"):
            detail = self._detail(key)
            if detail["type"] != "file":
                raise ObjectMissingError(f"stat {key}: no such object")
            return self._info(detail)

    def list_directory(self, prefix: str) -> DirectoryListing:
        try:
            with _translated(f"list {prefix}/"):
                self._files.invalidate_cache()
                details = self._files.ls(self._path(prefix), detail=True)
        except ObjectMissingError:
            return DirectoryListing({}, frozenset(), exists=not prefix)
        here = self._path(prefix)
        details = [detail for detail in details if detail["name"].rstrip("/") != here]
        files = (self._info(detail) for detail in details if detail["type"] == "file")
        names = (detail["name"].rstrip("/").rsplit("/", 1)[-1] for detail in details if detail["type"] == "directory")
        directories = frozenset(names) - ({_PRIVATE} if not prefix else set())
        return DirectoryListing({info.key.rsplit("/", 1)[-1]: info for info in files}, directories, exists=True)

    def list_tree(self, prefix: str) -> Iterator[ObjectInfo]:
        with _translated(f"list {prefix}/**"):
            self._files.invalidate_cache()
            found = self._files.find(self._path(prefix), detail=True).values()
            infos = [self._info(detail) for detail in found]
        yield from (info for info in infos if not info.key.startswith(f"{_PRIVATE}/"))

    def read(self, key: str, start: int, end: int, etag: str) -> ObjectBody:
        info = self.head(key)
        if etag and info.etag != etag:
            raise ObjectChangedError(f"read {key}: the object is another version by now")
        return ObjectBody(info, start, self._buffers(key, start, min(end, info.size_bytes)))

    def write(self, key: str, source: UploadSource, metadata: dict[str, str], *, create_only: bool) -> ObjectInfo:
        staged = f"{self._root}/{_PRIVATE}/{uuid.uuid4().hex}"
        with _translated(f"write {key}"):
            if create_only and self._files.exists(self._path(key)):
                raise ObjectExistsError(f"write {key}: the object exists already")
            self._files.makedirs(os.path.dirname(self._path(key)), exist_ok=True)
            if source.data is not None:
                self._files.pipe_file(staged, source.data)
            else:
                self._files.put_file(str(source.path), staged)
            if self._files.exists(self._path(key)):
                self._files.rm_file(self._path(key))
            self._files.mv(staged, self._path(key))
        return self.head(key)

    def copy(self, source: str, target: str) -> ObjectInfo:
        with _translated(f"copy {source} to {target}"):
            self._files.makedirs(os.path.dirname(self._path(target)), exist_ok=True)
            self._files.cp_file(self._path(source), self._path(target))
        return self.head(target)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            try:
                with _translated(f"delete {key}"):
                    self._files.rm_file(self._path(key))
            except ObjectMissingError:
                continue

    def prune(self, prefix: str) -> None:
        path = self._path(prefix)
        with _translated(f"removing the directory {prefix}"):
            self._files.invalidate_cache()
            if self._files.isdir(path) and not self._files.ls(path, detail=False):
                self._files.rmdir(path)

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root

    def _detail(self, key: str) -> dict[str, Any]:
        self._files.invalidate_cache()
        detail: dict[str, Any] = self._files.info(self._path(key))
        return detail

    def _info(self, detail: dict[str, Any]) -> ObjectInfo:
        key = detail["name"][len(self._root) :].lstrip("/")
        modified_ns = _nanoseconds(detail)
        etag = str(detail.get("ETag") or detail.get("etag") or f"{detail['size']:x}-{modified_ns:x}")
        return ObjectInfo(key, int(detail["size"]), etag, modified_ns)

    def _buffers(self, key: str, start: int, end: int) -> Iterator[bytes]:
        with _translated(f"read {key}"), self._files.open(self._path(key), "rb") as file:
            file.seek(start)
            while start < end:
                data = file.read(min(_BUFFER_BYTES, end - start))
                if not data:
                    raise ObjectChangedError(f"read {key}: the object is shorter than it was")
                start += len(data)
                yield data


def _nanoseconds(detail: dict[str, Any]) -> int:
    for name in ("mtime", "modified", "LastModified", "last_modified", "modificationTime", "created"):
        value = detail.get(name)
        if isinstance(value, datetime):
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            return int(aware.timestamp()) * 10**9 + aware.microsecond * 1000
        if isinstance(value, int | float):
            return int(value) * 10**6 if name == "modificationTime" else int(value * 10**6) * 1000
    return 0


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise ObjectMissingError(f"{what}: no such object") from None
    except FileExistsError:
        raise ObjectExistsError(f"{what}: the object exists already") from None
    except PermissionError as problem:
        raise RemoteRefusedError(f"{what}: the store refuses: {problem}") from None
    except (OSError, RuntimeError) as problem:
        raise RemoteUnavailableError(f"{what}: {problem}") from None
