"""One file system of fsspec's, and the directory in it that is a store: the steps that a write is made of."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from holdfast.errors import NameNotStorableError, ObjectExistsError
from holdfast.remote.contract import ObjectInfo, UploadSource
from holdfast.remote.keys import PRIVATE

DIRECTORY = "directory"
FILE = "file"


class FsspecRoot(NamedTuple):
    """Keys are relative to ``root``. What the file system raises comes as it is."""

    files: Any
    """An ``fsspec.AbstractFileSystem``."""
    root: str

    def path(self, key: str) -> str:
        """Return the path of ``key`` in the file system."""
        return f"{self.root}/{key}" if key else self.root

    def type_of(self, key: str) -> str | None:
        """Return ``file``, ``directory`` or another word; None when nothing is there."""
        try:
            found: str = self.files.info(self.path(key))["type"]
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found

    def check_free(self, key: str, what: str, *, create_only: bool) -> bool:
        """Return whether there is an object that may be replaced. Raises when ``key`` can't be written."""
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
                self.files.makedirs(self.path(parent), exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise NameNotStorableError(f"{key}: there is an object among the directories above") from None
        elif there != DIRECTORY:
            raise NameNotStorableError(f"{key}: {parent} is an object itself")

    def stage(self, source: UploadSource, staged: str) -> None:
        """Store the bytes at the path ``staged``, below ``.holdfast/``."""

        def send() -> None:
            if source.path is not None:
                self.files.put_file(str(source.path), staged)
            else:
                self.files.pipe_file(staged, source.data or b"")

        try:
            send()
        except FileNotFoundError:  # the first in this store
            self.files.makedirs(self.path(PRIVATE), exist_ok=True)
            send()


def info_of(key: str, detail: Mapping[str, Any]) -> ObjectInfo:
    """Return what fsspec's ``detail`` tells of the object ``key``."""
    time_ns = modified_ns(detail)
    etag = str(detail.get("ETag") or detail.get("etag") or f"{detail['size']:x}-{time_ns:x}")
    return ObjectInfo(key, int(detail["size"]), etag, time_ns)


def modified_ns(detail: Mapping[str, Any]) -> int:
    """Return when the file was changed, 0 if nothing tells; in whole microseconds, which a float of seconds can hold."""
    for name in ("mtime", "modified", "LastModified", "last_modified", "modificationTime", "created"):
        value = detail.get(name)
        if isinstance(value, datetime):
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            return int(aware.timestamp()) * 10**9 + aware.microsecond * 1000
        if isinstance(value, int | float):
            return int(value) * 10**6 if name == "modificationTime" else round(value * 10**6) * 1000
    return 0
