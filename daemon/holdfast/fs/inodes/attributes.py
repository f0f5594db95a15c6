"""Attributes of entries without a backing file, in the shape of ``FileStat``."""

from __future__ import annotations

import stat as stat_module
from dataclasses import dataclass, field

from holdfast.fs.inodes.node import Node
from holdfast.store import stamp_of
from holdfast.system.file_id import FileStat
from holdfast.transfer import KnownObject, Ownership

_BLOCK_BYTES = 512
_DISK_BLOCK_BYTES = 4096
_STORE_DIRECTORY_BYTES = 4096  # and in kernel/native/native_replies.c


@dataclass(eq=False, slots=True)
class RemoteStat:
    """Attributes of an entry that exists only in the store, or is shown as one. All times are the mtime."""

    st_ino: int
    st_mode: int
    st_uid: int
    st_gid: int
    st_size: int
    st_mtime_ns: int
    st_nlink: int = 1
    st_rdev: int = 0
    st_blksize: int = 4096
    st_blocks: int = field(init=False)
    st_atime_ns: int = field(init=False)
    st_ctime_ns: int = field(init=False)

    def __post_init__(self) -> None:
        self.st_blocks = -(-self.st_size // _DISK_BLOCK_BYTES) * (_DISK_BLOCK_BYTES // _BLOCK_BYTES)
        self.st_atime_ns = self.st_ctime_ns = self.st_mtime_ns


class NamelessStat:
    """Attributes of an open file that has lost its last name. Its link in ``orphans/`` is not counted."""

    __slots__ = ("_stat",)

    st_nlink = 0

    def __init__(self, stat: FileStat) -> None:
        self._stat = stat

    def __getattr__(self, name: str) -> int:
        return int(getattr(self._stat, name))


Stat = FileStat | RemoteStat | NamelessStat
"""The attributes of an entry, by the names that ``os.stat_result`` has for them."""


def of_object(node: Node, known: KnownObject, ownership: Ownership, above: Stat) -> RemoteStat:
    """Return the attributes of an object that has no file here; ``above`` are those of its directory."""
    uid, gid = ownership.owner(above)
    return RemoteStat(node.id, stat_module.S_IFREG | ownership.file_mode, uid, gid, known.size_bytes, known.modified_ns)


def of_directory(node: Node, ownership: Ownership, above: Stat, time_ns: int) -> RemoteStat:
    """Return the attributes of a directory that only objects imply; ``above`` are those of its parent."""
    uid, gid = ownership.owner(above)
    mode = stat_module.S_IFDIR | ownership.directory_mode
    stat = RemoteStat(node.id, mode, uid, gid, _STORE_DIRECTORY_BYTES, time_ns)
    stat.st_nlink = 2
    return stat


def of_store_directory(stat: FileStat) -> RemoteStat:
    """Return the attributes to show of a store's directory that has a backing directory, with the attributes ``stat``.

    Size and ctime of the backing directory change whenever a copy comes or goes. So the size shown is constant, and the
    ctime is the mtime, which is kept over such changes (``store.keeping_mtime``).
    """
    shown = RemoteStat(stat.st_ino, stat.st_mode, stat.st_uid, stat.st_gid, _STORE_DIRECTORY_BYTES, stat.st_mtime_ns)
    shown.st_atime_ns = stat.st_atime_ns
    shown.st_nlink = stat.st_nlink
    return shown


def of_file(node: Node, stat: FileStat) -> Stat:
    """Return the attributes of a file for a reply: ``stat``, or the store's time if only the open file has that yet."""
    node.mtime_is_told = True
    opened = node.opened
    if opened is None or not opened.mtime_shown_ns or (opened.stamp is not None and stamp_of(stat) != opened.stamp):
        return stat
    shown = RemoteStat(stat.st_ino, stat.st_mode, stat.st_uid, stat.st_gid, stat.st_size, opened.mtime_shown_ns)
    shown.st_nlink, shown.st_blocks, shown.st_atime_ns = stat.st_nlink, stat.st_blocks, stat.st_atime_ns
    return shown
