"""From a directory and a name to a node: first the tree, then, where a zone has a store, what the store has.

A negative answer decides too much to be given from a belief: the store is asked, unless the caller is plainly about to
create the name (``intents``). A file of this node is looked at again only when its name is replaceable and the belief is
older than the metadata TTL.
"""

from __future__ import annotations

import os
import stat as stat_module
from typing import NamedTuple

import trio

from holdfast.errors import NameNotStorableError, RemoteUnavailableError
from holdfast.fs.inodes import attributes
from holdfast.fs.inodes.attributes import FOREVER_SECONDS, Stat
from holdfast.fs.inodes.core import LOCAL_KINDS, NOBODY, Caller, Core
from holdfast.fs.inodes.nodes import Node
from holdfast.fs.remote_view.create_hints import CreateHints
from holdfast.fs.remote_view.revalidation import Revalidation
from holdfast.index import Entry, EntryState
from holdfast.transfer import KnownObject
from holdfast.zones import NameKind, ZonePath

RESERVED = b".holdfast"
_LASTING_KINDS = frozenset(
    {NameKind.WRITE_ONCE, NameKind.IMMUTABLE}
)  # not temporary: the kernel keeps the time over a rename


class Found(NamedTuple):
    """A node, its attributes, and for how many seconds the kernel may keep the name and the attributes."""

    node: Node
    stat: Stat
    entry_seconds: float
    attribute_seconds: float


