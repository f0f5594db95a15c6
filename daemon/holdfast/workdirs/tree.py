"""The directories themselves: skeleton, lease file, emptying and removal, beneath a kernel that knows them already."""

from __future__ import annotations

import os
import stat as stat_module

import trio

from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.nodes import Node
from holdfast.zones import SKELETON, VOLATILE, WorkdirName, ZoneKind

LEASE_FILE = b".lease"
_MAKE_LEASE = os.O_CREAT | os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Not waiting: the owner of the directory may have put a FIFO there."""


class WorkdirTree:
    """Changes in the backing tree that no request of the kernel's stands behind; ``tell_kernel`` comes after them."""

    def __init__(self, base: Foundation) -> None:
        store = base.parts.store
        self._tree = store.tree
        self._trash = store.trash
        self._marks = base.parts.index.marks
        self._zones = base.parts.zones
        self._nodes = base.nodes
        self._copies = base.copies
        self._invalidation = base.invalidation
        self._is_root = os.geteuid() == 0
        self._untold: list[tuple[int, bytes]] = []
        self._half_thrown: list[Node] = []
        """Files with a name in the trash and another one in the tree."""

    async def tell_kernel(self) -> None:
        """Return when the kernel believes nothing any more that the changes until now have made wrong.

        Raises ``OSError``; what it has not been told is left for the next call.
        """
        untold, self._untold = self._untold, []
        try:
            while untold:
                await trio.to_thread.run_sync(self._invalidation.invalidate_now, *untold[0])
                del untold[0]
        finally:
            self._untold += untold

    async def empty_trash(self) -> None:
        """Delete what was thrown away; when this returns the kernel knows that linked files have a name less.

        Raises ``OSError``; the next call goes on.
        """
        count = len(self._half_thrown)
        await trio.to_thread.run_sync(self._trash.empty)
        linked, self._half_thrown = self._half_thrown[:count], self._half_thrown[count:]
        self._untold += [(parent.id, name) for node in linked for parent, name in node.names()]
        await self.tell_kernel()

    def prepare(self, path: bytes, owner: tuple[int, int]) -> None:
        """Create the directory at ``path`` and its skeleton where missing; empty what is volatile. Raises ``OSError``.

        What is new belongs to ``owner`` (uid, gid) if the daemon runs as root; what was there keeps its owner.
        """
        base, _, name = path.rpartition(b"/")
        base_fd = self._tree.open_directory(base)
        try:
            if self._make(base_fd, base, name, owner):
                owner = self._owner_of(base_fd, name, owner)
            fd = self._tree.open_child(base_fd, name)
        finally:
            os.close(base_fd)
        try:
            for child in SKELETON:
                if child in VOLATILE:
                    self._empty(fd, path, child)
                self._make(fd, path, child, owner)
            os.close(os.open(LEASE_FILE, _MAKE_LEASE, 0o444, dir_fd=fd))
            self._tell(path, LEASE_FILE)
        finally:
            os.close(fd)
        self._marks.uncover_below(path)

    def remove(self, path: bytes) -> None:
        """Take the directory at ``path`` away, with all that is in it."""
        base, _, name = path.rpartition(b"/")
        self._tell(base, name)  # noted before, or an error in between would leave the kernel with the name
        base_fd = self._tree.open_directory(base)
        try:
            self._throw(base_fd, base, name)
        finally:
            os.close(base_fd)
        self._marks.uncover_below(path)

    def drop(self, path: bytes) -> None:
        """Remove this node's file at ``path``; who has it open keeps it, and the store shines through, if it has it."""
        parent, _, name = path.rpartition(b"/")
        self._copies.drop(path, self._tree.stat(path).st_ino, same_object=True)
        self._tell(parent, name)

    def exists(self, path: bytes) -> bool:
        """Say whether there is a directory at ``path``."""
        try:
            return stat_module.S_ISDIR(self._tree.stat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def existing(self) -> list[bytes]:
        """Return the paths of all directories in the bases whose names are working directories'."""
        found = []
        for base in self._zones.top_names:
            place = self._zones.child(self._zones.root, base)
            if place is None or place.zone.kind is not ZoneKind.BASE:
                continue
            fd = self._tree.open_directory(base)
            try:
                names = os.listdir(f"/proc/self/fd/{fd}".encode())
            finally:
                os.close(fd)
            found += [place.child_path(name) for name in names if WorkdirName.parse(name)]
        return [path for path in found if self.exists(path)]

    def lease_inode(self, path: bytes) -> int:
        """Return the inode number of the lease file of the directory at ``path``; 0 when there is none."""
        return self._tree.inode(path + b"/" + LEASE_FILE)

    def _make(self, parent_fd: int, parent: bytes, name: bytes, owner: tuple[int, int]) -> bool:
        """Create a directory; False when it is there already."""
        try:
            os.mkdir(name, 0o755, dir_fd=parent_fd)
        except FileExistsError:
            return False
        if self._is_root:
            os.chown(name, *owner, dir_fd=parent_fd, follow_symlinks=False)
        self._tell(parent, name)
        return True

    def _owner_of(self, parent_fd: int, name: bytes, owner: tuple[int, int]) -> tuple[int, int]:
        stat = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
        return (stat.st_uid, stat.st_gid) if owner == (-1, -1) else owner

    def _empty(self, parent_fd: int, parent: bytes, name: bytes) -> None:
        try:
            fd = self._tree.open_child(parent_fd, name)
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            stat = os.fstat(fd)
            is_empty = not os.listdir(f"/proc/self/fd/{fd}".encode())
        finally:
            os.close(fd)
        if is_empty:
            return
        self._throw(parent_fd, parent, name)
        os.mkdir(name, 0o700, dir_fd=parent_fd)
        if self._is_root:
            os.chown(name, stat.st_uid, stat.st_gid, dir_fd=parent_fd, follow_symlinks=False)
        os.chmod(name, stat_module.S_IMODE(stat.st_mode), dir_fd=parent_fd)
        self._tell(parent, name)

    def _throw(self, parent_fd: int, parent: bytes, name: bytes) -> None:
        inode = os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_ino
        self._trash.throw(parent_fd, name)
        self._half_thrown += self._invalidation.directory_thrown(parent + b"/" + name, inode)

    def _tell(self, parent: bytes, name: bytes) -> None:
        """Note that the kernel must forget what it believes of a name: that it was not there, or led elsewhere."""
        node = self._node_at(parent)
        if node is not None:
            self._untold.append((node.id, name))

    def _node_at(self, path: bytes) -> Node | None:
        return self._nodes.of_backing(self._tree.stat(path).st_ino)
