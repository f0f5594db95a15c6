"""Descriptors of files that are in the tree: opened, made writable, and what forbids that."""

from __future__ import annotations

import errno
import os

from holdfast.errors import StaleNodeError, WriteOnceError
from holdfast.fs.inodes.core import Core
from holdfast.fs.inodes.nodes import Node
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.index import EntryState
from holdfast.zones import NameKind


def open_local(core: Core, node: Node, writable: bool) -> OpenFile:
    """Open the file of a node that has one; for writing too, if that can be. Raises ``OSError``."""
    if node.parent is None:
        raise StaleNodeError("the file was removed")
    directory_fd = core.directories.descriptor(node.parent)
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        fd = os.open(node.name, flags | os.O_RDWR, dir_fd=directory_fd)
        can_write = True
    except (PermissionError, OSError) as problem:
        if writable or problem.errno not in (errno.EPERM, errno.EACCES, errno.ETXTBSY, errno.EROFS):
            raise
        fd = os.open(node.name, flags | os.O_RDONLY, dir_fd=directory_fd)
        can_write = False
    return OpenFile(node, fd, os.fstat(fd), can_write)


def upgrade(opened: OpenFile) -> None:
    """Let a file that is open for reading be written too, by the same descriptor. Raises ``OSError``."""
    fd = os.open(f"/proc/self/fd/{opened.fd}", os.O_RDWR | os.O_CLOEXEC)
    os.dup2(fd, opened.fd, inheritable=False)
    os.close(fd)
    opened.writable = True


def check_writable(core: Core, node: Node) -> None:
    """Make sure that no name of the node is one that is written once and stored already. Raises ``WriteOnceError``."""
    for parent, name in node.names():
        place = core.directories.place(parent)
        if not place.zone.sends or core.kind_of(place, name) is not NameKind.WRITE_ONCE:
            continue
        entry = core.index.entries.get(node.backing) if node.backing else None
        if entry is None or entry.state is EntryState.CLEAN or entry.digest:  # with a digest: it was sent, and is open
            raise WriteOnceError(f"{os.fsdecode(place.child_path(name))} exists already and is written once only")


def is_dirty(core: Core, node: Node) -> bool:
    """Say whether the node's bytes are to be sent, because sending them has failed or has not begun."""
    entry = core.index.entries.get(node.backing) if node.backing else None
    return entry is not None and entry.state is EntryState.DIRTY and not entry.digest
