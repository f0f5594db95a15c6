"""Rights of callers to objects by the objects' own paths, in the zone of their store.

``localState`` and ``blobStorage`` show objects under other names, in directories of other owners, so the kernel's checks of
owner and mode do not protect them there. Here the caller's rights to the object's own path count: search permission on each
directory from the root of the store's zone down, then the permission that it wants on the object or its directory.

What is in the local tree has its own owner and mode, everything else those of the store (``Ownership``). So no answer needs
a request to the store, and none depends on whether the object exists. Must not know: which names are objects.
"""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from holdfast.fs.inodes.caller import Asker, CallerGroups
from holdfast.store import Tree
from holdfast.system.file_id import file_stat
from holdfast.transfer import Ownership
from holdfast.zones import LONGEST_KEY_BYTES, ZonePath

READ, WRITE, SEARCH = 4, 2, 1
"""The permission bits as in the last digit of a mode."""
_LEVELS_AT_ONCE = 16


class _Owned(NamedTuple):
    """The owner and mode of a directory or file, and whether it is in the local tree."""

    st_uid: int
    st_gid: int
    st_mode: int
    is_local: bool


_BARRED = _Owned(0, 0, 0, is_local=True)
"""Stands for what can't be told, or has the wrong type, as a file in the place of a directory: it is for root alone."""


@dataclass(eq=False)
class ObjectRights:
    """Answers for places in working directories, about the paths that they fall back to. User 0 may do everything.

    ``owners`` maps each store to the ownership of what is not in the local tree. The event loop asks, so an answer takes
    time for the levels of the object's directory, once each, and ends at the first refusal. Nobody but user 0 has rights to
    keys of more than ``LONGEST_KEY_BYTES``.
    """

    _tree: Tree
    _owners: Mapping[str, Ownership]
    _groups: CallerGroups = field(init=False, default_factory=CallerGroups)

    def may_search(self, place: ZonePath, caller: Asker) -> bool:
        """Say whether the caller may look up names in the store's directory behind ``place``."""
        if caller.uid == 0:
            return True
        asking = _Asking(caller, self._groups)
        return self._reached(place, asking.may_search) is not None

    def may_list(self, place: ZonePath, caller: Asker) -> bool:
        """Say whether the caller may list the store's directory behind ``place``."""
        if caller.uid == 0:
            return True
        asking = _Asking(caller, self._groups)
        reached = self._reached(place, asking.may_search)
        return reached is not None and asking.may(reached.directory, READ)

    def may_access(self, place: ZonePath, name: bytes, wanted: int, caller: Asker) -> bool:
        """Say whether the caller may do what is ``wanted`` (``READ | WRITE``) with the object of this name."""
        return not self.denied(place, [name], wanted, caller)

    def denied(self, place: ZonePath, names: Sequence[bytes], wanted: int, caller: Asker) -> Sequence[bytes]:
        """Return those of the names with whose objects the caller may not do what is ``wanted`` (``READ | WRITE``)."""
        if caller.uid == 0:
            return []
        asking = _Asking(caller, self._groups)
        reached = self._reached(place, asking.may_search, names)
        if reached is None:
            return names
        return [name for name, object_ in zip(names, reached.objects, strict=True) if not asking.may(object_, wanted)]

    def may_put(self, place: ZonePath, name: bytes, caller: Asker) -> bool:
        """Say whether the caller may create or replace the object of this name.

        If its directory is not in the local tree, both the directory that the store would show and the nearest one that
        is local must allow it. Whether a name in a sticky directory is free is not asked: it counts as taken.
        """
        if caller.uid == 0:
            return True
        asking = _Asking(caller, self._groups)
        reached = self._reached(place, asking.may_search, [name])
        if reached is None:
            return False
        owner = reached.objects[0].st_uid
        return all(asking.may_put_into(directory, owner) for directory in (reached.nearest, reached.directory))

    def are_open_to_all(self, place: ZonePath) -> bool:
        """Say whether everybody may look up names in the store's directory behind ``place``."""
        return self._reached(place, lambda directory: directory.st_mode & 0o111 == 0o111) is not None

    def _reached(self, place: ZonePath, may_pass: Callable[[_Owned], bool], names: Sequence[bytes] = ()) -> _Reached | None:
        """Go down to the store's directory behind ``place``; None if one on the way, or that itself, may not be passed.

        ``names`` are those of objects in it to look at.
        """
        assert place.zone.remote is not None
        key = place.zone.key_of(place.path) if place.path != place.zone.prefix else b""
        if len(key) > LONGEST_KEY_BYTES:
            return None
        ownership = self._owners[place.zone.remote]
        zone = os.fsencode(place.zone.remote)
        with closing(_LocalWay(self._tree, is_spread=self._tree.is_placed_below(zone))) as way:
            found = way.down(zone) or _implied_directory(ownership, os.stat(self._tree.root_fd))
            nearest = found
            if not may_pass(found):
                return None
            for name in key.split(b"/") if key else ():
                local = way.down(name) if found.is_local else None
                if local is None and not found.is_local:
                    break  # what is implied in what is implied has the same owner and mode
                found, nearest = local or _implied_directory(ownership, found), local or nearest
                if not may_pass(found):
                    return None
            object_of_others = _Owned(*ownership.owner(found), ownership.file_mode, is_local=False)
            objects = [(way.look(name) if found.is_local else None) or object_of_others for name in names]
        return _Reached(found, nearest, objects)


