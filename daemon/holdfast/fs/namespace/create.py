"""New entries: CREATE from top to bottom, and what is made without being opened (mkdir, mknod, symlink).

CREATE checks that the name is free if it must be, makes the file, and hands out a handle. In a sending zone the file is sent
when it is closed or renamed.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from holdfast.errors import NameNotStorableError, StaleNodeError, WriteOnceError, ZoneNotPermittedError
from holdfast.fs.file_io.files import Files
from holdfast.fs.file_io.open_files import Handle
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.name_policy import Name, check_storable
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.fs.inodes.replay import FIRST, Attempt
from holdfast.fs.namespace.lookup import Found
from holdfast.fs.remote_view.fallback_guard import FallbackGuard
from holdfast.fs.remote_view.views import Views
from holdfast.fs.remote_view.visibility import RESERVED, Visibility
from holdfast.system.file_id import FileStat, file_stat
from holdfast.system.waits import before_waiting
from holdfast.zones import ZoneKind, ZonePath

_BITS_THAT_GET_LOST = stat_module.S_ISUID | stat_module.S_ISGID | 0o022
"""The bits of a mode that are cleared by the chown and by the daemon's own umask."""
MadeFile = tuple[Found, Handle]
"""A file that was just created, and the kernel's handle of it."""


class NewEntries:
    """Checks and makes new entries for all code. If the daemon ``is_root``, they belong to their caller."""

    def __init__(self, base: Foundation, visibility: Visibility) -> None:
        self._policy, self._view, self._ordinary_user = base.policy, base.view, base.ordinary_user
        self._visibility = visibility
        self._is_root = os.geteuid() == 0

    def name(self, directory: Node, name: bytes) -> Name:
        """Resolve a new name. Raises ``ZoneNotPermittedError`` or ``NameNotStorableError`` for a bad one."""
        new = self._policy.name(directory, name)
        if new.zone.kind is ZoneKind.ROOT:
            raise ZoneNotPermittedError(f"the mount's root holds zones only, not {os.fsdecode(name)}")
        if new.zone.sends:
            self._view.check_name(new)
            if name == RESERVED and self._visibility.is_reserved(new):
                raise ZoneNotPermittedError(f"{os.fsdecode(RESERVED)} is Holdfast's own name in a store")
        return new

    def make(self, step: Callable[[], None], attempt: Attempt) -> None:
        """Run a step that makes an entry, which takes nothing that the disk keeps for root. ``give`` must follow."""
        with self._ordinary_user.writes():
            attempt.create(step)

    def give(self, name: bytes, directory_fd: int, above: os.stat_result, caller: Caller) -> None:
        """Give a new entry, in a directory with the attributes ``above``, to ``caller``."""
        if self._is_root:
            os.chown(name, caller.uid, group_of_new(above, caller), dir_fd=directory_fd, follow_symlinks=False)

    def give_file(self, fd: int, directory_fd: int, caller: Caller) -> None:
        """Give the new file open as ``fd`` to ``caller``."""
        if self._is_root:
            os.fchown(fd, caller.uid, group_of_new(os.stat(directory_fd), caller))


