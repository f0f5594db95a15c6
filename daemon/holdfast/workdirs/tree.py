"""The directories themselves: skeleton, lease file, emptying and removal, under a kernel that may have cached them."""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import trio

from holdfast.errors import FileBusyError, ForeignWorkdirError
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.node import Node
from holdfast.system.file_id import NO_FILE, FileId, file_stat
from holdfast.workdirs import ownership
from holdfast.zones import SKELETON, VOLATILE, WorkdirName, ZoneKind, is_at_or_below

_MAKE_LEASE = os.O_CREAT | os.O_EXCL | os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_PASSES = 10
_IN_ONE_GO = 100
_SHOWN_AGAIN_AT_ONCE = 5000
"""The number of names that take two milliseconds."""
_SMALL_BYTES = 64 * 1024
"""The size of a directory that is looked into in order to leave it alone if it is empty."""
_OPEN_LEASE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _StaleName(NamedTuple):
    """A name that the kernel may know wrongly, in the directory with the node id ``parent``.

    ``path`` is its path if a caller of ``invalidate_kernel`` may ask for it.
    """

    path: bytes
    parent: int
    name: bytes


class WorkdirTree:
    """Changes of the backing tree that the kernel did not ask for. Call ``invalidate_kernel`` after them."""

    def __init__(self, base: Foundation) -> None:
        store = base.parts.store
        self._tree = store.tree
        self._trash = store.trash
        self._events = base.parts.events
        self._marks = base.parts.index.marks
        self._zones = base.parts.zones
        self._nodes = base.nodes
        self._copies = base.copies
        self._invalidation = base.invalidation
        self._hot = base.hot
        self._rooms = base.rooms
        self._is_root = os.geteuid() == 0
        self._pending: list[_StaleName] = []
        self._half_trashed: list[Node] = []
        """Files with one name in the trash and another in the tree."""
        self._has_removed = False
        """True if directories were removed in this step, and names in them are not forgotten yet."""

    async def invalidate_kernel(self, path: bytes = b"") -> bool:
        """Wait until the kernel has dropped the names at or below ``path`` that the changes so far have made wrong.

        Returns whether it has. Those that it keeps, because a process holds the lock of their directory, are left for later.
        """
        chosen = {stale for stale in self._pending if is_at_or_below(stale.path, path)}
        self._pending = [stale for stale in self._pending if stale not in chosen]
        kept = {(stale.parent, stale.name) for stale in chosen}
        try:
            kept = set(await self._invalidation.invalidate_now(list(kept)))
        finally:
            self._pending += [stale for stale in chosen if (stale.parent, stale.name) in kept]
        return not kept

    async def empty_trash(self) -> bool:
        """Delete the trash. On return the kernel knows that linked files have one name less, if it returns true.

        Raises ``OSError``; the next call continues.
        """
        count = len(self._half_trashed)
        await trio.to_thread.run_sync(self._trash.empty, self._hot.inodes())
        for failure in self._trash.take_failures():
            self._events.emit("not-deleted", problem=failure)
        linked, self._half_trashed = self._half_trashed[:count], self._half_trashed[count:]
        self._pending += [_StaleName(b"", parent.id, name) for node in linked for parent, name in node.names()]
        return await self.invalidate_kernel()

    @contextmanager
    def one_step(self) -> Iterator[None]:
        """Group removals: all inside cost one look at every node. Nothing inside may wait."""
        try:
            yield
        finally:
            self._forget_removed()

    def prepare(self, path: bytes, owner: tuple[int, int], *, is_found: bool = True) -> None:
        """Create the directory at ``path`` and its skeleton if missing; empty the volatile parts.

        ``owner`` (uid, gid) gets new directories if the daemon runs as root. Raises ``ForeignWorkdirError`` if there is a
        directory that is not its own (``ownership``), unless the owner has made it just now (``is_found`` is false), or
        something that is no directory; and ``OSError``.
        """
        base, _, name = path.rpartition(b"/")
        base_fd = self._tree.open_directory(base)
        try:
            is_new = self._make(base_fd, base, name, owner)
            if is_new:
                owner = self._owner_of(base_fd, name, owner)
            if is_new or not is_found:
                self._tree.place_on_a_disk(base_fd, path, self._rooms.first.limits.reserve)
            fd = self._tree.open_child(base_fd, name)
        except NotADirectoryError:
            problem = "is not a directory; acquire with another id, or remove it"
            raise ForeignWorkdirError(f"{os.fsdecode(path)} {problem}") from None
        finally:
            os.close(base_fd)
        try:
            if self._is_root and is_found:
                ownership.check(path, fd, owner[0])
            with self.one_step():
                for child in SKELETON:
                    if child in VOLATILE:
                        self._empty(fd, path, child)
                    self._make(fd, path, child, owner)
                self._make_lease(path, fd)
        finally:
            os.close(fd)
        self._marks.uncover_below(path)

    async def adopt(self, path: bytes, owner: tuple[int, int]) -> None:
        """Give the directory at ``path``, if there is one, to ``owner`` (uid, gid), whoever has it.

        What is in place of Holdfast's own directories goes to the trash. On return nobody else can write there, by any
        descriptor or other name either. Raises ``ForeignWorkdirError`` if a file in it is open or there is a FIFO or socket,
        usually before anything has changed, and if somebody goes on moving things about; and ``OSError``. It is not acquired
        then, and can be adopted again.
        """
        if not self.exists(path):
            return
        self._tree.held.check_moved(path)
        fd = self._tree.open_directory(path)
        try:
            before = os.stat(fd).st_uid
            self._check_closed(path, await trio.to_thread.run_sync(ownership.files_of, path, fd, before, owner[0]))
            with self.one_step():
                for name in ownership.strangers(fd, before, owner[0]):
                    self._invalidate_later(path, name)
                    self._move_to_trash(fd, path, name)
            try:
                await self._give(path, fd, before, owner)
            except BaseException:
                os.chown(f"/proc/self/fd/{fd}", before, -1)
                self._attributes_changed(file_stat(fd).st_ino)
                raise
        finally:
            os.close(fd)
        base, _, name = path.rpartition(b"/")
        self._invalidate_later(base, name)

    async def _give(self, path: bytes, fd: int, before: int, owner: tuple[int, int]) -> None:
        """Change owners until all have changed: at the start, the former owner can still move directories out of the way.

        After each pass the kernel knows the new owners one level further down at least.
        """
        for _ in range(_MOST_PASSES):
            given = await trio.to_thread.run_sync(ownership.give, path, fd, before, *owner)
            for number, inode in enumerate(given.inodes):
                self._attributes_changed(inode)
                if number % _IN_ONE_GO == _IN_ONE_GO - 1:
                    await trio.lowlevel.checkpoint()
            if not given.inodes or before == owner[0]:
                break
        else:
            raise ForeignWorkdirError(f"{os.fsdecode(path)} is being changed all the time; end the processes that use it")
        self._check_closed(path, given.files)

    def _check_closed(self, path: bytes, inodes: list[FileId]) -> None:
        if any(self._invalidation.is_open(inode) for inode in inodes):
            raise ForeignWorkdirError(f"files in {os.fsdecode(path)} are open; end the processes that use them")

    def _attributes_changed(self, inode: FileId) -> None:
        self._invalidation.attributes_changed(self._nodes.id_of(inode))

    def check_owner(self, path: bytes, owner: int) -> None:
        """Raise ``ForeignWorkdirError`` if there is a directory at ``path`` that is not its own (``ownership``)."""
        if not self._is_root or not self.exists(path):
            return
        fd = self._tree.open_directory(path)
        try:
            ownership.check(path, fd, owner)
        finally:
            os.close(fd)

    def hides_many(self, path: bytes) -> bool:
        """Say whether more names that are in the store were deleted below ``path`` than are shown again in one step."""
        return len(self._marks.whited_out_below(path, most=_SHOWN_AGAIN_AT_ONCE + 1)) > _SHOWN_AGAIN_AT_ONCE

    def show_some_again(self, path: bytes) -> None:
        """Show some of the names again that were deleted below ``path``: call it while it ``hides_many``, with pauses."""
        self._marks.uncover_below(path, _SHOWN_AGAIN_AT_ONCE)

    def remove(self, path: bytes) -> None:
        """Remove the directory at ``path`` with everything in it. Call it in ``one_step``."""
        base, _, name = path.rpartition(b"/")
        self._invalidate_later(base, name)  # first, so that an error in between can't leave the name with the kernel
        base_fd = self._tree.open_directory(base)
        try:
            self._move_to_trash(base_fd, base, name)
        finally:
            os.close(base_fd)
        self._marks.uncover_below(path)

    def gone(self, path: bytes) -> None:
        """Note that the directory at ``path`` was gone at the start, and the kernel may know it from an earlier daemon."""
        base, _, name = path.rpartition(b"/")
        self._pending.append(_StaleName(path, self._nodes.id_of(self._tree.inode(base)), name))
        self._marks.uncover_below(path)

    def drop(self, path: bytes) -> None:
        """Remove this node's file at ``path``. It stays readable while open; a store that has it is the fallback."""
        parent, _, name = path.rpartition(b"/")
        self._copies.drop(path, self._tree.stat(path).st_ino, same_object=True)
        self._invalidate_later(parent, name)

    def exists(self, path: bytes) -> bool:
        """Say whether there is a directory at ``path``."""
        try:
            return stat_module.S_ISDIR(self._tree.stat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def owner(self, path: bytes) -> int:
        """Return the uid of the owner of the directory at ``path``; -1 if there is none."""
        try:
            return self._tree.stat(path).st_uid
        except (FileNotFoundError, NotADirectoryError):
            return -1

    def existing(self) -> list[bytes]:
        """Return the paths of all working directories in the bases, by their names."""
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

    def lease_inode(self, path: bytes) -> FileId:
        """Return the inode number of the lease file of the directory at ``path``; 0 if there is none."""
        return NO_FILE if self._tree.has_failed(path) else self._tree.inode(path + b"/" + ownership.LEASE_FILE)

    def _make_lease(self, path: bytes, fd: int) -> None:
        """Make the lease file, which only the owner of the directory ``fd`` may open. What else has its name is removed."""
        name, stat = ownership.LEASE_FILE, file_stat(fd)
        if not ownership.is_lease(fd, stat.st_uid):
            if _exists(fd, name):
                self._move_to_trash(fd, path, name)
            os.close(os.open(name, _MAKE_LEASE, 0o400, dir_fd=fd))
            self._has_begun(fd, name)
        lease_fd = os.open(name, _OPEN_LEASE, dir_fd=fd)
        try:
            if self._is_root:
                os.fchown(lease_fd, stat.st_uid, stat.st_gid)
            os.fchmod(lease_fd, 0o400)
        finally:
            os.close(lease_fd)
        self._invalidate_later(path, name)

    def _make(self, parent_fd: int, parent: bytes, name: bytes, owner: tuple[int, int]) -> bool:
        """Create a directory; False if it exists already."""
        try:
            os.mkdir(name, 0o755, dir_fd=parent_fd)
        except FileExistsError:
            return False
        self._has_begun(parent_fd, name)
        if self._is_root:
            os.chown(name, *owner, dir_fd=parent_fd, follow_symlinks=False)
        self._invalidate_later(parent, name)
        return True

    def _owner_of(self, parent_fd: int, name: bytes, owner: tuple[int, int]) -> tuple[int, int]:
        stat = file_stat(name, dir_fd=parent_fd, follow_symlinks=False)
        return (stat.st_uid, stat.st_gid) if owner == (-1, -1) else owner

    def _empty(self, parent_fd: int, parent: bytes, name: bytes) -> None:
        try:
            fd = self._tree.open_child(parent_fd, name)
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            stat = file_stat(fd)
            is_empty = stat.st_size <= _SMALL_BYTES and _is_empty(fd)
        finally:
            os.close(fd)
        if is_empty:
            return
        self._move_to_trash(parent_fd, parent, name)
        os.mkdir(name, 0o700, dir_fd=parent_fd)
        self._has_begun(parent_fd, name)
        if self._is_root:
            os.chown(name, stat.st_uid, stat.st_gid, dir_fd=parent_fd, follow_symlinks=False)
        os.chmod(name, stat_module.S_IMODE(stat.st_mode), dir_fd=parent_fd)
        self._invalidate_later(parent, name)

    def _has_begun(self, parent_fd: int, name: bytes) -> None:
        """Tell the nodes of a new file or directory.

        It may have got the inode number of a file that was removed in this step: the trash is emptied by a thread.
        """
        inode = file_stat(name, dir_fd=parent_fd, follow_symlinks=False).st_ino
        if self._nodes.of_backing(inode) is not None:
            self._forget_removed()
        self._nodes.begin(inode)

    def _forget_removed(self) -> None:
        if self._has_removed:
            self._has_removed = False
            self._half_trashed += self._invalidation.forget_removed()
            self._trash.give_up()

    def _move_to_trash(self, parent_fd: int, parent: bytes, name: bytes) -> None:
        inode = file_stat(name, dir_fd=parent_fd, follow_symlinks=False).st_ino
        self._tree.held.check_moved(parent + b"/" + name)
        if self._hot.of(inode) is not None:  # a file in place of a directory
            raise FileBusyError(f"a process has {os.fsdecode(parent + b'/' + name)} open: end it")
        with self._tree.leaving(inode):
            self._trash.throw(parent_fd, name)
        self._has_removed = True
        self._invalidation.directory_removed(parent + b"/" + name, inode)

    def _invalidate_later(self, parent: bytes, name: bytes) -> None:
        """Queue an invalidation of a name, which the kernel may know as missing or as another entry."""
        node = self._node_at(parent)
        if node is not None:
            self._pending.append(_StaleName(parent + b"/" + name, node.id, name))

    def _node_at(self, path: bytes) -> Node | None:
        return self._nodes.of_backing(self._tree.stat(path).st_ino)


def _exists(directory_fd: int, name: bytes) -> bool:
    try:
        os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _is_empty(directory_fd: int) -> bool:
    with os.scandir(b"/proc/self/fd/%d" % directory_fd) as entries:
        return next(entries, None) is None
