"""Names of objects that are about to appear beside others of the same file, or in place of one: by link and by rename.

The bytes are sent first; then the name appears in the tree; then the entry is written, which must not hide that they are
still to be sent under the other names.
"""

from __future__ import annotations

import os

from holdfast.fs.file_io.opens import OpenFiles
from holdfast.fs.file_io.passthrough_writes import PassthroughWrites
from holdfast.fs.inodes.core import Caller, Core
from holdfast.fs.inodes.nodes import Node
from holdfast.fs.writeback.publisher import Publisher, Sent
from holdfast.fs.writeback.writeback_queue import WritebackQueue
from holdfast.index import EntryState
from holdfast.zones import ZonePath

Names = list[tuple[Node, bytes]]


class LinkUpload:
    """Sends files under names that they are about to get."""

    def __init__(
        self, core: Core, publisher: Publisher, backlog: WritebackQueue, opens: OpenFiles, unseen: PassthroughWrites
    ) -> None:
        self._core = core
        self._publisher = publisher
        self._backlog = backlog
        self._opens = opens
        self._unseen = unseen

    async def send(
        self,
        node: Node,
        others: Names,
        place: ZonePath,
        name: bytes,
        caller: Caller,
        *,
        create_only: bool,
    ) -> Sent | None:
        """Store the object of a name that is about to appear; None where that is left to the backlog.

        ``others`` are the names that the file has beside it: what is unsent stays so, if it is to be sent under these too.
        """
        once = create_only or self._publisher.is_write_once(place, name)
        opened = node.opened
        was_unsent = False
        if opened is not None:
            self._unseen.notice(opened)
            was_unsent = opened.unsent
            if not self._any_is_sent(others):
                self._unseen.on_its_way(opened)
        try:
            with self._opens.descriptor_of(node) as fd:
                if not once and self._backlog.takes(place):
                    await self._backlog.keep(fd)
                    return None
                sent = await self._publisher.send(fd, place, name, create_only=once)
        except BaseException:
            if opened is not None:
                opened.unsent = opened.unsent or was_unsent
            raise
        self._publisher.created_by(place, name, caller)
        return sent

    def record(self, node: Node, directory: Node, name: bytes, sent: Sent, stat: os.stat_result) -> None:
        """The store has the bytes of the file ``stat`` under the name that it has just got."""
        entry = self._core.index.entries.get(stat.st_ino)
        unsent = entry is not None and entry.state in (EntryState.DIRTY, EntryState.UPLOADING) and not entry.digest
        others = self._any_is_sent([other for other in node.names() if other != (directory, name)])
        self._publisher.record([sent], stat, entry, others_unsent=unsent and others)
        self._core.residence.drop_sidecar(sent.path)

    def _any_is_sent(self, names: Names) -> bool:
        return any(self._core.sends(self._core.directories.place(parent), name) for parent, name in names)
