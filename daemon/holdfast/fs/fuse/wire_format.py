"""Bodies of FUSE requests and replies in the wire format, for those answered past pyfuse3.

Source: ``include/uapi/linux/fuse.h`` of Linux 6.9, protocol 7.40. Numbers are in native byte order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from struct import Struct

from holdfast.fs.inodes.attributes import Stat
from holdfast.fs.inodes.node import Node
from holdfast.fs.namespace.attr_ops import Changes
from holdfast.fs.namespace.listing import Bare
from holdfast.kernel import NATIVE_MODULE, OpenFlag

_BodyOfStat = Callable[[int, Stat, float], bytes]
"""A function of a node's id, its attributes and seconds."""
_NS = 1_000_000_000
_LONGEST_NAME = 255
_ENTRY_HEAD = Struct("=QQQQII")
_ATTRIBUTES_BYTES = 88
_DIRECTORY_ENTRY = Struct("=QQII")
_PADDING = [bytes(-length % 8) for length in range(8)]
_FORGOTTEN = Struct("=QQ")

ENTRY_BYTES = _ENTRY_HEAD.size + _ATTRIBUTES_BYTES
"""The size of a ``fuse_entry_out``."""
entry: _BodyOfStat = NATIVE_MODULE.entry
"""Return a ``fuse_entry_out``: for so many seconds the kernel may cache the name and the attributes."""
attributes: _BodyOfStat = NATIVE_MODULE.attributes
"""Return a ``fuse_attr_out``."""
opened: Callable[[int, int, int], bytes] = Struct("=QIi").pack
"""Return a ``fuse_open_out``, of a handle, flags and a backing id (0: none)."""
NODE = Struct("=Q")
"""The first field of LINK (the node), RENAME (the new parent), FLUSH (the handle), and FORGET (lookups)."""
RENAME2 = Struct("=QI4x")
OPEN = Struct("=II")
CREATE = Struct("=IIII")
READ = Struct("=QQI")
FSYNC = Struct("=QI4x")
RELEASE = Struct("=QI4x8x")
GETXATTR = Struct("=I4x")
MKDIR = Struct("=II")
_SETATTR = Struct("=I4x8x8x8xqq8xII4xI4xII4x")
_MODE, _UID, _GID, _ATIME, _MTIME = 1 << 0, 1 << 1, 1 << 2, 1 << 4, 1 << 5  # FATTR_MODE and so on
_CHANGES = _MODE | _UID | _GID | _ATIME | _MTIME
_SAYS_WHERE = 1 << 6 | 1 << 9  # FATTR_FH, FATTR_LOCKOWNER
_FILE_SYSTEM = Struct("=QQQQQIIII24x")


def forgotten(body: bytes) -> Iterator[tuple[int, int]]:
    """Yield node and number of lookups of each item of a BATCH_FORGET."""
    return _FORGOTTEN.iter_unpack(body[8:])


def no_entry(seconds: float) -> bytes:
    """Return a ``fuse_entry_out`` that says that the name does not exist, for that long."""
    whole = int(seconds)
    ns = int((seconds - whole) * _NS)
    return _ENTRY_HEAD.pack(0, 0, whole, 0, ns, 0) + bytes(_ATTRIBUTES_BYTES)


def directory_entry(entry: Bare) -> bytes:
    """Return a ``fuse_dirent``."""
    name, inode, kind, offset = entry
    length = len(name)
    return _DIRECTORY_ENTRY.pack(inode, offset, length, kind) + name + _PADDING[length % 8]


def directory_entries(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the name of each ``fuse_dirent``, and the whole entry."""
    begin = 0
    while begin < len(body):
        name_bytes = _DIRECTORY_ENTRY.unpack_from(body, begin)[2]
        name = begin + _DIRECTORY_ENTRY.size
        end = name + name_bytes + -name_bytes % 8
        yield body[name : name + name_bytes], body[begin:end]
        begin = end


def with_inode(entry: bytes, inode: int) -> bytes:
    """Return the ``fuse_dirent`` with another inode number."""
    return NODE.pack(inode) + entry[NODE.size :]


def file_system(stats: os.statvfs_result) -> bytes:
    """Return a ``fuse_statfs_out``."""
    blocks = (stats.f_blocks, stats.f_bfree, stats.f_bavail, stats.f_files, stats.f_ffree)
    return _FILE_SYSTEM.pack(*blocks, stats.f_bsize, _LONGEST_NAME, stats.f_frsize, 0)


def changes(body: bytes) -> Changes | None:
    """Return the changes of a SETATTR; None if it has others too: a size, the current time, set-id bits."""
    valid, accessed, modified, accessed_ns, modified_ns, mode, uid, gid = _SETATTR.unpack_from(body)
    if valid & ~_CHANGES & ~_SAYS_WHERE or not valid & _CHANGES:
        return None
    return Changes(
        mode=mode if valid & _MODE else None,
        uid=uid if valid & _UID else None,
        gid=gid if valid & _GID else None,
        atime_ns=accessed * _NS + accessed_ns if valid & _ATIME else None,
        mtime_ns=modified * _NS + modified_ns if valid & _MTIME else None,
        are_chosen=True if valid & _MTIME else None,
    )


def listing_flags(node: Node, *, is_ours: bool) -> OpenFlag:
    """Return the flags for an open of a directory. The kernel may cache its listing if only this daemon changes it."""
    kept = OpenFlag.NONE if node.cache_is_stale else OpenFlag.KEEP_CACHE
    node.cache_is_stale = False
    return OpenFlag.CACHE_DIRECTORY | kept if is_ours else OpenFlag.NONE
