"""Checks and ownership for new entries."""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import Callable

from holdfast.errors import ZoneNotPermittedError, ZoneRootBusyError
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.name_policy import Name
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.replay import Attempt
from holdfast.fs.remote_view.visibility import RESERVED, Visibility
from holdfast.zones import Zone, ZoneKind


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


def check_not_root(*names: Name) -> None:
    """Raise ``ZoneRootBusyError`` if one of the names is in the root of the mount, whose entries are the zones."""
    for name in names:
        if name.zone.kind is ZoneKind.ROOT:
            raise ZoneRootBusyError("the zones of the mount can't be renamed")


def check_storable(zone: Zone, mode: int) -> None:
    """Raise ``ZoneNotPermittedError`` if an entry of this file type may not come into a zone.

    A link or special file may not come into a zone that sends even under a temporary name: the directory may lose that name.
    """
    if zone.sends and not (stat_module.S_ISREG(mode) or stat_module.S_ISDIR(mode)):
        raise ZoneNotPermittedError("object stores can't keep symbolic links and special files")


def group_of_new(above: os.stat_result, caller: Caller) -> int:
    """Return the group of a new entry of ``caller`` in a directory with the attributes ``above`` (inode(7), S_ISGID)."""
    return above.st_gid if above.st_mode & stat_module.S_ISGID else caller.gid