class Creation:
    """Carries out open(2) with O_CREAT."""

    def __init__(self, base: Foundation, views: Views, files: Files, new: NewEntries) -> None:
        self._new = new
        self._directories, self._nodes = base.directories, base.nodes
        self._admission, self._ttl = base.admission, base.ttl
        self._view, self._index, self._copies, self._fetcher = base.view, base.parts.index, base.copies, base.fetcher
        self._revalidation, self._hints, self._guard = views.revalidation, views.hints, views.guard
        self._files, self._limits = files.files, files.open_limits

    async def file(
        self, directory: Node, name: bytes, mode: int, flags: int, request: int, caller: Caller, attempt: Attempt = FIRST
    ) -> MadeFile:
        """open(2) with O_CREAT, for a name that the kernel takes to be free.

        Raises ``WriteOnceError`` if the store has the name and it is write-once or O_EXCL is set, and
        ``AccessRefusedError``.
        """
        new = self._name(directory, name, caller)
        if new.sends and (flags & os.O_EXCL or new.created_once):
            await self._check_free(new, caller)
        return self._make_file(new, mode, flags, request, caller, attempt)

    def _make_file(self, name: Name, mode: int, flags: int, request: int, caller: Caller, attempt: Attempt) -> MadeFile:
        exclusive = bool(flags & os.O_EXCL)
        directory_fd = self._admission.descriptor_for_new(name.directory)
        fd, is_new = self._open_new(name, directory_fd, mode, exclusive=exclusive, resent=attempt.resent)
        try:
            stat = self._owned(fd, directory_fd, mode, caller)
            if flags & os.O_TRUNC and stat.st_size:
                os.ftruncate(fd, 0)
                stat = file_stat(fd)
            if is_new:
                self._index.entries.begin(stat.st_ino)
                self._nodes.begin(stat.st_ino)
            is_sent = name.zone.sends and self._note_new_object(name, stat, caller)
            node = self._nodes.local(name.directory, name.name, stat.st_ino, stat.st_mode)
        except BaseException:
            os.close(fd)
            raise
        if node.opened is None:
            node.opened = OpenFile(node, fd, stat, writable=True)
        else:
            os.close(fd)
        opened = node.opened
        opened.count()
        opened.created(exclusive=exclusive, is_sent=is_sent)
        node.mtime_is_told = not is_new
        sends = is_sent if is_new else None
        handle = self._files.hand_out(opened, request, caller, changes=True, sends=sends)
        return Found(node, stat, self._ttl.in_kernel(name.place)), handle

    def _name(self, directory: Node, name: bytes, caller: Caller) -> Name:
        """Resolve a name that the caller may create and open."""
        new = self._new.name(directory, name)
        if caller.uid:
            self._limits.check(caller.uid)
            if new.zone.remote is not None:
                self._guard.check_create(new, caller)
        return new

    async def _check_free(self, name: Name, caller: Caller) -> None:
        """Ask the store whether it has the name, unless the kernel's lookup for this open(2) has just done so.

        Raises ``WriteOnceError`` if it has, and ``RemoteError``.
        """
        was_asked = self._hints.was_just_asked(name.place.path, name.name, caller.pid)
        if was_asked or self._index.marks.is_whited_out(name.path):
            return
        await before_waiting()
        await self._view.deletions_of(name.zone).settle(name.path)
        if await self._revalidation.known_object(name) is not None:
            raise WriteOnceError(f"{os.fsdecode(name.path)} exists already in the store")

    def _note_new_object(self, name: Name, stat: FileStat, caller: Caller) -> bool:
        """Record a new file in a sending zone. Return whether it becomes an object under this name."""
        if name.policy.awaits_rename:
            self._hints.temporary_made(name.place.path, name.name, caller.pid)
        if name.policy.stays_here:
            return False
        self._fetcher.detach(name.path)
        self._index.entries.mark_dirty(stat, name.path)
        self._copies.drop_sidecar(name.path, self._directories.descriptor(name.directory))
        return True

    def _open_new(self, name: Name, directory_fd: int, mode: int, *, exclusive: bool, resent: bool) -> tuple[int, bool]:
        """Return a descriptor, and whether the file was newly created. A resent request may find the file that it made.

        For any other request, an existing file came after the kernel's lookup. Raises ``StaleNodeError`` then, so that the
        kernel looks again and checks who may open it; if ``exclusive``, ``FileExistsError``.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(name.name, flags, stat_module.S_IMODE(mode), dir_fd=directory_fd), True
        except FileExistsError:
            if not resent and exclusive:
                raise
            if not resent:
                raise StaleNodeError("another file has this name by now") from None
            return os.open(name.name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory_fd), False

    def _owned(self, fd: int, directory_fd: int, mode: int, caller: Caller) -> FileStat:
        if caller.uid or caller.gid:  # root's have the right owner already
            self._new.give_file(fd, directory_fd, caller)
        if mode & _BITS_THAT_GET_LOST:
            os.fchmod(fd, stat_module.S_IMODE(mode))
        stat = file_stat(fd)
        if not stat_module.S_ISREG(stat.st_mode):
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
        return stat


class DirectoryRules(Protocol):
    """Rules for new directories (``workdirs``)."""

    def check_new_directory(self, place: ZonePath, caller: Caller) -> None:
        """Raise an error if ``caller`` may not make a directory at ``place``."""

    async def before_new_directory(self, place: ZonePath) -> None:
        """Do what takes long before a directory is made at ``place``, if there is none. It need not be made then."""

    def directory_made(self, place: ZonePath, caller: Caller) -> None:
        """Note that ``caller`` has made a directory at ``place``; the reply follows."""


class Making:
    """Makes entries that are not opened at the same time."""

    def __init__(self, base: Foundation, guard: FallbackGuard, new: NewEntries, rules: DirectoryRules) -> None:
        self._new = new
        self._directories, self._nodes = base.directories, base.nodes
        self._admission, self._tree = base.admission, base.parts.store.tree
        self._zones, self._index, self._view = base.parts.zones, base.parts.index, base.view
        self._rules = rules
        self._guard = guard

    async def before_directory(self, parent: Node, name: bytes) -> None:
        """Do what takes long before ``directory``."""
        place = self._directories.place(parent)
        if place.zone.kind is ZoneKind.BASE and (child := self._zones.child(place, name)) is not None:
            await self._rules.before_new_directory(child)

    def directory(
        self, parent: Node, name: bytes, mode: int, caller: Caller, attempt: Attempt = FIRST
    ) -> tuple[Node, FileStat]:
        """mkdir(2)."""
        new = self._new.name(parent, name)
        child = self._zones.child(new.place, name)
        if child is None:
            raise ZoneNotPermittedError(f"the mount's root holds zones only, not {os.fsdecode(name)}")
        self._rules.check_new_directory(child, caller)
        parent_fd = self._admission.descriptor_for_new(parent)
        above = file_stat(parent_fd)
        mode |= above.st_mode & stat_module.S_ISGID
        self._new.make(partial(os.mkdir, name, mode, dir_fd=parent_fd), attempt)
        self._new.give(name, parent_fd, above, caller)
        os.chmod(name, mode, dir_fd=parent_fd)
        self._tree.place_partition(parent_fd, child.path)
        stat = file_stat(name, dir_fd=parent_fd, follow_symlinks=False)
        if not attempt.resent:
            self._nodes.begin(stat.st_ino)
        if new.zone.remote is not None:
            self._index.marks.hold(stat.st_ino)
            with suppress(NameNotStorableError):  # localState takes any name
                self._view.made_directory(child)
        self._rules.directory_made(child, caller)
        return self._nodes.local(parent, name, stat.st_ino, stat.st_mode), stat

    def special(
        self, directory: Node, name: bytes, mode: int, device: int, caller: Caller, attempt: Attempt = FIRST
    ) -> tuple[Node, FileStat]:
        """mknod(2): regular files; FIFOs, sockets and devices only in zones that send nothing."""
        new = self._new.name(directory, name)
        check_storable(new.zone, mode)
        self._guard.check_put(new, caller)
        fd = self._admission.descriptor_for_new(directory)
        self._new.make(partial(os.mknod, name, mode, device, dir_fd=fd), attempt)
        return self._adopt_new(new, mode, caller, attempt)

    def symlink(
        self, directory: Node, name: bytes, target: bytes, caller: Caller, attempt: Attempt = FIRST
    ) -> tuple[Node, FileStat]:
        """symlink(2), only in zones that send nothing."""
        new = self._new.name(directory, name)
        check_storable(new.zone, stat_module.S_IFLNK)
        fd = self._admission.descriptor_for_new(directory)
        self._new.make(partial(os.symlink, target, name, dir_fd=fd), attempt)
        return self._adopt_new(new, None, caller, attempt)

    def _adopt_new(self, name: Name, mode: int | None, caller: Caller, attempt: Attempt) -> tuple[Node, FileStat]:
        fd = self._admission.descriptor_for_new(name.directory)
        self._new.give(name.name, fd, file_stat(fd), caller)
        if mode is not None:
            os.chmod(name.name, stat_module.S_IMODE(mode), dir_fd=fd)
        stat = file_stat(name.name, dir_fd=fd, follow_symlinks=False)
        self._index.entries.begin(stat.st_ino)
        if not attempt.resent:
            self._nodes.begin(stat.st_ino)
        if stat_module.S_ISREG(stat.st_mode) and name.sends:
            self._index.entries.mark_dirty(stat, name.path)
        return self._nodes.local(name.directory, name.name, stat.st_ino, stat.st_mode), stat


def group_of_new(above: os.stat_result, caller: Caller) -> int:
    """Return the group of a new entry of ``caller`` in a directory with the attributes ``above`` (inode(7), S_ISGID)."""
    return above.st_gid if above.st_mode & stat_module.S_ISGID else caller.gid
