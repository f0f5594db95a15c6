"""The signature of a PUT in an object's metadata: which node stored it, from which file.

The token is a hash of the node's store id and the file's inode number and mtime. Two files never share one: files of two
nodes differ in the store id, and files that use the same inode number one after the other differ in their mtime.
"""

from __future__ import annotations

import hashlib
import os

from holdfast.remote import ObjectInfo

_TOKEN = "holdfast-put"
_TOKEN_BYTES = 8
_OWNER = "holdfast-node"


def signature(owner: str, stat: os.stat_result) -> dict[str, str]:
    """Return the metadata for a PUT of the file ``stat`` by the node whose local store has the id ``owner``."""
    file = f"{owner} {stat.st_ino} {stat.st_mtime_ns}"
    return {_TOKEN: hashlib.blake2b(file.encode(), digest_size=_TOKEN_BYTES).hexdigest(), _OWNER: owner}


def is_owned(info: ObjectInfo, owner: str) -> bool:
    """Say whether the node ``owner`` stored an object. ``info`` is from a HEAD, which has the metadata."""
    return info.metadata.get(_OWNER) == owner
