"""A name's object appears, or goes: what every change of a name in a sending zone comes down to.

- ``send`` stores the bytes of a file under a name, and returns only when the store has them (level ``commit``);
- ``retract`` notes that the object of a name is to be deleted.

Only one PUT of a name is under way at a time: of two, the later one must not be overtaken by the earlier. And a name may go
while its object is on the way: then the object goes too.

The local change of the name follows directly, without an await between, so that the two never come apart in this process.
A crash after the PUT and before the local step leaves the object whole in the store and the file under its old name.
"""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import Callable
from dataclasses import dataclass, replace

from holdfast.digest import Fingerprint
from holdfast.errors import ObjectExistsError, ObjectMissingError, WriteOnceError
from holdfast.fs.inodes.core import LOCAL_KINDS, Caller, Core
from holdfast.fs.inodes.locks import NodeLocks
from holdfast.fs.remote_view.create_hints import CreateHints
from holdfast.index import CachedName, Entry, EntryState
from holdfast.remote import ObjectInfo
from holdfast.store import stamp_of
from holdfast.transfer import ObjectPath
from holdfast.zones import NameKind, ZonePath

_MOST_SENDS = 5
_OWN = "own"
"""An etag that no object has: what is deleted is an object with this node's signature (``transfer.conditional_delete``)."""


@dataclass(frozen=True, slots=True)
class Sent:
    """An object that the store has, and the state of the file whose bytes it holds."""

    path: bytes
    info: ObjectInfo
    fingerprint: Fingerprint
    stable: bool
    """Whether the file was left alone while it was read."""
    stamp: tuple[int, int]

    def holds(self, stat: os.stat_result) -> bool:
        """Say whether these are the bytes of the file ``stat``: only then is it clean."""
        return self.stable and self.stamp == stamp_of(stat)


