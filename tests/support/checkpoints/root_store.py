"""A ``Root`` in memory as a remote store: the daemon's own code lists, reads and deletes in it, by the root's clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from holdfast.errors import ObjectChangedError, ObjectExistsError, ObjectMissingError, RemoteError
from holdfast.remote import (
    Capabilities,
    DirectoryInfo,
    DirectoryListing,
    ObjectBody,
    ObjectInfo,
    RemoteStore,
    UploadSource,
)
from tests.support.checkpoints.roots import Root


class RootStore(RemoteStore):
    """``requests`` counts them; the next of ``failures`` is raised by the deletion whose turn it is (None: it succeeds)."""

    url = "test://root"
    capabilities = Capabilities(conditional_create=True, atomic=True, metadata=False, versions=True)

    def __init__(self, root: Root) -> None:
        self.root = root
        self.requests: Counter[str] = Counter()
        self.failures: list[RemoteError | None] = []
        self.private: dict[str, bytes] = {}

    def probe(self) -> None:
        return

    def head(self, key: str) -> ObjectInfo:
        name = key.encode()
        if name not in self.root.files:
            raise ObjectMissingError(key)
        return self._info(name)

    def list_directory(self, prefix: str) -> DirectoryListing:
        raise NotImplementedError

    def list_tree(self, prefix: str) -> Iterator[ObjectInfo]:
        return (info for info in self.list_all(prefix) if isinstance(info, ObjectInfo))

    def list_all(self, prefix: str) -> Iterator[ObjectInfo | DirectoryInfo]:
        self.requests["list"] += 1
        below = f"{prefix}/".encode() if prefix else b""
        for name in list(self.root.files):
            if name.startswith(below):
                yield self._info(name)
        for name, mtime_ns in list(self.root.directories.items()):
            if name.startswith(below):
                yield DirectoryInfo(name.decode(), mtime_ns)

    def read(self, key: str, start: int, end: int, etag: str) -> ObjectBody:
        self.requests["get"] += 1
        info = self.head(key)
        if (etag and etag != info.etag) or end > start >= info.size_bytes:
            raise ObjectChangedError(key)
        return ObjectBody(info, start, iter([self.root.files[key.encode()][0][start:end]]))

    def write(self, key: str, source: UploadSource, metadata: dict[str, str], *, create_only: bool) -> ObjectInfo:
        raise NotImplementedError

    def write_private(self, name: str, data: bytes, *, create_only: bool) -> None:
        if create_only and name in self.private:
            raise ObjectExistsError(name)
        self.private[name] = data

    def now_ns(self) -> int:
        self.requests["clock"] += 1
        return self.root.now_ns

    def copy(self, source: str, target: str) -> ObjectInfo:
        raise NotImplementedError

    def delete(self, keys: Sequence[str]) -> None:
        self.requests["delete"] += 1
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        self.root.delete(key.encode() for key in keys)

    def prune(self, prefix: str) -> None:
        below = prefix.encode() + b"/"
        if not any(name.startswith(below) for name in (*self.root.files, *self.root.directories)):
            self.root.directories.pop(prefix.encode(), None)

    def _info(self, name: bytes) -> ObjectInfo:
        content, mtime_ns = self.root.files[name]
        return ObjectInfo(name.decode(), len(content), f"{mtime_ns:x}-{hash(content):x}", mtime_ns)
