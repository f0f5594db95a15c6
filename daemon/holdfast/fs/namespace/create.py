"""CREATE, from top to bottom: check that the name is free if it must be, make the file, and hand out a handle.

In a sending zone the file is sent when it is closed or renamed.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module

from holdfast.errors import StaleNodeError, WriteOnceError
from holdfast.fs.file_io.files import Files
from holdfast.fs.file_io.open_files import Handle
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.name_policy import Name
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.fs.inodes.replay import FIRST, Attempt
from holdfast.fs.namespace.lookup import Found
from holdfast.fs.namespace.new_entries import NewEntries
from holdfast.fs.remote_view.views import Views
from holdfast.system.file_id import FileStat, file_stat
from holdfast.system.waits import before_waiting

_BITS_THAT_GET_LOST = stat_module.S_ISUID | stat_module.S_ISGID | 0o022
"""The bits of a mode that are cleared by the chown and by the daemon's own umask."""


MadeFile = tuple[Found, Handle]
"""A file that was just created, and the kernel's handle of it."""


class Creation:
    """Carries out open(2) with O_CREAT."""

    def __init__(self, base: Foundation, views: Views, files: Files, new: NewEntries) -> None:
        self._new = new
        self._directories, self._nodes, self._updates = base.directories, base.nodes, base.updates
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
        self._updates.mark_dirty(stat, name.path)
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
