"""CREATE, from top to bottom: check that the name is free if it must be, make the file, and hand out a handle.

In a sending zone the file is sent when it is closed or renamed.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
from typing import NamedTuple

import trio

from holdfast.errors import StaleNodeError, WriteOnceError
from holdfast.fs.file_io.new_handle import Handle, HandOut
from holdfast.fs.file_io.open_limits import OpenLimits
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.entry_updates import EntryUpdates
from holdfast.fs.inodes.name_policy import NamePolicy
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.fs.inodes.replay import FIRST, Attempt
from holdfast.fs.namespace.new_entries import NewEntries
from holdfast.fs.remote_view.create_hints import CreateHints
from holdfast.fs.remote_view.fallback_guard import FallbackGuard
from holdfast.fs.remote_view.revalidation import Revalidation
from holdfast.fs.remote_view.store_view import StoreView
from holdfast.index import Index
from holdfast.transfer import CachedCopies, Fetcher
from holdfast.zones import ZonePath

_BITS_THAT_GET_LOST = stat_module.S_ISUID | stat_module.S_ISGID | 0o022
"""The bits of a mode that are cleared by the chown and by the daemon's own umask."""


class MadeFile(NamedTuple):
    """A file that was just created, and the kernel's handle of it."""

    node: Node
    stat: os.stat_result
    handle: Handle


class Creation:
    """Carries out open(2) with O_CREAT."""

    def __init__(
        self,
        new: NewEntries,
        directories: Directories,
        nodes: NodeTable,
        policy: NamePolicy,
        view: StoreView,
        revalidation: Revalidation,
        hints: CreateHints,
        index: Index,
        updates: EntryUpdates,
        copies: CachedCopies,
        fetcher: Fetcher,
        handing_out: HandOut,
        guard: FallbackGuard,
        limits: OpenLimits,
    ) -> None:
        self._limits = limits
        self._guard = guard
        self._new = new
        self._directories = directories
        self._nodes = nodes
        self._policy = policy
        self._view = view
        self._revalidation = revalidation
        self._hints = hints
        self._entries = index.entries
        self._marks = index.marks
        self._updates = updates
        self._copies = copies
        self._fetcher = fetcher
        self._handing_out = handing_out

    async def file(
        self, directory: Node, name: bytes, mode: int, flags: int, request: int, caller: Caller, attempt: Attempt = FIRST
    ) -> MadeFile:
        """open(2) with O_CREAT, for a name that the kernel takes to be free.

        Raises ``WriteOnceError`` if the store has the name and it is write-once or O_EXCL is set, and
        ``AccessRefusedError``.
        """
        place = self._place_for(directory, name, caller)
        if self._asks_first(place, name, flags):
            await self._check_free(place, name)
        return self._make_file(directory, place, name, mode, flags, request, caller, attempt)

    def file_nowait(self, directory: Node, name: bytes, mode: int, flags: int, request: int, caller: Caller) -> MadeFile:
        """Do what ``file`` does if the store need not be asked first. Raises ``trio.WouldBlock`` otherwise."""
        place = self._place_for(directory, name, caller)
        if self._asks_first(place, name, flags):
            raise trio.WouldBlock
        return self._make_file(directory, place, name, mode, flags, request, caller, FIRST)

    def _make_file(
        self,
        directory: Node,
        place: ZonePath,
        name: bytes,
        mode: int,
        flags: int,
        request: int,
        caller: Caller,
        attempt: Attempt,
    ) -> MadeFile:
        exclusive = bool(flags & os.O_EXCL)
        fd, is_new = self._open_new(directory, name, mode, exclusive=exclusive, resent=attempt.resent)
        try:
            stat = self._owned(fd, directory, mode, caller)
            if flags & os.O_TRUNC and stat.st_size:
                os.ftruncate(fd, 0)
                stat = os.fstat(fd)
            if is_new:
                self._entries.begin(stat.st_ino)
                self._nodes.begin(stat.st_ino)
            is_sent = place.zone.sends and self._note_new_object(place, name, stat, caller)
            node = self._nodes.local(directory, name, stat.st_ino, stat.st_mode)
        except BaseException:
            os.close(fd)
            raise
        opened = _opened(node, fd, stat)
        opened.count()
        opened.created(exclusive=exclusive, is_sent=is_sent)
        handle = self._handing_out.hand_out(opened, request, caller, changes=True)
        return MadeFile(node, stat, handle)

    def _place_for(self, directory: Node, name: bytes, caller: Caller) -> ZonePath:
        """Return the place of ``directory``, where the caller may create ``name`` and open it."""
        place = self._new.place_for(directory, name)
        if caller.uid:
            self._limits.check(caller.uid)
            if place.zone.remote is not None:
                self._guard.check_create(directory, name, caller)
        return place

    def _asks_first(self, place: ZonePath, name: bytes, flags: int) -> bool:
        if not self._policy.sends(place, name):
            return False
        return bool(flags & os.O_EXCL) or self._policy.created_once(place, name)

    async def _check_free(self, place: ZonePath, name: bytes) -> None:
        """Ask the store whether it has the name. Raises ``WriteOnceError`` if so, and ``RemoteError``."""
        path = place.child_path(name)
        if self._marks.is_whited_out(path):
            return
        await self._view.deletions_of(place.zone).settle(path)
        if await self._revalidation.known_object(place, name) is not None:
            raise WriteOnceError(f"{os.fsdecode(path)} exists already in the store")

    def _note_new_object(self, place: ZonePath, name: bytes, stat: os.stat_result, caller: Caller) -> bool:
        """Record a new file in a sending zone. Return whether it becomes an object under this name."""
        kind = self._policy.kind_of(place, name)
        if kind.policy.awaits_rename:
            self._hints.temporary_made(place.path, name, caller.pid)
        if kind.policy.stays_here:
            return False
        path = place.child_path(name)
        self._fetcher.detach(path)
        self._updates.mark_dirty(stat, path)
        self._copies.drop_sidecar(path)
        return True

    def _open_new(self, directory: Node, name: bytes, mode: int, *, exclusive: bool, resent: bool) -> tuple[int, bool]:
        """Return a descriptor, and whether the file was newly created. A resent request may find the file that it made.

        For any other request, an existing file came after the kernel's lookup. Raises ``StaleNodeError`` then, so that the
        kernel looks again and checks who may open it; if ``exclusive``, ``FileExistsError``.
        """
        directory_fd = self._directories.descriptor_for_new(directory)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(name, flags, stat_module.S_IMODE(mode), dir_fd=directory_fd), True
        except FileExistsError:
            if not resent and exclusive:
                raise
            if not resent:
                raise StaleNodeError("another file has this name by now") from None
            return os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory_fd), False

    def _owned(self, fd: int, directory: Node, mode: int, caller: Caller) -> os.stat_result:
        self._new.give_file(fd, self._directories.descriptor(directory), caller)
        if mode & _BITS_THAT_GET_LOST:
            os.fchmod(fd, stat_module.S_IMODE(mode))
        stat = os.fstat(fd)
        if not stat_module.S_ISREG(stat.st_mode):
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
        return stat


def _opened(node: Node, fd: int, stat: os.stat_result) -> OpenFile:
    """Return the open file of a node. Takes over ``fd`` if there was none; closes it otherwise."""
    if node.opened is None:
        node.opened = OpenFile(node, fd, stat, writable=True)
    else:
        os.close(fd)
    return node.opened
