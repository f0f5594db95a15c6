"""Publishing: the bytes of a file are stored as the object of a name, and its entry records that.

Only one PUT per name is under way at a time, so that an earlier one can't overtake a later one. If a name is removed during
its PUT, the object is deleted again.

The local change of the name follows without an await in between, so that both happen or neither does within this process.
A crash after the PUT and before the local step leaves the whole object in the store and the file under its old name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from holdfast.digest import Fingerprint
from holdfast.errors import LostBytesError, ObjectExistsError, ObjectMissingError, WriteOnceError
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.locks import NodeLocks
from holdfast.fs.remote_view.views import Views
from holdfast.fs.writeback.remote_deletes import RemoteDeletes
from holdfast.index import CachedName, Entry, EntryState
from holdfast.remote import ObjectInfo
from holdfast.store import stamp_of
from holdfast.system.file_id import FileStat, file_stat
from holdfast.transfer import ObjectPath
from holdfast.zones import ZoneName

_MOST_SENDS = 5


@dataclass(frozen=True, slots=True)
class Sent:
    """A stored object, and the state of the file when its bytes were read."""

    name: ZoneName
    info: ObjectInfo
    fingerprint: Fingerprint
    stable: bool
    """True if the file did not change while it was read."""
    stamp: tuple[int, int]


class Publisher:
    """Sends files by name."""

    def __init__(self, base: Foundation, views: Views, remote_deletes: RemoteDeletes) -> None:
        self._view, self._nodes, self._uploader = base.view, base.nodes, base.uploader
        self._index, self._stamps = base.parts.index, base.parts.store.stamps
        self._losses, self._times = base.losses, views.times
        self._remote_deletes = remote_deletes
        self._under_way = NodeLocks()

    async def send(self, fd: int, name: ZoneName, *, create_only: bool) -> Sent:
        """Store the bytes behind ``fd`` as the object of ``name``, which is about to be created here.

        With ``create_only`` the object must not exist: raises ``WriteOnceError``. Raises ``RemoteError`` if the store
        refuses the object, and ``LostBytesError``; nothing has changed here then.
        """
        target = self._view.object_of(name)
        if not self._under_way.take(target.path):
            await self._under_way.wait(target.path)
        try:
            return await self._send(fd, name, target, create_only=create_only)
        finally:
            self._under_way.release(target.path)

    async def send_named(
        self, fd: int, name: ZoneName, *, create_only: bool, is_named: Callable[[], bool], replaces: str = ""
    ) -> Sent | None:
        """Send a file that may lose its name meanwhile. Returns None and leaves no object if not ``is_named``.

        With ``create_only`` it may replace the version of the object with the etag ``replaces``.
        """
        target = self._view.object_of(name)
        async with self._under_way.of(target.path):
            if not is_named():
                return None
            sent = await self._send(fd, name, target, create_only=create_only, replaces=replaces)
            if is_named():
                return sent
            self._remote_deletes.delete(name, None)
            return None

    async def _send(self, fd: int, name: ZoneName, target: ObjectPath, *, create_only: bool, replaces: str = "") -> Sent:
        try:
            async with target.remote.deletions.replaced(target.store_path, by_version=create_only) as version:
                for attempt in range(_MOST_SENDS):
                    before = self._stamps.take(fd, partial(self._is_time_set, fd))
                    info, fingerprint = await self._uploader.send(
                        fd, target.remote, target.key, create_only=create_only and attempt == 0, replaces=version or replaces
                    )
                    after = file_stat(fd)
                    stable = before == stamp_of(after)
                    if stable:
                        break
        except ObjectExistsError:
            await self._learn(name, target)
            raise WriteOnceError(f"{target.key} exists already in {target.remote.access.store.url}") from None
        except LostBytesError:
            await self._losses.note(fd)
            raise
        self._appeared(name, target, info)
        return Sent(name, info, fingerprint, stable, before)

    def record(self, sents: list[Sent], stat: FileStat, previous: Entry | None, *, others_unsent: bool = False) -> None:
        """Write the entry of the file ``stat``, whose bytes the store has under all of ``sents``.

        ``others_unsent``: the file has other names under which it is not stored yet. If an open file has changed during
        the upload, it stays unsent. If it may change at any time, it is not marked clean (``file_io.passthrough``).
        """
        node = self._nodes.of_backing(stat.st_ino)
        opened = node.opened if node is not None else None
        whole = not others_unsent and all(self._holds(sent, stat) for sent in sents)
        if opened is not None:
            if not whole:
                opened.changed()
            whole = not opened.unsent
        intact = EntryState.CLEAN if opened is None or opened.stamp is None else EntryState.OPEN
        entry = Entry(
            intact if whole else EntryState.DIRTY,
            stat.st_size,
            stat.st_mtime_ns,
            stat.st_ctime_ns,
            sents[-1].fingerprint.digest if whole else b"",
            list(previous.names) if previous is not None else [],
            verified_run=self._index.run,
            used_ns=time.time_ns(),
            path=previous.path if others_unsent and previous is not None else sents[-1].name.path,
        )
        entry.mtime_is_set = self._times.is_set(stat.st_ino, stat.st_mtime_ns, previous)
        for sent in sents:
            entry.set_name(CachedName(sent.name.path, sent.info.etag))
        if whole and not entry.mtime_is_set:
            self._times.stored(stat.st_ino, node, entry, sents[-1].name, sents[-1].info)
        self._index.entries.put(stat.st_ino, entry)

    def _holds(self, sent: Sent, stat: FileStat) -> bool:
        """Say whether the file ``stat`` has the bytes that were sent; only then is it clean.

        Under another name it may have been sent, and have got its time, meanwhile.
        """
        return sent.stable and (sent.stamp == stamp_of(stat) or self._times.only_time_was_set(sent.stamp, stat))

    def _is_time_set(self, fd: int, mtime_ns: int) -> bool:
        inode = file_stat(fd).st_ino
        return self._times.is_set(inode, mtime_ns, self._index.entries.get(inode))

    def _appeared(self, name: ZoneName, target: ObjectPath, info: ObjectInfo) -> None:
        """Note that there is a new object, in the directories that it implies."""
        if self._index.marks.is_whited_out(name.path):
            self._index.marks.uncover(name.path)
        target.remote.deletions.stored(target.store_path, info.etag)
        target.remote.directories.stored(target.key, info)
        self._remote_deletes.let_go(name.place)

    async def _learn(self, name: ZoneName, target: ObjectPath) -> None:
        """Update the cached listing for a name that turned out to be taken."""
        try:
            self._view.listing(name.place).put(name.name, await target.remote.access.head(target.key))
        except ObjectMissingError:
            self._view.listing(name.place).remove(name.name)
