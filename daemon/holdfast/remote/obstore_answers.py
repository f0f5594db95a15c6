"""Infos of objects, from obstore's answers."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from holdfast.errors import ObjectChangedError, ObjectMissingError
from holdfast.remote.contract import ObjectInfo, storable_size_bytes, storable_time_ns

_DIRECTORY_MARK = "hdi-isfolder"
"""The metadata of directories in Azure accounts with a hierarchical namespace, and of those that Hadoop makes in others."""
_STANDARD_ATTRIBUTES = {
    "Cache-Control",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Language",
    "Content-Type",
    "Storage-Class",
}


def info_of(meta: Any) -> ObjectInfo:
    """Return the info in a listing, or of an object without its metadata.

    Some servers know no etag of what other tools have put where they keep their objects. The one that it gets here tells
    versions of other sizes and times apart.
    """
    key, size_bytes, time_ns = meta["path"], meta["size"], _nanoseconds(meta["last_modified"])
    etag = etag_of(meta) or f"{size_bytes:x}-{time_ns:x}"
    return ObjectInfo(key, storable_size_bytes(size_bytes, key), etag, storable_time_ns(time_ns))


def is_of_server(etag: str) -> bool:
    """Say whether the server itself knows the version by this etag, so that it can be the condition of a request."""
    return etag.endswith('"')


def info_with_metadata(result: Any, hyphen: str) -> ObjectInfo:
    """Return the info of an object that was asked for; ``hyphen`` stands for hyphens in the names of metadata.

    Raises ``ObjectMissingError`` if it stands for a directory.
    """
    metadata = {
        name.replace(hyphen, "-"): value for name, value in result.attributes.items() if name not in _STANDARD_ATTRIBUTES
    }
    if metadata.get(_DIRECTORY_MARK) == "true":
        raise ObjectMissingError(f"HEAD {result.meta['path']}: no such object but a directory")
    return replace(info_of(result.meta), metadata=metadata)


def etag_of(answer: Any) -> str:
    """Return the etag with its quotes (RFC 9110, 8.8.3), which Azure's listings leave out."""
    etag: str = answer["e_tag"] or ""
    return f'"{etag}"' if etag and not etag.endswith('"') else etag


def _nanoseconds(moment: datetime) -> int:
    """Return whole seconds, in ns: a HEAD is no more precise, although some stores' listings are."""
    return int(moment.timestamp()) * 10**9


def of_version(info: ObjectInfo, etag: str) -> ObjectInfo:
    """Return ``info``. Raises ``ObjectChangedError`` if its version is not ``etag``: not every server knows If-Match."""
    if etag and info.etag != etag:
        raise ObjectChangedError(f"GET {info.key}: the object is another version by now")
    return info
