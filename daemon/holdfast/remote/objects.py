"""S3, GCS, Azure and memory through obstore."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import obstore
from obstore.store import ObjectStore

from holdfast.errors import ObjectMissingError
from holdfast.remote.contract import (
    Capabilities,
    DirectoryListing,
    ObjectBody,
    ObjectInfo,
    RemoteStore,
    UploadSource,
)
from holdfast.remote.translation import translated

_BUFFER_BYTES = 2**20
_PART_BYTES = 16 * 2**20
_PARALLEL_PARTS = 4
_PAGE = 1000


class ObstoreStore(RemoteStore):
    """A store behind obstore. Retries are the caller's: obstore's own are off, so that every request is counted once."""

    capabilities = Capabilities(conditional_create=True, atomic=True, metadata=True, versions=True)

    def __init__(self, url: str, store: ObjectStore) -> None:
        self.url = url
        self._store = store

    def probe(self) -> None:
        with translated(f"asking {self.url}"):
            next(iter(obstore.list(self._store, chunk_size=1)), None)

    def head(self, key: str) -> ObjectInfo:
        with translated(f"HEAD {key}"):
            result = obstore.get(self._store, key, options={"head": True})
            return _info(result.meta, dict(result.attributes))

    def list_directory(self, prefix: str) -> DirectoryListing:
        with translated(f"LIST {prefix}/"):
            result = obstore.list_with_delimiter(self._store, prefix or None)
        objects = {meta["path"]: _info(meta) for meta in result["objects"]}
        marker = objects.pop(prefix, None)  # "prefix/", a marker for an empty directory: obstore drops the slash
        skip = len(prefix) + 1 if prefix else 0
        directories = frozenset(path.rstrip("/")[skip:] for path in result["common_prefixes"])
        return DirectoryListing(
            {path[skip:]: info for path, info in objects.items()},
            directories - {""},
            bool(objects or directories or marker or not prefix),
        )

    def list_tree(self, prefix: str) -> Iterator[ObjectInfo]:
        with translated(f"LIST {prefix}/**"):
            for page in obstore.list(self._store, prefix or None, chunk_size=_PAGE):
                yield from (_info(meta) for meta in page if meta["path"] != prefix)

    def read(self, key: str, start: int, end: int, etag: str) -> ObjectBody:
        options: Any = {"range": (start, end)} if end > start else {}
        if etag:
            options["if_match"] = etag
        with translated(f"GET {key}"):
            result = obstore.get(self._store, key, options=options)
            info = _info(result.meta, dict(result.attributes))
        return ObjectBody(info, start, _buffers(result, key))

    def write(self, key: str, source: UploadSource, metadata: dict[str, str], *, create_only: bool) -> ObjectInfo:
        body: Any = source.data if source.data is not None else source.path
        with translated(f"PUT {key}"):
            result = obstore.put(
                self._store,
                key,
                body,
                attributes=dict(metadata) or None,
                mode="create" if create_only else "overwrite",
                use_multipart=source.data is None and not create_only,
                chunk_size=_PART_BYTES,
                max_concurrency=_PARALLEL_PARTS,
            )
        return ObjectInfo(key, source.size_bytes, result["e_tag"] or "", 0, metadata)

    def copy(self, source: str, target: str) -> ObjectInfo:
        with translated(f"COPY {source} to {target}"):
            obstore.copy(self._store, source, target)
        return self.head(target)

    def delete(self, keys: Sequence[str]) -> None:
        try:
            with translated(f"DELETE of {len(keys)} objects"):
                obstore.delete(self._store, list(keys))
        except ObjectMissingError:
            if len(keys) > 1:  # the stores that mind are asked one by one
                for key in keys:
                    self.delete([key])

    def prune(self, prefix: str) -> None:
        return


def _info(meta: Any, metadata: dict[str, str] | None = None) -> ObjectInfo:
    return ObjectInfo(meta["path"], meta["size"], meta["e_tag"] or "", _nanoseconds(meta["last_modified"]), metadata or {})


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp()) * 10**9 + moment.microsecond * 1000


def _buffers(result: Any, key: str) -> Iterator[bytes]:
    with translated(f"GET {key}"):
        yield from result.stream(min_chunk_size=_BUFFER_BYTES)
