"""Attributes of entries without a backing file, in the shape of ``FileStat``."""

from __future__ import annotations

import stat as stat_module
from typing import Protocol

from holdfast.fs.inodes.node import Node
from holdfast.store import stamp_of
from holdfast.system.file_id import FileStat
from holdfast.transfer import KnownObject, Ownership

_BLOCK_BYTES = 512
_DISK_BLOCK_BYTES = 4096
_STORE_DIRECTORY_BYTES = 4096  # and in kernel/native/native_replies.c


class Stat(Protocol):
    """The fields that ``FileStat`` and ``RemoteStat`` share."""

    @property
    def st_ino(self) -> int: ...
    @property
    def st_mode(self) -> int: ...
    @property
    def st_nlink(self) -> int: ...
    @property
    def st_uid(self) -> int: ...
    @property
    def st_gid(self) -> int: ...
    @property
    def st_size(self) -> int: ...
    @property
    def st_blksize(self) -> int: ...
    @property
    def st_blocks(self) -> int: ...
    @property
    def st_rdev(self) -> int: ...
    @property
    def st_atime_ns(self) -> int: ...
    @property
    def st_mtime_ns(self) -> int: ...
    @property
    def st_ctime_ns(self) -> int: ...


class RemoteStat:
    """Attributes of an entry that exists only in the store, or is shown as one. All times are ``time_ns``."""

    __slots__ = (
        "st_atime_ns",
        "st_blksize",
        "st_blocks",
        "st_ctime_ns",
        "st_gid",
        "st_ino",
        "st_mode",
        "st_mtime_ns",
        "st_nlink",
        "st_rdev",
        "st_size",
        "st_uid",
    )

    def __init__(self, inode: int, mode: int, uid: int, gid: int, size_bytes: int, time_ns: int) -> None:
        self.st_ino = inode
        self.st_mode = mode
        self.st_nlink = 1
        self.st_uid = uid
        self.st_gid = gid
        self.st_rdev = 0
        self.st_size = size_bytes
        self.st_blksize = 4096
        self.st_blocks = -(-size_bytes // _DISK_BLOCK_BYTES) * (_DISK_BLOCK_BYTES // _BLOCK_BYTES)
        self.st_atime_ns = self.st_mtime_ns = self.st_ctime_ns = time_ns


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


class NamelessStat:
    """Attributes of an open file that has lost its last name. Its link in ``orphans/`` is not counted."""

    __slots__ = ("_stat",)

    st_nlink = 0

    def __init__(self, stat: FileStat) -> None:
        self._stat = stat

    def __getattr__(self, name: str) -> int:
        return int(getattr(self._stat, name))
