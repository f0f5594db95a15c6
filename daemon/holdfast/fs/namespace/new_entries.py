"""Where new entries may be made, and whose they are."""

from __future__ import annotations

import os
import stat as stat_module

from holdfast.errors import ZoneNotPermittedError
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.nodes import Node
from holdfast.fs.remote_view.store_view import key_text
from holdfast.fs.remote_view.visibility import RESERVED, Visibility
from holdfast.zones import ZoneKind, ZonePath


class NewEntries:
    """What all makers of entries share. New entries belong to their caller where the daemon ``is_root``."""

    def __init__(self, directories: Directories, visibility: Visibility, *, is_root: bool) -> None:
        self._directories = directories
        self._visibility = visibility
        self._is_root = is_root

    def place_for(self, directory: Node, name: bytes) -> ZonePath:
        """Return where ``directory`` is. Raises ``ZoneNotPermittedError`` and ``NameNotStorableError`` for other names."""
        place = self._directories.place(directory)
        if place.zone.kind is ZoneKind.ROOT:
            raise ZoneNotPermittedError(f"the mount's root holds zones only, not {os.fsdecode(name)}")
        if place.zone.sends:
            key_text(place.zone.key_of(place.child_path(name)))
            if self._visibility.is_reserved(place, name):
                raise ZoneNotPermittedError(f"{os.fsdecode(RESERVED)} is Holdfast's own name in a store")
        return place

    def give(self, name: bytes, directory_fd: int, above: os.stat_result, caller: Caller) -> None:
        """Let an entry that was made just now, in a directory with the attributes ``above``, belong to ``caller``."""
        if self._is_root:
            os.chown(name, caller.uid, group_of_new(above, caller), dir_fd=directory_fd, follow_symlinks=False)

    def give_file(self, fd: int, directory_fd: int, caller: Caller) -> None:
        """Let a file, open as ``fd``, belong to ``caller``; a file of root's own is left as it was made."""
        if self._is_root:
            gid = group_of_new(os.stat(directory_fd), caller)
            if (caller.uid, gid) != (0, 0):
                os.fchown(fd, caller.uid, gid)


def group_of_new(above: os.stat_result, caller: Caller) -> int:
    """Return the group of what ``caller`` makes in the directory with the attributes ``above`` (inode(7), S_ISGID)."""
    return above.st_gid if above.st_mode & stat_module.S_ISGID else caller.gid
