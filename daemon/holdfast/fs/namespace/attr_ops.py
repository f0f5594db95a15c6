"""getattr, setattr, readlink, statfs."""

from __future__ import annotations

import errno
import os
import stat as stat_module
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from holdfast.errors import NoSuchEntryError, StaleNodeError
from holdfast.fs.file_io.files import Files
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes import attributes
from holdfast.fs.inodes.admission import Usage, workdir_of
from holdfast.fs.inodes.attributes import Stat
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.open_file import OpenFile, without_privileges
from holdfast.fs.remote_view.views import Views
from holdfast.store import measured
from holdfast.system.file_id import FileStat, file_stat

_PRESENT_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Changes:
    """The attributes that setattr changes; None leaves one as it is. Times are in ns since the epoch.

    ``are_chosen``: the times are a user's choice, and not just the present time; None: not known.
    """

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    size_bytes: int | None = None
    atime_ns: int | None = None
    mtime_ns: int | None = None
    are_chosen: bool | None = None


class AttrOps:
    """Attributes of nodes."""

    def __init__(self, base: Foundation, views: Views, files: Files) -> None:
        self._directories, self._hot, self._quotas = base.directories, base.hot, base.quotas
        self._view, self._store, self._entries = base.view, base.parts.store, base.parts.index.entries
        self._revalidation, self._times = views.revalidation, views.times
        self._files, self._writes, self._local_files = files.files, files.passthrough_writes, files.local_files
        self._opening, self._read_write, self._committer = files.opening, files.read_write, files.committer

    def get(self, node: Node) -> Stat:
        """Return a node's attributes, from its file or from the cached listing."""
        stat = self._files.stat(node)
        if stat is not None:
            return stat
        if node.is_directory and node.backing:
            return self._directories.shown(node, file_stat(self._directories.descriptor(node)))
        if node.parent is None:
            raise StaleNodeError("the file was removed")
        if node.backing:
            found = self._directories.stat(node.parent, node.name)
            if found is None or found.st_ino != node.backing:
                raise StaleNodeError("the file was replaced")
            return attributes.of_file(node, found)
        place = self._directories.place(node.parent)
        ownership = self._view.ownership_of(place.zone)
        above = self._directories.nearest_stat(node.parent)
        if node.is_directory:
            return attributes.of_directory(
                node, ownership, above, self._directories.implied_times(place.child_path(node.name))
            )
        known = self._view.listing(place).object(node.name)
        if known is None:
            raise NoSuchEntryError(f"{os.fsdecode(node.name)} is no longer in the store")
        return attributes.of_object(node, known, ownership, above)

    def may_be_old(self, node: Node) -> bool:
        """Say whether the store may have to be asked (``learn``) before the attributes of a node are told."""
        if node.is_directory:
            return self._revalidation.is_outdated(self._directories.place(node))
        return node.backing in self._times.awaited or not node.backing

    async def learn(self, node: Node) -> None:
        """Ask the store for attributes of a node that are unknown here, or for a directory's times if they may be old."""
        if node.is_directory:
            await self._revalidation.renew(self._directories.place(node))
        elif node.backing:
            await self._times.learn(node)
        elif node.parent is not None:
            known = self._view.listing(self._directories.place(node.parent)).object(node.name)
            if known is None or not known.modified_ns:
                await self._revalidation.known_object_of(node)

    async def set(
        self,
        node: Node,
        changes: Changes,
        *,
        drop_privileges: bool = True,
        by_descriptor: bool = False,
        thread: int | None = None,
    ) -> Stat:
        """Change attributes; return all of them. An entry that exists only in the store is fetched first.

        Mode, owner and times are changed only on this node: stores do not keep them. A new size is sent like any write:
        with the close of the descriptor if it was set by one, else at once. ``thread`` is the caller's.
        """
        if node.is_directory:
            self._directories.writable_descriptor(node)
            return self._set(node, changes)
        await self._local_files.make_local(node)
        if changes.size_bytes is not None:
            found_by = None if by_descriptor else thread
            await self._resize(
                node, changes.size_bytes, found_by, drop_privileges=drop_privileges, by_descriptor=by_descriptor
            )
            changes = replace(changes, mtime_ns=None)  # which is the time of the change of the size
        return await self._hot.change(node.backing, lambda: self._set(node, changes))

    def _set(self, node: Node, changes: Changes) -> Stat:
        before = self._of_backing_file(node)
        self._apply(node, changes)
        if node.is_directory and (changes.mode, changes.uid, changes.gid) != (None, None, None):
            self._store.tree.keep_rights(node.backing)
        after = self._of_backing_file(node)
        if not node.is_directory and isinstance(after, FileStat) and isinstance(before, FileStat):
            if node.opened is not None:
                node.opened.mode_changed(after.st_mode)
            if node.opened is None or not node.opened.hides_writes:  # or the next daemon would take it for unwritten
                self._entries.refresh(before, after)
        return after if node.opened is None else self.get(node)

    def _of_backing_file(self, node: Node) -> Stat:
        """Return the attributes that a node has on the disk. An open file may show another time, that of the store."""
        if node.opened is None or self._files.stat(node) is None:
            return self.get(node)
        return file_stat(node.opened.fd)

    def without_privileges(self, node: Node) -> Changes:
        """Return the change that clears the set-id bits as a write must; an empty one if there are none."""
        mode = self.get(node).st_mode
        keeps = not stat_module.S_ISREG(mode) or without_privileges(mode) == stat_module.S_IMODE(mode)
        return Changes() if keeps else Changes(mode=without_privileges(mode))

    def readlink(self, node: Node) -> bytes:
        """readlink(2)."""
        if node.parent is None:
            raise StaleNodeError("the link was removed")
        return os.readlink(node.name, dir_fd=self._directories.descriptor(node.parent))

    def file_system(self, node: Node, caller: Caller) -> os.statvfs_result:
        """statfs(2) of the disk that the file is on. Reserved space does not count as free, the space of deleted files does.

        In a working directory with a limit, the limit is shown as the size of the file system, and no more is free than is
        left of it. Only its owner and root see this, because it tells what the directory holds and the kernel checks no
        right to it.
        """
        disk = self._disk(node if node.is_directory else node.parent or node)
        usage = self._usage_told(node, caller)
        if usage is None:
            return disk
        limit, left = usage.limit, usage.left
        blocks, files = disk[2:5], disk[5:8]
        if limit.size_bytes:
            free = left.size_bytes // disk.f_frsize
            blocks = limit.size_bytes // disk.f_frsize, min(free, disk.f_bfree), min(free, disk.f_bavail)
        if limit.files:
            free = min(left.files, disk.f_ffree) if disk.f_files else left.files
            files = limit.files, free, min(free, disk.f_favail) if disk.f_files else free
        return os.statvfs_result((*disk[:2], *blocks, *files, *disk[8:], disk.f_fsid))

    def _disk(self, directory: Node) -> os.statvfs_result:
        """Return statfs(2) of a disk, once everything deleted so far is free: nobody waits until it is."""
        fd = self._directories.disk_fd(directory)
        device = os.fstat(fd).st_dev
        disk, deleted = measured(partial(os.fstatvfs, fd), partial(self._store.freeing.space, device))
        blocks, inodes = deleted.size_bytes // disk.f_frsize, deleted.files
        free = disk.f_bfree + blocks, disk.f_bavail + blocks
        free_files = disk.f_ffree + inodes, disk.f_favail + inodes
        return os.statvfs_result((*disk[:3], *free, disk.f_files, *free_files, *disk[8:], disk.f_fsid))

    def _usage_told(self, node: Node, caller: Caller) -> Usage | None:
        """Return what is known of the working directory that the node is in, if it may be told to the caller."""
        directory = node if node.is_directory else node.parent
        if directory is None:
            return None
        with suppress(NoSuchEntryError, FileNotFoundError):  # it was removed
            workdir = workdir_of(self._directories.place(directory).zone)
            if workdir is not None and caller.uid in (0, self._store.tree.stat(workdir).st_uid):
                return self._quotas.of(workdir)
        return None

    async def _resize(
        self, node: Node, size_bytes: int, found_by: int | None, *, drop_privileges: bool, by_descriptor: bool
    ) -> None:
        opened = await self._opening.acquire(node, os.O_WRONLY, thread=found_by)
        try:
            self._writes.detect_writes(opened)
            is_being_written = opened.unsent and not opened.has_one_user  # so its writer's close is still to come
            await self._read_write.truncate(opened, size_bytes, drop_privileges=drop_privileges)
            if not by_descriptor and not is_being_written:
                await self._committer.commit(opened)
        finally:
            self._writes.detect_writes(opened)
            self._committer.digest_at_end(opened)
            self._files.release(opened)

    def _apply(self, node: Node, changes: Changes) -> None:
        hot = self._hot.of(node.backing)
        if hot is not None:
            self._change_hot(node, changes, hot)
        elif node.opened is not None:
            self._change(node, changes, node.opened.fd, None)
        elif node.is_directory:
            self._change(node, changes, b"/proc/self/fd/%d" % self._directories.descriptor(node), None)
        elif node.parent is None:
            raise StaleNodeError("the file was removed")
        else:
            self._change(node, changes, node.name, self._directories.descriptor(node.parent))
        if node.opened is not None and changes.mtime_ns is not None:
            self._writes.time_was_set(node.opened)
        if changes.mtime_ns is not None and not node.is_directory and self._stays(node, changes, changes.mtime_ns):
            self._times.set_here(node, changes.mtime_ns)

    @staticmethod
    def _stays(node: Node, changes: Changes, mtime_ns: int) -> bool:
        """Say whether the mtime is a user's choice, and not just the present time of a file that is being written."""
        is_present = not changes.are_chosen and abs(mtime_ns - time.time_ns()) < _PRESENT_NS
        return not (is_present and node.opened is not None and node.opened.unsent)

    def _change(self, node: Node, changes: Changes, file: int | bytes, dir_fd: int | None) -> None:
        """Apply changes to ``file``: a descriptor, a path, or with ``dir_fd`` a name whose symbolic link is not followed."""
        follow = dir_fd is None
        if changes.uid is not None or changes.gid is not None:
            uid = -1 if changes.uid is None else changes.uid
            gid = -1 if changes.gid is None else changes.gid
            os.chown(file, uid, gid, dir_fd=dir_fd, follow_symlinks=follow)
        if changes.mode is not None:
            if not follow and stat_module.S_ISLNK(os.stat(file, dir_fd=dir_fd, follow_symlinks=False).st_mode):
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))  # chmod(2) would follow it
            os.chmod(file, stat_module.S_IMODE(changes.mode), dir_fd=dir_fd)
        times = self._new_times(node, changes)
        if times is not None:
            os.utime(file, ns=times, dir_fd=dir_fd, follow_symlinks=follow)

    def _change_hot(self, node: Node, changes: Changes, opened: OpenFile) -> None:
        """Apply changes to a file that has settled."""
        if changes.uid is not None or changes.gid is not None:
            uid = -1 if changes.uid is None else changes.uid
            gid = -1 if changes.gid is None else changes.gid
            self._hot.call_now(opened, "chown", [opened.fd], uid, gid)
        if changes.mode is not None:
            self._hot.chmod(opened, stat_module.S_IMODE(changes.mode))
        times = self._new_times(node, changes)
        if times is not None:
            self._hot.call_now(opened, "utime", [opened.fd], *times)

    def _new_times(self, node: Node, changes: Changes) -> tuple[int, int] | None:
        """Return the times of the last access and the last change to set; None if they stay."""
        if changes.atime_ns is None and changes.mtime_ns is None:
            return None
        if node.opened is not None:
            self._writes.detect_writes(node.opened)  # before its mtime is overwritten
        stat = self._of_backing_file(node)
        atime_ns = stat.st_atime_ns if changes.atime_ns is None else changes.atime_ns
        mtime_ns = stat.st_mtime_ns if changes.mtime_ns is None else changes.mtime_ns
        return atime_ns, mtime_ns
