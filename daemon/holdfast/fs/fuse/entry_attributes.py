"""Replies to lookups, creations and listings as pyfuse3 takes them."""

from __future__ import annotations

from pyfuse3 import EntryAttributes

from holdfast.fs.inodes.attributes import Stat
from holdfast.fs.inodes.node import Node
from holdfast.fs.namespace.lookup import Found

_FIELDS = (
    *("st_mode", "st_nlink", "st_uid", "st_gid", "st_rdev", "st_size", "st_blksize", "st_blocks"),
    *("st_atime_ns", "st_mtime_ns", "st_ctime_ns"),
)


def entry_of(found: Found) -> EntryAttributes:
    """Return the reply for a node, which gives the kernel one more reference."""
    found.node.lookups += 1
    return attributes_of(found.node, found.stat, found.seconds, found.seconds)


def attributes_of(node: Node, stat: Stat, entry_seconds: float, attribute_seconds: float) -> EntryAttributes:
    """Return the attributes of a node; the kernel may keep its name and them for so long."""
    entry = EntryAttributes()
    entry.st_ino = node.id
    entry.entry_timeout = entry_seconds
    entry.attr_timeout = attribute_seconds
    for name in _FIELDS:
        setattr(entry, name, getattr(stat, name))
    return entry


def directory_entry(inode: int) -> EntryAttributes:
    """Return an entry of a listing of which only the number is known."""
    entry = EntryAttributes()
    entry.st_ino = inode
    entry.st_mode = 0o040755
    return entry
