"""What an object's metadata say of the PUT that stored it: by which node, and of which file.

The token is made of the node's store id and the file's inode number and mtime. Two files never share one: not those of two
nodes, for the store's id is in it, and not two that have one inode number after each other, for no two writes have one time.
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
    """Say whether an object, as a HEAD tells of it, was stored by the node ``owner``."""
    return info.metadata.get(_OWNER) == owner
