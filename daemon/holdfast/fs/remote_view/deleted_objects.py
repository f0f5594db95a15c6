"""Follow-up to what this daemon's sweeps delete in the store, and clones and undone rewinds copy there.

Copies are dropped as by an eviction, but are not fetched again; open files stay readable. The kernel's names are
invalidated. The cached listings record the deletions, so that a LIST under way does not bring a name back.

Temporary files that writers have left on this node (``Leftovers``) are found and removed for them as well. No store has
them, so no listing of a store shows them. A writer makes the name of such a file up anew at each attempt, and renames the
file once it is complete. If it is killed before that, nobody comes back for the file. Which names are of this kind, the
checkpoint formats say. A file that anybody may still want is told by its times: whoever writes, links or renames it sets its
ctime, which nobody can set back.
"""

from __future__ import annotations

import stat as stat_module
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import trio

from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.reachability import Listed
from holdfast.errors import FileBusyError
from holdfast.fs.foundation import Foundation
from holdfast.fs.remote_view.create_hints import CreateHints
from holdfast.index import EntryState
from holdfast.store import Tree
from holdfast.system.file_id import FileStat
from holdfast.zones import NameTable, sidecar_owner

_IN_ONE_GO = 50


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Finds what writers have left in the zones of stores, by paths in the tree."""

    _tree: Tree
    _names: NameTable
    _formats: Formats = FORMATS

    def below(self, path: bytes, before_ns: int) -> Iterator[tuple[bytes, FileStat]]:
        """Yield those below the directory at ``path`` that were not touched after ``before_ns``.

        It waits for the disk: call it in a thread.
        """
        for child, stat in self._tree.walk(path, is_wanted=self.has_name):
            if _is_file_from_before(stat, before_ns):
                yield child, stat

    def at(self, path: bytes, before_ns: int) -> FileStat | None:
        """Return the attributes of the one at ``path`` if it is there and was not touched after ``before_ns``."""
        try:
            stat = self._tree.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return stat if self.has_name(path) and _is_file_from_before(stat, before_ns) else None

    def has_name(self, path: bytes) -> bool:
        """Say whether a file at ``path`` is one of them by its name: it, or the file whose checksum it is."""
        name = path.rpartition(b"/")[2]
        if not self._formats.is_of_one_attempt(sidecar_owner(name) or name):
            return False
        return self._names.kind_of(path.partition(b"/")[2]).policy.stays_here


class DeletedObjects:
    """The local side of ``checkpoints.sweeps``. ``zone`` is the name of a store, ``key`` the key of one of its objects."""

    def __init__(self, base: Foundation, hints: CreateHints) -> None:
        parts = base.parts
        self._nodes, self._copies, self._fetcher = base.nodes, base.copies, base.fetcher
        self._remotes, self._tree, self._index = parts.remotes, parts.store.tree, parts.index
        self._invalidation = base.invalidation
        self._hints = hints
        self._leftovers = Leftovers(parts.store.tree, parts.names)

    def in_use(self, zone: str, key: str) -> bool:
        """Say whether the object has, or may have, bytes that exist only here. It must not be deleted then."""
        try:
            inode = self._tree.inode(_path(zone, key))
        except FileBusyError:  # nobody can look
            return True
        if not inode:
            return False
        node = self._nodes.of_backing(inode)
        if node is not None and node.opened is not None and node.opened.may_change:
            return True
        entry = self._index.entries.get(inode)
        return entry is None or entry.state is not EntryState.CLEAN

    async def gone(self, zone: str, keys: list[str]) -> None:
        """Forget objects in batches, serving requests in between. On return the kernel has dropped the names too."""
        to_invalidate: list[tuple[int, bytes]] = []
        for index, key in enumerate(keys):
            self._forget(zone, key, to_invalidate)
            if index % _IN_ONE_GO == _IN_ONE_GO - 1:
                await trio.lowlevel.checkpoint()
        await self._invalidation.invalidate_now(to_invalidate)

    async def directory_gone(self, zone: str, key: str, *, for_good: bool) -> None:
        """Drop the cached listings of a directory that the store may have removed.

        The local directory stays, because a process may be about to write into it, until a listing shows that nothing
        implies it. With ``for_good`` an empty one is removed at once.
        """
        path = _path(zone, key)
        with suppress(FileBusyError):  # a process holds it up; it stays until a listing shows that nothing implies it
            inode = self._tree.inode(path)
            if for_good and inode and not self._index.marks.is_held(inode):
                self._copies.drop_directory(path)
        directories = self._remotes[zone].directories
        directories.forget_below(key)
        directories.deleted(key)
        await trio.lowlevel.checkpoint()

    async def directory_made(self, zone: str, key: str) -> None:
        """Note that the store has objects below ``key`` that this node has not written. On return any thread sees them."""
        await self._appeared(self._seen_directory(zone, key))

    async def objects_made(self, zone: str, keys: Sequence[str]) -> None:
        """Note that the store has these objects, which this node has not written. On return any thread sees them."""
        names = [
            name for directory in {key.rpartition("/")[0] for key in keys} for name in self._seen_directory(zone, directory)
        ]
        names += [name for key in keys for name in self._known_to_kernel(zone, key)]
        await self._appeared(names)

    async def leftovers(self, zone: str, root: str, before_ns: int) -> list[Listed]:
        """Return what ended writers have left below ``root``, and nobody has touched after ``before_ns`` by this clock."""
        top = _path(zone, root) if root else zone.encode()
        found = await trio.to_thread.run_sync(lambda: list(self._leftovers.below(top, before_ns)))
        return [Listed(path[len(top) + 1 :], stat.st_size, stat.st_mtime_ns) for path, stat in found]

    def is_leftover(self, zone: str, key: str) -> bool:
        """Say whether there is a file here that an ended writer may have left."""
        path = _path(zone, key)
        return self._leftovers.has_name(path) and bool(self._tree.inode(path))

    async def remove_leftovers(self, zone: str, keys: Sequence[str], before_ns: int) -> tuple[list[str], int]:
        """Remove those that nobody has open or has touched after ``before_ns``.

        Return their keys, and how many others are in use. On return the kernel has dropped the names too.
        """
        removed: list[str] = []
        changed: set[bytes] = set()
        to_invalidate: list[tuple[int, bytes]] = []
        in_use = 0
        for index, key in enumerate(keys):
            path = _path(zone, key)
            try:
                stat = self._leftovers.at(path, before_ns)
                if stat is None:
                    continue
                known = self._known_to_kernel(zone, key)
                if self._copies.is_open(stat.st_ino):
                    in_use += 1
                elif self._copies.drop(path, stat.st_ino):
                    directory, _, name = path.rpartition(b"/")
                    self._hints.temporary_gone(directory, name)
                    self._drop_node(path)
                    changed.add(directory)
                    removed.append(key)
                    to_invalidate += known
            except FileBusyError:
                in_use += 1
            if index % _IN_ONE_GO == _IN_ONE_GO - 1:
                await trio.lowlevel.checkpoint()
        for directory in changed:
            self._touch(directory)
        await self._invalidation.invalidate_now(to_invalidate)
        return removed, in_use

    def _seen_directory(self, zone: str, key: str) -> list[tuple[int, bytes]]:
        """Drop what the listings have of a directory and of those above it; return their names as the kernel has them."""
        names: list[tuple[int, bytes]] = []
        while key:
            self._remotes[zone].directories.seen_directory(key)
            names += self._known_to_kernel(zone, key)
            key = key.rpartition("/")[0]
        return names

    async def _appeared(self, names: list[tuple[int, bytes]]) -> None:
        """Make the kernel drop ``names``, then drop all hints.

        In this order: the kernel first waits for lookups that are under way in the directories, which may leave hints.
        """
        await self._invalidation.invalidate_now(names)
        self._hints.objects_appeared()

    def _forget(self, zone: str, key: str, to_invalidate: list[tuple[int, bytes]]) -> None:
        if self.in_use(zone, key):  # it is being written again
            return
        path = _path(zone, key)
        known = self._known_to_kernel(zone, key)
        self._remotes[zone].directories.deleted(key)
        self._fetcher.detach(path)
        with suppress(FileBusyError):  # a process holds its lock; the next look at the name finds it outdated
            self._drop_copy(path)
            self._copies.drop_sidecar(path)
        self._drop_node(path)
        to_invalidate += known

    def _touch(self, directory: bytes) -> None:
        """Give a directory a later time: a name has gone that users saw there."""
        with suppress(OSError, FileBusyError):  # the disk takes nothing more, or the directory is held up or has just gone
            self._invalidation.touch_directory(self._tree.open_directory(directory))

    def _drop_node(self, path: bytes) -> None:
        node = self._nodes.of_path(path)
        if node is not None and not node.is_directory:
            self._nodes.drop_path(path)

    def _known_to_kernel(self, zone: str, key: str) -> list[tuple[int, bytes]]:
        """Return a name with the id of its directory, if the kernel may know the directory."""
        parent, _, name = _path(zone, key).rpartition(b"/")
        directory = self._nodes.of_path(parent) or self._nodes.of_backing(self._tree.inode(parent))
        return [] if directory is None else [(directory.id, name)]

    def _drop_copy(self, path: bytes) -> None:
        inode = self._tree.inode(path)
        if inode:
            self._copies.drop(path, inode)


def _path(zone: str, key: str) -> bytes:
    return f"{zone}/{key}".encode()


def _is_file_from_before(stat: FileStat, before_ns: int) -> bool:
    return stat_module.S_ISREG(stat.st_mode) and max(stat.st_mtime_ns, stat.st_ctime_ns) <= before_ns
