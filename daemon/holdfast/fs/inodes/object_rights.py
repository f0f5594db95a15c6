"""Rights of callers to objects by the objects' own paths, in the zone of their store.

``localState`` and ``blobStorage`` show objects under other names, in directories of other owners, so the kernel's checks of
owner and mode do not protect them there. Here the rights count that the caller has to the object's own path: search
permission on each directory from the root of the store's zone down, then what it wants of the object or of its directory.

What is in the local tree has its own owner and mode, everything else those of the store (``Ownership``). So no answer needs
a request to the store, and none depends on whether the object exists. Must not know: which names are objects.
"""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from holdfast.fs.inodes.caller import Asker
from holdfast.store import Tree
from holdfast.transfer import Ownership
from holdfast.zones import ZonePath

READ, WRITE, SEARCH = 4, 2, 1
"""Permission bits as in the last digit of a mode."""


class _Owned(NamedTuple):
    """Owner and mode of a directory or file, and whether it is in the local tree."""

    st_uid: int
    st_gid: int
    st_mode: int
    is_local: bool


_BARRED = _Owned(0, 0, 0, is_local=True)
"""What can't be told, or is in the place of something else, as a file is in that of a directory: for root alone."""


class ObjectRights:
    """Answers for places in working directories, about the paths that they fall back to. User 0 may do everything.

    ``owners`` maps each store to the ownership of what is not in the local tree.
    """

    def __init__(self, tree: Tree, owners: Mapping[str, Ownership]) -> None:
        self._tree = tree
        self._owners = owners

    def may_search(self, place: ZonePath, caller: Asker) -> bool:
        """Say whether the caller may look up names in the store's directory behind ``place``."""
        return caller.uid == 0 or _Asking(caller).may_search(self._directories(place))

    def may_list(self, place: ZonePath, caller: Asker) -> bool:
        """Say whether the caller may list the store's directory behind ``place``."""
        if caller.uid == 0:
            return True
        asking, directories = _Asking(caller), self._directories(place)
        return asking.may_search(directories) and asking.may(directories[-1], READ)

    def may_access(self, place: ZonePath, name: bytes, wanted: int, caller: Asker) -> bool:
        """Say whether the caller may do what is ``wanted`` (``READ | WRITE``) with the object of this name."""
        if caller.uid == 0:
            return True
        asking, directories = _Asking(caller), self._directories(place)
        return asking.may_search(directories) and asking.may(self._object(place, name, directories[-1]), wanted)

    def may_put(self, place: ZonePath, name: bytes, caller: Asker) -> bool:
        """Say whether the caller may create or replace the object of this name.

        If its directory is not in the local tree, both the directory that the store would show and the nearest one that
        is local must allow it. Whether a name in a sticky directory is free is not asked: it counts as taken.
        """
        if caller.uid == 0:
            return True
        asking, directories = _Asking(caller), self._directories(place)
        if not asking.may_search(directories):
            return False
        owner = self._object(place, name, directories[-1]).st_uid
        nearest = next(directory for directory in reversed(directories) if directory.is_local)
        return all(asking.may_put_into(directory, owner) for directory in (nearest, directories[-1]))

    def are_open_to_all(self, place: ZonePath) -> bool:
        """Say whether everybody may look up names in the store's directory behind ``place``."""
        return all(directory.st_mode & 0o111 == 0o111 for directory in self._directories(place))

    def _directories(self, place: ZonePath) -> list[_Owned]:
        """Return the directories above the objects at ``place``, from the root of their zone down."""
        assert place.zone.remote is not None
        ownership = self._owners[place.zone.remote]
        path = os.fsencode(place.zone.remote)
        found = [self._local(path, stat_module.S_IFDIR) or _implied_directory(ownership, os.stat(self._tree.root_fd))]
        key = place.zone.key_of(place.path) if place.path != place.zone.prefix else b""
        for name in key.split(b"/") if key else ():
            path += b"/" + name
            local = self._local(path, stat_module.S_IFDIR) if found[-1].is_local else None
            found.append(local or _implied_directory(ownership, found[-1]))
        return found

    def _object(self, place: ZonePath, name: bytes, above: _Owned) -> _Owned:
        assert place.zone.remote is not None
        path = os.fsencode(place.zone.remote) + b"/" + place.key_of(name)
        local = self._local(path, stat_module.S_IFREG) if above.is_local else None
        if local is not None:
            return local
        ownership = self._owners[place.zone.remote]
        return _Owned(*ownership.owner(above), ownership.file_mode, is_local=False)

    def _local(self, path: bytes, kind: int) -> _Owned | None:
        """Return what the tree has at ``path``, ``_BARRED`` if that is not of this ``kind`` (S_IF*), and None if nothing.

        All above it were found to be directories in this step of the event loop, so no symbolic link is followed.
        """
        try:
            stat = os.stat(path, dir_fd=self._tree.root_fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError:  # a path too long for a system call
            return _BARRED
        if stat_module.S_IFMT(stat.st_mode) != kind:
            return _BARRED
        return _Owned(stat.st_uid, stat.st_gid, stat.st_mode, is_local=True)


def _implied_directory(ownership: Ownership, above: _Owned | os.stat_result) -> _Owned:
    return _Owned(*ownership.owner(above), ownership.directory_mode, is_local=False)


class _Asking:
    """The caller, for the time of one question: its supplementary groups are read once, and only if they matter."""

    def __init__(self, caller: Asker) -> None:
        self._caller = caller

    @cached_property
    def _groups(self) -> frozenset[int]:
        return self._caller.supplementary_groups() | {self._caller.gid}

    def may_search(self, directories: list[_Owned]) -> bool:
        return all(self.may(directory, SEARCH) for directory in directories)

    def may_put_into(self, directory: _Owned, owner_of_object: int) -> bool:
        if not self.may(directory, WRITE | SEARCH):
            return False
        return not directory.st_mode & stat_module.S_ISVTX or self._caller.uid in (directory.st_uid, owner_of_object)

    def may(self, file: _Owned, wanted: int) -> bool:
        """Decide as path_resolution(7) does: the first class counts that the caller is in."""
        if self._caller.uid == file.st_uid:
            return file.st_mode >> 6 & wanted == wanted
        of_group, of_others = file.st_mode >> 3 & wanted == wanted, file.st_mode & wanted == wanted
        if of_group == of_others:
            return of_others
        return of_group if file.st_gid in self._groups else of_others
