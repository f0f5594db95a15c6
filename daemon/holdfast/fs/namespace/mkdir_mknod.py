"""New directories, special files and symbolic links: mkdir, mknod, symlink."""

from __future__ import annotations

import os
import stat as stat_module
from contextlib import suppress
from functools import partial
from typing import Protocol

from holdfast.errors import NameNotStorableError, ZoneNotPermittedError
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.name_policy import Name
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.replay import FIRST, Attempt
from holdfast.fs.namespace.new_entries import NewEntries, check_storable
from holdfast.fs.remote_view.fallback_guard import FallbackGuard
from holdfast.system.file_id import FileStat, file_stat
from holdfast.zones import ZonePath


class DirectoryRules(Protocol):
    """Rules for new directories (``workdirs``)."""

    def check_new_directory(self, place: ZonePath, caller: Caller) -> None:
        """Raise an error if ``caller`` may not make a directory at ``place``."""

    def directory_made(self, place: ZonePath, caller: Caller) -> None:
        """Note that ``caller`` has made a directory at ``place``; the reply follows."""


class Making:
    """Makes entries that are not opened at the same time."""

    def __init__(self, base: Foundation, guard: FallbackGuard, new: NewEntries, rules: DirectoryRules) -> None:
        self._new = new
        self._directories, self._nodes, self._updates = base.directories, base.nodes, base.updates
        self._admission, self._tree = base.admission, base.parts.store.tree
        self._zones, self._index, self._view = base.parts.zones, base.parts.index, base.view
        self._rules = rules
        self._guard = guard

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
            self._updates.mark_dirty(stat, name.path)
        return self._nodes.local(name.directory, name.name, stat.st_ino, stat.st_mode), stat
