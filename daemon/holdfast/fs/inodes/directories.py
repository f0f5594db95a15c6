"""Directories by node: zone and path of each, and the entries of its backing directory.

All operations on the tree use the ``O_PATH`` descriptor of a directory and one name. A directory that exists only in the
store has no backing directory until something is created in it.
"""

from __future__ import annotations

import errno
import math
import os
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import trio

from holdfast.errors import NoSuchEntryError
from holdfast.fs.inodes.attributes import Stat, of_store_directory
from holdfast.fs.inodes.descriptor_cache import DescriptorCache
from holdfast.fs.inodes.node import MOST_LEVELS, Node, path_of
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.fs.inodes.time_to_live import TimeToLive
from holdfast.store import StoreDirectory, advance_mtime
from holdfast.system.file_id import FileStat, file_stat
from holdfast.transfer import Ownership
from holdfast.zones import ZoneMap, ZonePath, is_at_or_below

_SHORT_PATH_BYTES = 4096
"""The length up to which paths are kept with their nodes."""
_LONG_PATH_EVERY = 64
"""The number of levels between longer paths that are kept: a tree of n levels would take memory for n² names otherwise."""
_LONG_PATHS_KEPT = 256
_LONGEST_PATH_BYTES = 1 << 17
"""The limit of a path: each request that names the directory, or something in it, copies the path several times."""
_LEVELS_KEPT_OPEN = 16
"""The number of levels at the end of a path whose descriptors are kept open. All of a deep one would close everybody's."""
_MOST_SERVED = 1024


class Watch:
    """A watch on the directory at ``path`` (of the tree). ``has_grown``: an entry has been made in it, or below it."""

    __slots__ = ("has_grown", "path")

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.has_grown = False