class Publisher:
    """Sends and retracts, by place and name."""

    def __init__(self, core: Core, intents: CreateHints) -> None:
        self._core = core
        self._intents = intents
        self._under_way = NodeLocks()

    def is_write_once(self, place: ZonePath, name: bytes) -> bool:
        """Say whether the object of this name may be created only once."""
        return self._core.kind_of(place, name) is NameKind.WRITE_ONCE

    async def send(self, fd: int, place: ZonePath, name: bytes, *, create_only: bool) -> Sent:
        """Store the bytes behind ``fd`` as the object of ``name``, which is about to appear here.

        With ``create_only`` it must not exist in the store: ``WriteOnceError``. Raises ``RemoteError`` when the store does
        not take the object; nothing has changed here then.
        """
        target = self._core.object_at(place, name)
        async with self._under_way.of(target.path):
            return await self._send(fd, place, name, target, create_only=create_only)

    async def send_named(
        self, fd: int, place: ZonePath, name: bytes, *, create_only: bool, is_named: Callable[[], bool]
    ) -> Sent | None:
        """``send`` of a file that has the name as long as ``is_named``; None when it lost it: it leaves no object then."""
        target = self._core.object_at(place, name)
        async with self._under_way.of(target.path):
            if not is_named():
                return None
            sent = await self._send(fd, place, name, target, create_only=create_only)
            if is_named():
                return sent
            self.retract(place, name, None)
            return None

    async def _send(self, fd: int, place: ZonePath, name: bytes, target: ObjectPath, *, create_only: bool) -> Sent:
        core = self._core
        try:
            async with target.remote.deletions.replaced(target.store_path, by_version=create_only) as version:
                for attempt in range(_MOST_SENDS):
                    before = core.store.stamps.take(fd)
                    info, fingerprint = await core.uploader.send(
                        fd, target.remote, target.key, create_only=create_only and attempt == 0, replaces=version
                    )
                    after = os.fstat(fd)
                    stable = before == stamp_of(after)
                    if stable:
                        break
        except ObjectExistsError:
            await self._learn(place, name, target)
            raise WriteOnceError(f"{target.key} exists already in {target.remote.access.store.url}") from None
        self._appeared(place, name, info, after.st_mtime_ns)
        return Sent(target.path, info, fingerprint, stable, before)

    def created_by(self, place: ZonePath, name: bytes, caller: Caller) -> None:
        """Remember whose creation succeeded: its next lookups here are those of a writer."""
        self._intents.created(place.path, self._core.kind_of(place, name), caller.pid)

    def record(
        self, sents: list[Sent], stat: os.stat_result, previous: Entry | None, *, others_unsent: bool = False
    ) -> None:
        """Write the entry of the file ``stat``, whose bytes the store has under all of ``sents``.

        ``others_unsent``: the file has other names, under which the store does not have them yet. Of a file that is open,
        and has changed meanwhile, the rest is unsent; one that may change at any time is not clean
        (``file_io.passthrough_writes``).
        """
        core = self._core
        node = core.nodes.of_backing(stat.st_ino)
        opened = node.opened if node is not None else None
        whole = not others_unsent and all(sent.holds(stat) for sent in sents)
        if opened is not None:
            opened.unsent = opened.unsent or not whole
            whole = not opened.unsent
        entry = Entry(
            EntryState.CLEAN if whole and (opened is None or opened.stamp is None) else EntryState.DIRTY,
            stat.st_size,
            stat.st_mtime_ns,
            stat.st_ctime_ns,
            sents[-1].fingerprint.digest if whole else b"",
            list(previous.names) if previous is not None else [],
            verified_run=core.index.run,
            used_ns=core.now_ns(),
            path=previous.path if others_unsent and previous is not None else sents[-1].path,
        )
        for sent in sents:
            adopted = stat.st_mtime_ns == sent.info.modified_ns
            entry.set_name(CachedName(sent.path, sent.info.etag, sent.info.modified_ns if adopted else 0))
        core.index.entries.put(stat.st_ino, entry)

    def version_of(self, place: ZonePath, name: bytes, stat: os.stat_result | None) -> CachedName | None:
        """Return which object the store has, as far as is known here, under this name; None when none.

        ``stat`` is the file's, if there is one.
        """
        core = self._core
        if not place.zone.sends or core.kind_of(place, name) in LOCAL_KINDS:
            return None
        path = place.child_path(name)
        known = core.listing(place).object(name)
        if known is not None:
            return CachedName(path, known.etag, known.modified_ns)
        entry = core.index.entries.get(stat.st_ino) if stat is not None else None
        return entry.name_at(path) if entry is not None else None

    def version_to_go(self, place: ZonePath, name: bytes, stat: os.stat_result | None) -> CachedName | None:
        """``version_of``; where a PUT may have stored one whose answer nobody has had, whichever is this node's own."""
        version = self.version_of(place, name, stat)
        if version is not None or stat is None or not stat_module.S_ISREG(stat.st_mode) or not self._core.sends(place, name):
            return version
        entry = self._core.index.entries.get(stat.st_ino)
        is_sent = entry is not None and entry.state is EntryState.CLEAN
        return None if is_sent else self._own_version(place, name)

    def version_left(self, place: ZonePath, name: bytes, stat: os.stat_result | None) -> CachedName | None:
        """Return which object of a name that an earlier daemon took away here is still to be deleted.

        None when that is noted already; what another node has put there stays. ``stat`` is the file's.
        """
        own = self._own_version(place, name)
        return own and (self.version_of(place, name, stat) or own)

    def _own_version(self, place: ZonePath, name: bytes) -> CachedName | None:
        """Return what stands for the object that this node has stored; None when it is to be deleted already."""
        path = place.child_path(name)
        is_noted = self._core.remote_of(place.zone).deletions.pending(path)
        return None if is_noted else CachedName(path, _OWN, 0)

    def retract(self, place: ZonePath, name: bytes, stat: os.stat_result | None) -> None:
        """The name is about to go here: its object is to be deleted; where the store only shines through, it is hidden.

        ``stat`` is the file's, if there is one.
        """
        core = self._core
        path = place.child_path(name)
        core.fetcher.detach(path)
        if place.zone.remote is None or core.kind_of(place, name) in LOCAL_KINDS:
            return
        if not (place.zone.is_store and place.zone.sends):
            if not self._is_made_here(place):
                core.index.marks.white_out(path)
        elif (version := self.version_to_go(place, name, stat)) is not None:
            self.delete_object(place, name, version)

    def delete_object(self, place: ZonePath, name: bytes, version: CachedName) -> None:
        """Note that the object of a name is to be deleted: this version of it (``version_of``)."""
        listing = self._core.listing(place)
        listing.remove(name)
        self._core.remote_of(place.zone).deletions.schedule(version)
        if not len(listing):
            self._hold(place)

    def _is_made_here(self, place: ZonePath) -> bool:
        inode = self._core.store.tree.inode(place.path)
        return inode != 0 and self._core.index.marks.is_held(inode)

    def _hold(self, place: ZonePath) -> None:
        """The directory has lost its last object: it stays all the same, until somebody removes it."""
        inode = self._core.store.tree.inode(place.path)
        if inode:
            self._core.index.marks.hold(inode)

    def _appeared(self, place: ZonePath, name: bytes, info: ObjectInfo, mtime_ns: int) -> None:
        """An object is in the store: so are, by implication, the directories above it."""
        core = self._core
        path = place.child_path(name)
        if core.index.marks.is_whited_out(path):
            core.index.marks.uncover(path)
        core.listing(place).put(name, info if info.modified_ns else replace(info, modified_ns=mtime_ns))
        while place.zone.remote is not None:
            if self._is_made_here(place):
                core.index.marks.let_go(core.store.tree.inode(place.path))
            if place.path == place.zone.prefix:
                break
            above, _, last = place.path.rpartition(b"/")
            place = ZonePath(place.zone, above)
            core.listing(place).put_directory(last)

    async def _learn(self, place: ZonePath, name: bytes, target: ObjectPath) -> None:
        """Bring the belief about a name up to date that turned out to be taken."""
        try:
            self._core.listing(place).put(name, await target.remote.access.head(target.key))
        except ObjectMissingError:
            self._core.listing(place).remove(name)
