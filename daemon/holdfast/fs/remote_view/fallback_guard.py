"""Guards ``localState`` and ``blobStorage``: what they show of a store, and send to it, is for callers with rights there.

It tells objects and their copies from a process's own files, and asks ``ObjectRights`` about the former. An object that
the caller can't see at its own path does not exist for it here. A check takes place when a call names something; what is
open stays usable. Callers with user 0, and names outside these zones, pass.
"""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import Iterable, Iterator

import trio

from holdfast.errors import AccessRefusedError, HoldsObjectsError
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.name_policy import Name
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.object_rights import READ, WRITE
from holdfast.store import is_copy
from holdfast.system.file_id import NO_FILE, FileId, FileStat
from holdfast.zones import ZoneName, ZonePath

_MOST_LEVELS = 2048
"""The limit of levels of all directories that a file has names in, together: some milliseconds."""


class FallbackGuard:
    """Raises ``AccessRefusedError`` for what a caller may not do; ``hides`` says what it may not know."""

    def __init__(self, base: Foundation) -> None:
        self._rights, self._directories, self._policy = base.rights, base.directories, base.policy
        self._tree, self._index = base.parts.store.tree, base.parts.index
        self._copies, self._rare_events = base.copies, base.rare_events

    # --- what a caller sees --------------------------------------------------------------------------------------------

    def hides(self, name: Name, stat: FileStat | None, caller: Caller) -> bool:
        """Say whether a name does not exist for the caller; ``stat`` is that of the local entry, if there is one."""
        if not _is_guarded(name.place, caller) or self._rights.may_search(name.place, caller):
            return False
        if stat is not None and stat_module.S_ISDIR(stat.st_mode):
            return not self._index.marks.is_held(stat.st_ino)
        return self._is_object(name, NO_FILE if stat is None else stat.st_ino)

    def check_list(self, directory: Node, caller: Caller) -> None:
        """Check a caller that is about to list a directory, which shows what was fetched into it."""
        place = self._directories.place(directory)
        if not _is_guarded(place, caller) or self._rights.may_list(place, caller):
            return
        if directory.backing and place.path == place.zone.prefix:
            is_own = os.stat(self._directories.descriptor(directory)).st_uid == caller.uid
        else:
            is_own = directory.backing != 0 and self._index.marks.is_held(directory.backing)
        if not is_own:
            raise self._refused(place, b"", caller)

    # --- what a caller reads and writes ----------------------------------------------------------------------------------

    def check_open(self, node: Node, flags: int, caller: Caller) -> None:
        """Check a caller that is about to open a file. All objects that the file is a copy of, or will be, must allow it.

        A copy that has lost its name can't be opened again: nothing tells which object it is a copy of. Nor can one with
        names in so many directories that checking the rights to each would keep everybody waiting.
        """
        if caller.uid == 0:
            return
        levels = 0
        for parent, names in self._guarded_names(node, caller):
            place = self._directories.place(parent)
            levels += place.path.count(b"/")
            if levels > _MOST_LEVELS:
                raise AccessRefusedError("the object has names in too many directories for its rights to be checked")
            self._check_access(parent, place, names, node.backing, flags, caller)
        if not node.is_named and node.opened is not None and is_copy(node.opened.fd):
            raise AccessRefusedError("a copy of an object can't be opened again once it has no name")

    def check_take(self, name: Name, stat: FileStat | None, caller: Caller) -> None:
        """Check a caller that is about to give an entry another name, which may be anybody's: it must be able to read it.

        A directory that may hold copies, and that it could not list in the store, raises ``HoldsObjectsError``.
        """
        if stat is None or not stat_module.S_ISDIR(stat.st_mode):
            inode = NO_FILE if stat is None else stat.st_ino
            self._check_access(name.directory, name.place, [name.name], inode, os.O_RDONLY, caller)
            return
        if not _is_guarded(name.place, caller) or self._index.marks.is_held(stat.st_ino):
            return
        if not self._rights.may_list(ZonePath(name.zone, name.path), caller):
            raise HoldsObjectsError(f"{os.fsdecode(name.name)} may hold objects of the store; mv copies what it can read")

    async def check_take_below(self, names: Iterable[Name], caller: Caller) -> None:
        """Do ``check_take`` for all files below local directories. Raises ``HoldsObjectsError``; waits for the disk.

        The answer holds until the next await: a directory into which a copy is placed meanwhile is refused as well.
        """
        guarded = [name for name in names if _is_guarded(name.place, caller)]
        with self._copies.placements() as placed:
            for name in guarded:
                if await trio.to_thread.run_sync(self._holds_closed, name, caller):
                    raise HoldsObjectsError(
                        f"{os.fsdecode(name.name)} holds objects that user {caller.uid} can't read; mv copies the others"
                    )
        if any(path.startswith(name.path + b"/") for name in guarded for path in placed):
            raise HoldsObjectsError("an object has just been fetched into it; mv copies what it can read")

    def check_put(self, name: ZoneName, caller: Caller) -> None:
        """Check a caller that is about to make or replace an entry. For an object, its directory must allow that."""
        if not _is_guarded(name.place, caller) or not name.sends:
            return
        if not self._rights.may_put(name.place, name.name, caller):
            raise self._refused(name.place, name.name, caller)

    def check_create(self, name: Name, caller: Caller) -> None:
        """Do ``check_put`` for a call that opens what is there already: a copy that the kernel does not know of."""
        if not _is_guarded(name.place, caller):
            return
        self.check_put(name, caller)
        stat = self._directories.stat(name.directory, name.name)
        if stat is not None:
            self._check_access(name.directory, name.place, [name.name], stat.st_ino, os.O_RDWR, caller)

    # ------------------------------------------------------------------------------------------------------------------

    def _guarded_names(self, node: Node, caller: Caller) -> Iterator[tuple[Node, list[bytes]]]:
        """Yield by directory the names of a file that may be objects' and that the caller may have no rights to."""
        has_many, may_be_copy = node.more_names is not None, None
        for parent, names in node.names_by_directory().items():
            place = self._directories.place(parent)
            if not _is_guarded(place, caller):
                continue
            if has_many and node.backing and not place.zone.sends:
                if may_be_copy is None:  # it is one under all of its names, or under none
                    may_be_copy = self._may_be_copy(parent, names[0], node.backing)
                if not may_be_copy:
                    continue
            yield parent, names

    def _may_be_copy(self, directory: Node, name: bytes, inode: FileId) -> bool:
        entry = self._index.entries.get(inode)
        return (entry is not None and bool(entry.names)) or self._is_marked(directory, name)

    def _is_marked(self, directory: Node, name: bytes) -> bool:
        """Say whether a local file is marked as a copy."""
        return directory.backing != 0 and is_copy(b"/proc/self/fd/%d/%s" % (self._directories.descriptor(directory), name))

    def _check_access(
        self, directory: Node, place: ZonePath, names: list[bytes], inode: FileId, flags: int, caller: Caller
    ) -> None:
        """Raise an error if the caller may not open the objects of a file's names in a directory.

        ``inode`` is that of the local file, or 0.
        """
        if not _is_guarded(place, caller):
            return
        wanted = READ
        if place.zone.sends:
            reads, writes = flags & os.O_ACCMODE != os.O_WRONLY, flags & (os.O_ACCMODE | os.O_TRUNC)
            wanted = (READ if reads else 0) | (WRITE if writes else 0)
        for name in self._rights.denied(place, names, wanted, caller):
            if self._is_object(self._policy.name(directory, name), inode):
                raise self._refused(place, name, caller)

    def _holds_closed(self, name: ZoneName, caller: Caller) -> bool:
        """Say whether a file below a directory is a copy that the caller can't read at its own path."""
        for path, stat in self._tree.walk(name.path):
            parent, _, last = path.rpartition(b"/")
            if self._rights.may_access(ZonePath(name.zone, parent), last, READ, caller):
                continue
            entry = self._index.entries.get(stat.st_ino)
            if entry is not None and entry.name_at(path) is not None:
                return True
            if is_copy(self._tree.system_path(path)):
                return True
        return False

    def _is_object(self, name: Name, inode: FileId) -> bool:
        """Say whether a name is an object's, or will be; ``inode`` is that of the local file, or 0."""
        if name.policy.stays_here:
            return False
        if inode == 0 or name.zone.sends:
            return True
        entry = self._index.entries.get(inode)
        if entry is not None and entry.name_at(name.path) is not None:
            return True
        return self._is_marked(name.directory, name.name)

    def _refused(self, place: ZonePath, name: bytes, caller: Caller) -> AccessRefusedError:
        assert place.zone.remote is not None
        key = place.zone.key_of(place.child_path(name))
        self._rare_events.emit("access-refused", store=place.zone.remote, uid=caller.uid)
        return AccessRefusedError(f"user {caller.uid} has no right to {os.fsdecode(key)} in {place.zone.remote}")


def _is_guarded(place: ZonePath, caller: Caller) -> bool:
    return caller.uid != 0 and place.zone.remote is not None and not place.zone.is_store