class Directories:
    """Paths, descriptors and entries of directories. Call ``renamed`` whenever a directory gets another path.

    ``owners`` maps each store to the ownership of directories that are created for its objects.
    """

    def __init__(
        self,
        nodes: NodeTable,
        store: StoreDirectory,
        zones: ZoneMap,
        descriptors: DescriptorCache,
        ttl: TimeToLive,
        owners: Mapping[str, Ownership],
    ) -> None:
        self._nodes = nodes
        self._tree = store.tree
        self._zones = zones
        self._descriptors = descriptors
        self.close = descriptors.close
        self._ttl = ttl
        self._owners = owners
        self.implied_times = store.implied_times
        """The times of a store's directories that only objects imply."""
        self._served_until: dict[int, float] = {}
        """The trio times at which to renew what the C module answers, by node id of directories that are being written.

        Never, for those that are no store's."""
        self._epoch = 0
        self._with_long_path: deque[Node] = deque()
        self._watches: list[Watch] = []
        """The directories that are being walked through: nearly always none."""
        self.is_spread = self._tree.is_spread
        """True if directories may be on different disks."""

    def place(self, node: Node) -> ZonePath:
        """Return the zone and path of a directory. Raises ``NoSuchEntryError`` if it was removed.

        Raises ``OSError`` (ENAMETOOLONG) if it is too deep in a tree.
        """
        cached = node.place
        if cached is not None and cached[0] == self._epoch:
            return cached[1]
        known, levels, names = self._above(node)
        place = self._zones.descendant(known, names)
        if place is None:
            raise NoSuchEntryError(f"no zone has a directory {os.fsdecode(node.name)}")
        levels += len(names)
        if len(place.path) <= _SHORT_PATH_BYTES:
            node.place = self._epoch, place, levels
        elif len(place.path) > _LONGEST_PATH_BYTES or levels > MOST_LEVELS:
            raise _too_deep()
        elif len(names) >= _LONG_PATH_EVERY:
            self._keep_long_path(node, place, levels)
        return place

    def _keep_long_path(self, node: Node, place: ZonePath, levels: int) -> None:
        node.place = self._epoch, place, levels
        self._with_long_path.append(node)
        if len(self._with_long_path) > _LONG_PATHS_KEPT:
            self._with_long_path.popleft().place = None

    def _above(self, node: Node) -> tuple[ZonePath, int, list[bytes]]:
        """Return place and level of the nearest directory above ``node`` that is known, and the names from there down."""
        names: list[bytes] = []
        while node is not self._nodes.root:
            if node.parent is None:
                raise NoSuchEntryError("the directory was removed")
            if len(names) > MOST_LEVELS:
                raise _too_deep()
            names.append(node.name)
            node = node.parent
            if node.place is not None and node.place[0] == self._epoch:
                return node.place[1], node.place[2], names[::-1]
        return self._zones.root, 0, names[::-1]

    def path(self, directory: Node, name: bytes) -> bytes:
        """Return the path that an entry has now. Raises as ``place`` does."""
        return self.place(directory).child_path(name)

    def is_ours(self, node: Node) -> bool:
        """Say whether only this daemon can change the directory, so that the kernel may cache its listing."""
        return self.place(node).zone.remote is None

    def lists_ids(self, node: Node) -> bool:
        """Say whether the inode numbers that the system lists in the directory are ids of files."""
        return self._tree.lists_ids(node.backing)

    def check_one_disk(self, node: Node, directory: Node) -> None:
        """Raise ``OSError`` with EXDEV if a file, or what is in a directory, can't get a name in another one."""
        if self.disk_number(node) != self.disk_number(directory):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    def disk_fd(self, node: Node) -> int:
        """Return a descriptor of the tree's own on the disk that a file or directory is on, or would be."""
        return self._tree.disk_fd(_placed(node).backing)

    def disk_number(self, node: Node) -> int:
        """Return the number of the disk that a file or directory is on, or would be; 0 for the first."""
        if not self.is_spread:
            return 0
        if node.backing:
            return self._tree.disk_number(node.backing)
        path = path_of(node)
        return 0 if path is None else self._tree.disk_at(path)

    def seconds(self, node: Node) -> float:
        """Return how long the kernel may cache a node's attributes and, for a directory, the names in it."""
        directory = node if node.is_directory else node.parent
        return 0.0 if directory is None else self._ttl.in_kernel(self.place(directory))

    def descriptor(self, node: Node) -> int:
        """Return the ``O_PATH`` descriptor of a directory that has a backing directory. The cache keeps ownership.

        Raises ``NoSuchEntryError`` if the directory was removed or exists only in the store.
        """
        cache = self._descriptors
        if node.id == cache.last_id:  # a request asks for the same one several times
            return cache.last_fd
        fd = cache.get(node.id)
        return fd if fd is not None else self._opened(node)

    def _opened(self, node: Node) -> int:
        """Open the directories from the nearest one that is open down to ``node``; return the last descriptor."""
        if self._tree.held.calls:
            self._tree.held.check(path_of(node) or b"")
        left: list[Node] = []
        fd = None
        while fd is None:
            if node is self._nodes.root:
                fd = self._tree.open_directory(b"")
                self._descriptors.keep(node.id, fd)
                break
            if node.parent is None:
                raise NoSuchEntryError("the directory was removed")
            if node.backing == 0:
                raise NoSuchEntryError(f"{os.fsdecode(node.name)} exists only in the store")
            if len(left) > MOST_LEVELS:
                raise _too_deep()
            left.append(node)
            node = node.parent
            fd = self._descriptors.get(node.id)
        passed = left[_LEVELS_KEPT_OPEN:]
        above = self._tree.open_below(fd, b"/".join(below.name for below in reversed(passed))) if passed else -1
        try:
            fd = above if passed else fd
            for below in reversed(left[:_LEVELS_KEPT_OPEN]):
                fd = self._tree.open_child(fd, below.name)
                self._keep(below, fd)
        finally:
            if passed:
                os.close(above)
        return fd

    def _keep(self, node: Node, fd: int) -> None:
        self._descriptors.keep(node.id, fd)
        place = self.place(node)
        if not place.zone.is_store:
            seconds, is_ours = self._ttl.in_kernel(place), place.zone.remote is None
            self._descriptors.serve(node.id, fd, seconds, node.zone, whole=is_ours)

    def writable_descriptor(self, node: Node) -> int:
        """Return the descriptor of a directory that is about to change. Creates the backing directory if there is none."""
        if node.backing == 0:
            self._make(node)
        if self._watches:
            path = self.place(node).path
            for watch in self._watches:
                watch.has_grown = watch.has_grown or is_at_or_below(path, watch.path)
        return self.changing_descriptor(node)

    @contextmanager
    def watched(self, path: bytes) -> Iterator[Watch]:
        """Watch the directory at ``path`` until the block is left: whoever walks through it would miss some new entries."""
        watch = Watch(path)
        self._watches.append(watch)
        try:
            yield watch
        finally:
            self._watches.remove(watch)

    def changing_descriptor(self, node: Node) -> int:
        """Return the descriptor of a directory with a backing directory in which names are about to change."""
        fd = self.descriptor(node)
        until = self._served_until.get(node.id, 0.0)
        if until < math.inf and (now := trio.current_time()) > until:
            self._serve_writer(node, fd, now)
        return fd

    def _serve_writer(self, node: Node, fd: int, now: float) -> None:
        """Let requests about a store's directory in which names change here be answered from its descriptor for a while."""
        if len(self._served_until) > _MOST_SERVED:
            self._served_until.clear()
        place = self.place(node)
        if not place.zone.is_store:
            self._served_until[node.id] = math.inf
            return
        seconds = self._ttl.in_kernel(place)
        self._served_until[node.id] = now + seconds / 2
        self._descriptors.serve_for_a_while(node.id, fd, seconds, node.zone)

    def stat(self, directory: Node, name: bytes) -> FileStat | None:
        """Return the lstat of an entry in the tree; None if it does not exist."""
        if directory.backing == 0:
            return None
        cache = self._descriptors
        fd = cache.last_fd if directory.id == cache.last_id else self.descriptor(directory)
        try:
            return file_stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def shown(self, directory: Node, stat: FileStat) -> Stat:
        """Return the attributes that users see of a directory whose backing directory has the attributes ``stat``."""
        return of_store_directory(stat) if self.place(directory).zone.is_store else stat

    def touch(self, directory: Node) -> None:
        """Note that names in a store's directory have changed here without a change of the backing directory."""
        advance_mtime(self.writable_descriptor(directory))

    def nearest_stat(self, directory: Node) -> FileStat:
        """Return the attributes of the directory, or of its nearest ancestor that has a backing directory."""
        while directory.backing == 0:
            assert directory.parent is not None
            directory = directory.parent
        return file_stat(self.descriptor(directory))

    async def sync(self, directory: Node) -> None:
        """Fsync a directory of the tree."""
        if directory.backing == 0:
            return
        fd = os.open(".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.descriptor(directory))
        try:
            await trio.to_thread.run_sync(os.fsync, fd)
        finally:
            os.close(fd)

    def renamed(self) -> None:
        """Invalidate all cached paths, because a directory was renamed."""
        self._epoch += 1
        self._served_until.clear()

    def forget(self, node: Node) -> None:
        """Close the descriptor of a removed directory."""
        self._served_until.pop(node.id, None)
        self._descriptors.forget(node.id)

    def _make(self, node: Node) -> None:
        """Create the backing directory of a directory that exists only in the store."""
        path = path_of(node)
        zone = self.place(node).zone
        if path is None or zone.remote is None:
            raise NoSuchEntryError("the directory was removed")
        since = self.implied_times if zone.is_store else None
        os.close(self._tree.make_directories(path, *self._owners[zone.remote].of_directories, since=since))
        self._adopt(node)

    def _adopt(self, node: Node) -> None:
        """Bind a directory node and its ancestors to the backing directories that now exist."""
        unbound = [node]
        while unbound[-1].parent is not None and unbound[-1].parent.backing == 0:
            unbound.append(unbound[-1].parent)
        for directory in reversed(unbound):
            path = path_of(directory)
            assert directory.parent is not None
            assert path is not None
            stat = file_stat(directory.name, dir_fd=self.descriptor(directory.parent), follow_symlinks=False)
            self._nodes.bind(directory, path, stat.st_ino)


def _placed(node: Node) -> Node:
    """Return the node, or if it exists only in the store, the nearest directory above it that is on a disk."""
    while node.backing == 0 and node.parent is not None:
        node = node.parent
    return node


def _too_deep() -> OSError:
    return OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