class _Reached(NamedTuple):
    """A store's directory with its rights, the nearest one at or above it, and objects in it.

    ``nearest`` is the nearest one that is in the local tree, or the root of the zone.
    """

    directory: _Owned
    nearest: _Owned
    objects: list[_Owned]


class _LocalWay:
    """A walk down the local tree from its root, which takes time for each level once.

    ``is_spread`` says whether directories on the way may be on other disks.

    Paths are short: after some levels the directory there is opened, and the walk goes on from it. All on the way are found
    to be directories in one step of the event loop, so no symbolic link is followed.
    """

    def __init__(self, tree: Tree, *, is_spread: bool) -> None:
        self._tree = tree
        self._anchor = tree.root_fd
        self._names: list[bytes] = []
        self._levels_at_once = 1 if is_spread else _LEVELS_AT_ONCE
        """One where directories are on other disks: the system does not find the way from one to the next by itself."""

    def down(self, name: bytes) -> _Owned | None:
        """Go down to a directory, and return its owner and mode: ``_BARRED`` if it is none, None if there is nothing."""
        found = self._owned(name, stat_module.S_IFDIR)
        self._names.append(name)
        return found

    def look(self, name: bytes) -> _Owned | None:
        """Return the owner and mode of a file here: ``_BARRED`` if it is no regular one, None if there is nothing."""
        return self._owned(name, stat_module.S_IFREG)

    def _enter(self) -> None:
        """Go on from the directory that was come to. Raises ``OSError``."""
        try:
            fd = self._tree.open_child(self._anchor, b"/".join(self._names))
        except FileNotFoundError as problem:  # it is on a disk that has failed: nobody knows who may pass
            raise OSError(problem.errno, problem.strerror) from None
        self.close()
        self._anchor, self._names = fd, []

    def close(self) -> None:
        """Close what was opened."""
        if self._anchor != self._tree.root_fd:
            os.close(self._anchor)
            self._anchor = self._tree.root_fd

    def _owned(self, name: bytes, kind: int) -> _Owned | None:
        try:
            if len(self._names) == self._levels_at_once:
                self._enter()
            stat = file_stat(b"/".join([*self._names, name]), dir_fd=self._anchor, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError:  # a name too long for the disk, or a disk that has failed
            return _BARRED
        if stat_module.S_IFMT(stat.st_mode) != kind:
            return _BARRED
        return _Owned(stat.st_uid, stat.st_gid, stat.st_mode, is_local=True)


def _implied_directory(ownership: Ownership, above: _Owned | os.stat_result) -> _Owned:
    return _Owned(*ownership.owner(above), ownership.directory_mode, is_local=False)


class _Asking:
    """The caller, for the time of one question: its supplementary groups are read once, and only if they matter."""

    def __init__(self, caller: Asker, groups: CallerGroups) -> None:
        self._caller = caller
        self._all_groups = groups

    @cached_property
    def _groups(self) -> Container[int]:
        return self._all_groups.of(self._caller)

    def may_search(self, directory: _Owned) -> bool:
        return self.may(directory, SEARCH)

    def may_put_into(self, directory: _Owned, owner_of_object: int) -> bool:
        if not self.may(directory, WRITE | SEARCH):
            return False
        return not directory.st_mode & stat_module.S_ISVTX or self._caller.uid in (directory.st_uid, owner_of_object)

    def may(self, file: _Owned, wanted: int) -> bool:
        """Decide as path_resolution(7) does: the first class that the caller is in counts."""
        if self._caller.uid == file.st_uid:
            return file.st_mode >> 6 & wanted == wanted
        of_group, of_others = file.st_mode >> 3 & wanted == wanted, file.st_mode & wanted == wanted
        if of_group == of_others:
            return of_others
        is_member = file.st_gid == self._caller.gid or file.st_gid in self._groups
        return of_group if is_member else of_others
