"""Telling a stale digest from corrupt bytes, where an object's bytes differ from the digest that is noted with it.

A tool that rewrites an object may keep its metadata, as s3fs does, and a copy of an object onto itself: then the digest is
that of the bytes before. What the store itself has computed over its bytes is better evidence: an ETag that is their MD5, or
another checksum of the whole object. Bytes that changed in the store or on the way fit neither, and stay corrupt.

No checksum vouches for an object that a node may have sent in parts itself: the file may have been written to meanwhile, so
that bytes and note differ until the node has sent it again.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from holdfast.digest import Checksum
from holdfast.remote import ObjectInfo, upload_part_bytes
from holdfast.transfer.store_requests import RemoteAccess

_OF_PARTS = re.compile(r'"[0-9a-f]{32}-([0-9]{1,5})"')  # S3 takes 10,000


async def is_stale(access: RemoteAccess, info: ObjectInfo, fits: Callable[[Checksum], Awaitable[bool]]) -> bool:
    """Say whether the store vouches for bytes that differ from the note in ``info``; ``fits`` compares them."""
    md5 = Checksum.of_etag(info.etag)
    if md5 is not None and await fits(md5):
        return True
    if _may_be_own(info):
        return False
    checksum = await access.checksum(info)
    return checksum is not None and await fits(checksum)


def may_be_stale(access: RemoteAccess, info: ObjectInfo) -> bool:
    """Say whether ``is_stale`` may come to say yes, so that it is worthwhile to fetch the rest."""
    return Checksum.of_etag(info.etag) is not None or (access.store.has_checksums and not _may_be_own(info))


def _may_be_own(info: ObjectInfo) -> bool:
    """Say whether the object has as many parts as if a node had sent it."""
    found = _OF_PARTS.fullmatch(info.etag)
    return found is not None and int(found[1]) == -(-info.size_bytes // upload_part_bytes(info.size_bytes))
