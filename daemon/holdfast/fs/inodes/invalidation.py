"""Updating nodes and the kernel after files change without a request: fetched, evicted, replaced or corrupt."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from holdfast.errors import FileBusyError
from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.hot_files import HotFiles
from holdfast.fs.inodes.kernel import KernelNotifications
from holdfast.fs.inodes.node import ROOT_ID, Node, path_of
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.fs.inodes.pending_unlinks import PendingUnlinks
from holdfast.store import StoreDirectory, advance_mtime
from holdfast.system.file_id import FileId, FileStat, file_stat


class Invalidation:
    """Handles every change of the tree that the kernel did not ask for. It is the listener of ``transfer.CachedCopies``."""

    def __init__(
        self,
        nodes: NodeTable,
        directories: Directories,
        store: StoreDirectory,
        unlinks: PendingUnlinks,
        hot: HotFiles,
        kernel: KernelNotifications,
    ) -> None:
        self._nodes = nodes
        self._directories = directories
        self._tree = store.tree
        self._unlinks = unlinks
        self._orphanage = store.orphanage
        self._hot = hot
        self.rename_out = hot.rename_out
        self._content_changed = kernel.content_changed
        self._invalidate_content = kernel.invalidate_content
        self.attributes_changed = kernel.attributes_changed
        self.invalidate = kernel.invalidate
        self.invalidate_now = kernel.invalidate_now
        self.caught_up = kernel.caught_up
        self.kernel_has = kernel.knows
        self.prune = kernel.prune

    def before_attributes(self, node: Node) -> None:
        """Call before replying with attributes: the kernel then does not cache a link count that may be wrong."""
        if node.backing in self._unlinks.losing:
            self.attributes_changed(node.id)  # replies to earlier requests are then shown, but not cached

    def before_handle(self, opened: OpenFile) -> bool:
        """Call before replying to an open of a file of which the kernel may cache another version's pages or attributes.

        Returns whether the kernel has dropped all of that. If it has not, because somebody has the file open, each reply to
        an open must make it drop the pages.
        """
        if opened.handles > 1:
            self.attributes_changed(opened.node.id)
            return False
        self._content_changed(opened.node.id)
        return True

    def is_open(self, inode: FileId) -> bool:
        """Say whether the file ``inode`` is open."""
        node = self._nodes.of_backing(inode)
        return node is not None and node.opened is not None

    def remove_open(self, directory_fd: int, name: bytes, inode: FileId, *, is_last: bool, then: Callable[[], None]) -> None:
        """Remove a name of an open file; if it is the last, the file becomes an orphan. Raises ``FileBusyError``.

        ``then`` is called if the name is removed after that.
        """
        hot = self._hot.of(inode)
        if hot is not None:
            self._hot.unlink(hot, directory_fd, name, then)
        elif is_last:
            self._orphanage.take(directory_fd, name, inode)
        else:
            os.unlink(name, dir_fd=directory_fd)

    def file_placed(self, path: bytes, stat: FileStat) -> None:
        """Note that the object at ``path`` got a backing file, and that its parent directories exist too."""
        node = self._nodes.of_path(path)
        if node is None:
            self._nodes.begin(stat.st_ino)
        else:
            self._nodes.bind(node, path, stat.st_ino)
        self.directories_placed(path.rpartition(b"/")[0])  # the kernel may know directories of a file that it does not know

    def directories_placed(self, path: bytes) -> None:
        """Note that the directory at ``path`` and those above it have backing directories, if they had none before."""
        while path:
            node = self._nodes.of_path(path)
            if node is not None:
                self._nodes.bind(node, path, self._tree.stat(path).st_ino)
            path = path.rpartition(b"/")[0]

    def directory_changed(self, inode: FileId) -> None:
        """Note that the times of the directory ``inode`` have changed."""
        self.attributes_changed(self._nodes.id_of(inode))

    def touch_directory(self, fd: int) -> None:
        """Give the directory that is open as ``fd`` a later time, and close ``fd``. Raises ``OSError``."""
        try:
            advance_mtime(fd)
            self.directory_changed(file_stat(fd).st_ino)
        finally:
            os.close(fd)

    def file_left(self, path: bytes, inode: FileId, *, same_object: bool) -> None:
        """Note that a name lost its backing file, or that a directory was removed that nothing implies any more."""
        nodes = self._nodes
        node = nodes.of_backing(inode)
        if node is None:
            self._invalidate_unknown(path)
            return
        parent, name = self._name_at(node, path)
        if parent is None:
            return
        self.invalidate(parent.id, name)
        if node.is_directory:
            self._directories.forget(node)
        keeps_name = same_object and node.opened is None and len(node.names()) == 1
        if not keeps_name:
            nodes.drop_name(node, parent, name)
        if node.opened is None and (keeps_name or not node.is_named):
            nodes.unbind(node)
            if keeps_name:
                nodes.to_path(node, path)

    def directory_emptied(self, path: bytes, inode: FileId) -> None:
        """Note that a directory now exists only in the store. The kernel keeps its name: it is the same directory."""
        node = self._nodes.of_backing(inode)
        if node is not None:
            self._directories.forget(node)
            self._nodes.unbind(node)
            self._nodes.to_path(node, path)

    def directory_removed(self, path: bytes, inode: FileId) -> None:
        """Note that a directory was removed with everything in it. Call ``forget_removed`` before the next await."""
        self.file_left(path, inode, same_object=False)
        self._directories.renamed()

    def forget_removed(self) -> list[Node]:
        """Forget all names in removed directories, by one look at every node. Open files in them stay usable without a name.

        Returns those files that have names elsewhere, which are now their only ones.
        """
        return [node for node in self._drop_dead_names() if node.is_named]

    def file_corrupt(self, inode: FileId) -> None:
        """Refuse all further reads of the file ``inode``, also of pages that the kernel has cached."""
        node = self._nodes.of_backing(inode)
        if node is not None and node.opened is not None:
            node.opened.became_corrupt()
            self._invalidate_content(node.id)

    def _drop_dead_names(self) -> list[Node]:
        """Drop all names below removed directories; return the files that lost one.

        What is neither named nor open has no file any more: the next file may get its inode number.
        """
        dead: dict[int, bool] = {}
        losers = []
        for node in self._nodes.all():
            if node.is_directory:
                if node.backing and _is_dead(node, dead):
                    self._directories.forget(node)
                    self._nodes.unbind(node)
                continue
            before = node.names()
            for parent, name in before:
                if _is_dead(parent, dead):
                    self._nodes.drop_name(node, parent, name)
                    losers.append(node)
            if not node.is_named and node.backing:
                self._lost_all_names(node, just_now=bool(before))
        return losers

    def _lost_all_names(self, node: Node, *, just_now: bool) -> None:
        if node.opened is None:
            self._nodes.unbind(node)
        elif just_now:
            with suppress(OSError, FileBusyError):  # a disk without room: then no later daemon can open it again
                self._hot.shelter(node.opened)

    def _invalidate_unknown(self, path: bytes) -> None:
        """Invalidate a name that the kernel may know from an earlier daemon: its nodes are recovered on demand."""
        parent, _, name = path.rpartition(b"/")
        inode = self._tree.inode(parent)
        if inode:
            self.invalidate(self._nodes.id_of(inode), name)

    def _name_at(self, node: Node, path: bytes) -> tuple[Node | None, bytes]:
        """Return which name of a node is at ``path``. This compares only names: its zone may not be configured any more."""
        above, _, last = path.rpartition(b"/")
        for parent, name in node.names():
            if name == last and path_of(parent) == above:
                return parent, name
        return None, b""


def _is_dead(directory: Node, dead: dict[int, bool]) -> bool:
    """Say whether a directory has been removed, or one above it; ``dead`` remembers it by node id."""
    way = []
    node = directory
    while node.id not in dead:
        way.append(node.id)
        if node.parent is None:
            dead[node.id] = node.id != ROOT_ID
            break
        node = node.parent
    for node_id in way:
        dead[node_id] = dead[node.id]
    return dead[directory.id]
