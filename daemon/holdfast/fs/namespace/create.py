"""New names: create, mkdir, mknod, symlink."""

from __future__ import annotations

import errno
import os
import stat as stat_module
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import trio

from holdfast.errors import NameNotStorableError, WriteOnceError, ZoneNotPermittedError
from holdfast.fs.inodes.core import LOCAL_KINDS, Caller, Core, key_text
from holdfast.fs.inodes.nodes import Node
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.fs.inodes.replay import FIRST, Attempt
from holdfast.fs.namespace.lookup import RESERVED
from holdfast.fs.remote_view.create_hints import CreateHints
from holdfast.fs.remote_view.revalidation import Revalidation
from holdfast.zones import NameKind, ZoneKind, ZonePath

_BITS_THAT_GET_LOST = stat_module.S_ISUID | stat_module.S_ISGID | 0o022
"""By the chown and by the daemon's own umask."""


class Creation:
    """Makes entries in the tree. What a sending zone sends, it sends when the file is closed or renamed.

    ``may_make`` is asked before a directory is made, and refuses by an error; ``directory_made`` hears of it before the
    kernel does.
    """

    def __init__(self, core: Core, beliefs: Revalidation, intents: CreateHints) -> None:
        self._core = core
        self._beliefs = beliefs
        self._intents = intents
        self.may_make: Callable[[ZonePath, Caller], None] = _nobody_cares
        self.directory_made: Callable[[ZonePath, Caller], None] = _nobody_cares

    async def file(
        self, directory: Node, name: bytes, mode: int, flags: int, caller: Caller, attempt: Attempt = FIRST
    ) -> tuple[Node, os.stat_result, OpenFile]:
        """open(2) with O_CREAT of a name that the kernel believes to be free; the node is left open once.

        A write-once name that the store has is refused (``WriteOnceError``), and any name with O_EXCL.
        """
        place = self._checked(directory, name)
        if self._asks_first(place, name, flags):
            await self._must_be_free(place, name)
        return self._new_file(directory, place, name, mode, flags, caller, attempt)

    def file_nowait(
        self, directory: Node, name: bytes, mode: int, flags: int, caller: Caller
    ) -> tuple[Node, os.stat_result, OpenFile]:
        """``file``, where the store need not be asked first. Raises ``trio.WouldBlock`` elsewhere."""
        place = self._checked(directory, name)
        if self._asks_first(place, name, flags):
            raise trio.WouldBlock
        return self._new_file(directory, place, name, mode, flags, caller, FIRST)

    def _asks_first(self, place: ZonePath, name: bytes, flags: int) -> bool:
        if not self._core.sends(place, name):
            return False
        return bool(flags & os.O_EXCL) or self._core.kind_of(place, name) is NameKind.WRITE_ONCE

    def _new_file(
        self, directory: Node, place: ZonePath, name: bytes, mode: int, flags: int, caller: Caller, attempt: Attempt
    ) -> tuple[Node, os.stat_result, OpenFile]:
        core = self._core
        kind = core.kind_of(place, name) if place.zone.sends else None
        exclusive = bool(flags & os.O_EXCL)
        fd, is_new = self._open_new(directory, name, mode, exclusive and not attempt.resent)
        try:
            stat = self._owned(fd, directory, mode, caller)
            if flags & os.O_TRUNC and stat.st_size:
                os.ftruncate(fd, 0)
                stat = os.fstat(fd)
            if is_new:
                core.index.entries.begin(stat.st_ino)
            self._note_new_file(place, name, kind, stat, caller)
            node = core.nodes.local(directory, name, stat.st_ino, stat.st_mode)
        except BaseException:
            os.close(fd)
            raise
        opened = node.opened
        if opened is None:
            opened = node.opened = OpenFile(node, fd, stat, writable=True)
        else:
            os.close(fd)
        opened.handles += 1
        opened.unsent = opened.unsent or (kind is not None and kind not in LOCAL_KINDS)
        opened.exclusive = exclusive
        return node, stat, opened

    def _note_new_file(
        self, place: ZonePath, name: bytes, kind: NameKind | None, stat: os.stat_result, caller: Caller
    ) -> None:
        """A file is here now at this name; ``kind``: None where nothing is sent."""
        core = self._core
        if kind is NameKind.TEMPORARY:
            self._intents.temporary_made(place.path, name, caller.pid)
        elif kind is not None and kind not in LOCAL_KINDS:
            path = place.child_path(name)
            core.fetcher.detach(path)
            core.mark_dirty(stat, path)
            core.residence.drop_sidecar(path)
            if kind is NameKind.IMMUTABLE:
                self._intents.created(place.path, kind, caller.pid)

    def directory(
        self, parent: Node, name: bytes, mode: int, caller: Caller, attempt: Attempt = FIRST
    ) -> tuple[Node, os.stat_result]:
        """mkdir(2)."""
        core = self._core
        place = self._checked(parent, name)
        child = core.zones.child(place, name)
        if child is None:
            raise ZoneNotPermittedError(f"the mount's root holds zones only, not {os.fsdecode(name)}")
        self.may_make(child, caller)
        parent_fd = core.writable_descriptor(parent)
        above = os.stat(parent_fd)
        mode |= above.st_mode & stat_module.S_ISGID
        attempt.create(partial(os.mkdir, name, mode, dir_fd=parent_fd))
        if core.is_root:
            os.chown(name, caller.uid, _group(above, caller), dir_fd=parent_fd, follow_symlinks=False)
        os.chmod(name, mode, dir_fd=parent_fd)
        stat = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
        if place.zone.remote is not None:
            core.index.marks.hold(stat.st_ino)
            with suppress(NameNotStorableError):  # in localState any name will do
                core.made_directory(child)
            self._intents.directory_made(child.path, caller.pid)
        self.directory_made(child, caller)
        return core.nodes.local(parent, name, stat.st_ino, stat.st_mode), stat

    def special(
        self, directory: Node, name: bytes, mode: int, device: int, caller: Caller, attempt: Attempt = FIRST
    ) -> tuple[Node, os.stat_result]:
        """mknod(2): regular files and, where nothing is sent, FIFOs, sockets and devices."""
        place = self._checked(directory, name)
        if place.zone.sends and not stat_module.S_ISREG(mode):
            raise ZoneNotPermittedError("object stores can't keep special files")
        fd = self._core.writable_descriptor(directory)
        attempt.create(partial(os.mknod, name, mode, device, dir_fd=fd))
        return self._adopt_new(directory, place, name, mode, caller)

    def symlink(
        self, directory: Node, name: bytes, target: bytes, caller: Caller, attempt: Attempt = FIRST
    ) -> tuple[Node, os.stat_result]:
        """symlink(2), where nothing is sent."""
        place = self._checked(directory, name)
        if place.zone.sends:
            raise ZoneNotPermittedError("object stores can't keep symbolic links")
        attempt.create(partial(os.symlink, target, name, dir_fd=self._core.writable_descriptor(directory)))
        return self._adopt_new(directory, place, name, None, caller)

    def _adopt_new(
        self, directory: Node, place: ZonePath, name: bytes, mode: int | None, caller: Caller
    ) -> tuple[Node, os.stat_result]:
        core = self._core
        fd = self._core.writable_descriptor(directory)
        if core.is_root:
            os.chown(name, caller.uid, _group(os.stat(fd), caller), dir_fd=fd, follow_symlinks=False)
        if mode is not None:
            os.chmod(name, stat_module.S_IMODE(mode), dir_fd=fd)
        stat = os.stat(name, dir_fd=fd, follow_symlinks=False)
        core.index.entries.begin(stat.st_ino)
        if stat_module.S_ISREG(stat.st_mode) and core.sends(place, name):
            core.mark_dirty(stat, place.child_path(name))
        return core.nodes.local(directory, name, stat.st_ino, stat.st_mode), stat

    def _checked(self, directory: Node, name: bytes) -> ZonePath:
        place = self._core.directories.place(directory)
        if place.zone.kind is ZoneKind.ROOT:
            raise ZoneNotPermittedError(f"the mount's root holds zones only, not {os.fsdecode(name)}")
        if place.zone.sends:
            key_text(place.zone.key_of(place.child_path(name)))
            if place.path == place.zone.prefix and name == RESERVED:
                raise ZoneNotPermittedError(f"{os.fsdecode(RESERVED)} is Holdfast's own name in a store")
        return place

    async def _must_be_free(self, place: ZonePath, name: bytes) -> None:
        path = place.child_path(name)
        if self._core.index.marks.is_whited_out(path):
            return
        await self._core.remote_of(place.zone).deletions.settle(path)
        if await self._beliefs.known_object(place, name) is not None:
            raise WriteOnceError(f"{os.fsdecode(path)} exists already in the store")

    def _open_new(self, directory: Node, name: bytes, mode: int, exclusive: bool) -> tuple[int, bool]:
        """Return a descriptor, and whether the file was made now."""
        directory_fd = self._core.writable_descriptor(directory)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(name, flags, stat_module.S_IMODE(mode), dir_fd=directory_fd), True
        except FileExistsError:
            if exclusive:
                raise
            return os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory_fd), False

    def _owned(self, fd: int, directory: Node, mode: int, caller: Caller) -> os.stat_result:
        core = self._core
        if core.is_root:
            gid = _group(os.stat(core.directories.descriptor(directory)), caller)
            if (caller.uid, gid) != (0, 0):
                os.fchown(fd, caller.uid, gid)
        if mode & _BITS_THAT_GET_LOST:
            os.fchmod(fd, stat_module.S_IMODE(mode))
        stat = os.fstat(fd)
        if not stat_module.S_ISREG(stat.st_mode):
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
        return stat


def _group(above: os.stat_result, caller: Caller) -> int:
    """Return the group of what ``caller`` makes in the directory with the attributes ``above`` (inode(7), S_ISGID)."""
    return above.st_gid if above.st_mode & stat_module.S_ISGID else caller.gid


def _nobody_cares(place: ZonePath, caller: Caller) -> None:
    del place, caller