class Lookup:
    """Finds entries. It counts no references: that is done where the kernel is answered."""

    def __init__(self, core: Core, intents: CreateHints, beliefs: Revalidation) -> None:
        self._core = core
        self._beliefs = beliefs
        self._intents = intents
        self._ttl = core.config.remote.metadata_ttl_seconds

    async def find(self, directory: Node, name: bytes, caller: Caller) -> Found | None:
        """Return what ``name`` leads to, or None. Raises ``RemoteError`` when only the store knows and doesn't answer."""
        try:
            return self.find_nowait(directory, name, caller)
        except trio.WouldBlock:
            return await self._find_in_zone(directory, self._core.directories.place(directory), name, caller)

    def find_nowait(self, directory: Node, name: bytes, caller: Caller) -> Found | None:
        """``find``, where the store need not be asked. Raises ``trio.WouldBlock`` elsewhere."""
        core = self._core
        place = core.directories.place(directory)
        stat = core.local_stat(directory, name)
        if place.zone.remote is None:
            return None if stat is None else self._local(directory, name, stat, FOREVER_SECONDS)
        if place.path == place.zone.prefix and name == RESERVED:
            return None
        kind = core.kind_of(place, name)
        if stat is None:
            if kind in LOCAL_KINDS or self._is_hidden(directory, place, name):
                return None
            return self._believed(directory, place, name, kind, caller)
        if self._may_be_old(place, kind, stat):
            listing = self._beliefs.fresh_listing(place)
            if not self.reconcile(place, name, stat, listing.object(name)):
                raise trio.WouldBlock
            stat = core.local_stat(directory, name) or stat
        return self._local(directory, name, stat, self._seconds(kind, stat))

    def _believed(self, directory: Node, place: ZonePath, name: bytes, kind: NameKind, caller: Caller) -> Found | None:
        """Return what only the store has, as far as it has told. Raises ``trio.WouldBlock`` when it is to be asked."""
        try:
            listing = self._core.listing(place)
        except NameNotStorableError:
            raise trio.WouldBlock from None
        known = listing.object(name)
        if known is None and not listing.has_directory(name):
            age_seconds = trio.current_time() - listing.listed_at
            if place.zone.is_store and self._intents.is_creating(place.path, name, kind, caller.pid, age_seconds):
                return None
            raise trio.WouldBlock
        if known is None and place.zone.is_store and self._core.index.marks.is_whited_out(place.child_path(name)):
            raise trio.WouldBlock  # there may be something in it by now
        if not place.zone.is_store or (kind is NameKind.REPLACEABLE and known is not None):
            self._beliefs.fresh_listing(place)
        return self.remote(directory, place, name, known)

    def negative_seconds(self, directory: Node, name: bytes) -> float:
        """Return for how long the kernel may keep the answer that ``name`` is not in ``directory``.

        A name of a local kind nobody else makes; but it may be of another kind when its directory has been renamed.
        """
        place = self._core.directories.place(directory)
        if place.zone.remote is None:
            return FOREVER_SECONDS
        return self._ttl if self._core.kind_of(place, name) in LOCAL_KINDS else 0.0

    def is_unheard_of(self, directory: Node, name: bytes) -> bool:
        """Say whether what the kernel knows of a name in a zone with a store is not known here.

        An earlier daemon has told of it, or the belief has been forgotten since.
        """
        core = self._core
        place = core.directories.place(directory)
        if place.zone.remote is None or core.local_stat(directory, name) is not None:
            return False
        is_known = core.nodes.of_path(place.child_path(name)) is not None
        return not is_known or (place.zone.is_store and name not in core.listing(place))

    async def meet(self, directory: Node, name: bytes) -> None:
        """Learn of a name that a request has come with, as a lookup would by one who does not create it."""
        if self.is_unheard_of(directory, name) and await self.find(directory, name, NOBODY) is None:
            self._core.nodes.drop_path(self._core.directories.place(directory).child_path(name))

    async def _find_in_zone(self, directory: Node, place: ZonePath, name: bytes, caller: Caller) -> Found | None:
        core = self._core
        kind = core.kind_of(place, name)
        stat = core.local_stat(directory, name)
        if stat is not None and await self._is_current(place, name, kind, stat):
            stat = core.local_stat(directory, name) or stat
            return self._local(directory, name, stat, self._seconds(kind, stat))
        if kind in LOCAL_KINDS or self._is_hidden(directory, place, name):
            return None
        try:
            await self._beliefs.learn(place, name, kind)
            is_removed = await self._beliefs.is_removed_directory(place, name)
        except NameNotStorableError:
            return None
        stat = core.local_stat(directory, name)  # it may have arrived while the store was asked
        if stat is not None:
            return self._local(directory, name, stat, self._ttl)
        listing = core.listing(place)
        known = listing.object(name)
        if known is None and (is_removed or not listing.has_directory(name)):
            self._intents.told_missing(place.path, name, caller.pid)
            return None
        return self.remote(directory, place, name, known)

    def _seconds(self, kind: NameKind, stat: os.stat_result) -> float:
        lasts = kind in _LASTING_KINDS and not stat_module.S_ISDIR(stat.st_mode)
        return FOREVER_SECONDS if lasts else self._ttl

    def _local(self, directory: Node, name: bytes, stat: os.stat_result, seconds: float) -> Found:
        node = self._core.nodes.local(directory, name, stat.st_ino, stat.st_mode)
        return Found(node, stat, seconds, min(seconds, self._ttl) if seconds < FOREVER_SECONDS else seconds)

    def remote(self, directory: Node, place: ZonePath, name: bytes, known: KnownObject | None) -> Found:
        """Return what exists only in the store: an object, or with ``known`` None a directory."""
        core = self._core
        ownership = core.remote_of(place.zone).ownership
        above = self.above(directory)
        node = core.nodes.remote(directory, name, place.child_path(name), known is None)
        stat = (
            attributes.of_object(node, known, ownership, above) if known else attributes.of_directory(node, ownership, above)
        )
        return Found(node, stat, self._ttl, self._ttl)

    def above(self, directory: Node) -> os.stat_result:
        """Return the attributes of the nearest directory, from here upwards, that has a backing directory."""
        while directory.backing == 0:
            assert directory.parent is not None
            directory = directory.parent
        return os.stat(self._core.directories.descriptor(directory))

    def _is_hidden(self, directory: Node, place: ZonePath, name: bytes) -> bool:
        core = self._core
        path = place.child_path(name)
        if place.zone.is_store:
            return core.remote_of(place.zone).deletions.pending(path)
        if directory.backing and core.index.marks.is_held(directory.backing):
            return True  # a directory made in a working directory has no counterpart in the store
        return core.index.marks.is_whited_out(path)

    async def _is_current(self, place: ZonePath, name: bytes, kind: NameKind, stat: os.stat_result) -> bool:
        """Say whether the file here may stand for its object; a copy of an older version is dropped."""
        core = self._core
        if not self._may_be_old(place, kind, stat):
            return True
        listing = core.listing(place)
        try:
            await self._beliefs.ask(place, listing, name, trio.current_time() - self._ttl, for_others=True, insist=False)
        except RemoteUnavailableError:
            core.events.emit("served-unchecked", path=os.fsdecode(place.child_path(name)))
            return True
        return self.reconcile(place, name, stat, listing.object(name))

    def _may_be_old(self, place: ZonePath, kind: NameKind, stat: os.stat_result) -> bool:
        """Say whether the store may have another version by now of a file that is here."""
        if kind is not NameKind.REPLACEABLE or not place.zone.is_store or not stat_module.S_ISREG(stat.st_mode):
            return False
        entry = self._core.index.entries.get(stat.st_ino)
        return entry is not None and entry.state is EntryState.CLEAN

    def reconcile(self, place: ZonePath, name: bytes, stat: os.stat_result, known: KnownObject | None) -> bool:
        """Compare a file here with what the store says of its object; drop it when it is a copy of something else.

        Returns whether the file is still there. A file with unsent bytes always stays.
        """
        core = self._core
        path = place.child_path(name)
        entry = core.index.entries.get(stat.st_ino)
        cached = entry.name_at(path) if entry is not None else None
        if entry is None or cached is None or entry.state is not EntryState.CLEAN:
            return True
        if known is None or known.etag != cached.etag:
            return not core.residence.drop(path, stat.st_ino)
        if known.modified_ns and cached.modified_ns != known.modified_ns:
            self._adopt_time(path, stat, entry, known)
        return True

    def _adopt_time(self, path: bytes, stat: os.stat_result, entry: Entry, known: KnownObject) -> None:
        parent, _, name = path.rpartition(b"/")
        directory_fd = self._core.store.tree.open_directory(parent)
        try:
            os.utime(name, ns=(stat.st_atime_ns, known.modified_ns), dir_fd=directory_fd, follow_symlinks=False)
            after = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        finally:
            os.close(directory_fd)
        cached = entry.name_at(path)
        assert cached is not None
        entry.set_name(type(cached)(path, cached.etag, known.modified_ns))
        if entry.describes(stat):  # else somebody else has changed the bytes, which an open must find out
            entry.mtime_ns, entry.ctime_ns = after.st_mtime_ns, after.st_ctime_ns
        self._core.index.entries.put_if_room(after.st_ino, entry)
