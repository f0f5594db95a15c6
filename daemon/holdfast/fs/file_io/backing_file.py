"""Opening the backing file of a node in the tree."""

from __future__ import annotations

import errno
import os

from holdfast.errors import StaleNodeError
from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.system.file_id import file_stat

_CAN_NOT_WRITE = (errno.EPERM, errno.EACCES, errno.ETXTBSY, errno.EROFS)


def open_local(directories: Directories, node: Node, *, writable: bool) -> OpenFile:
    """Open the backing file of a node, for writing too if possible. Raises ``OSError`` and ``StaleNodeError``."""
    if node.parent is None:
        raise StaleNodeError("the file was removed")
    directory_fd = directories.descriptor(node.parent)
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        fd = os.open(node.name, flags | os.O_RDWR, dir_fd=directory_fd)
        can_write = True
    except OSError as problem:
        if writable or problem.errno not in _CAN_NOT_WRITE:
            raise
        fd = os.open(node.name, flags | os.O_RDONLY, dir_fd=directory_fd)
        can_write = False
    stat = file_stat(fd)
    if stat.st_ino != node.backing:
        os.close(fd)
        raise StaleNodeError("another file has this name now")
    return OpenFile(node, fd, stat, can_write)
