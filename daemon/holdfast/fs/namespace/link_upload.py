"""Uploads for new names of existing files, by link and by rename.

The bytes are sent first, then the name appears in the tree, then the entry is written. The entry must still say if the bytes
are unsent under other names.
"""

from __future__ import annotations

from holdfast.fs.file_io.files import Files
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.name_policy import Name, Names
from holdfast.fs.inodes.node import Node
from holdfast.fs.remote_view.views import Views
from holdfast.fs.writeback.publisher import Sent
from holdfast.fs.writeback.sending import Sending
from holdfast.system.file_id import FileStat
from holdfast.system.waits import before_waiting


class LinkUpload:
    """Sends files under names that they are about to get."""

    def __init__(self, base: Foundation, views: Views, sending: Sending, files: Files) -> None:
        self._policy, self._copies, self._entries = base.policy, base.copies, base.parts.index.entries
        self._view, self._hints = base.view, views.hints
        self._publisher, self._queue = sending.publisher, sending.queue
        self._files, self._writes = files.files, files.passthrough_writes

    async def send(
        self, node: Node, name: Name, caller: Caller, *, create_only: bool, replaced: Name | None = None
    ) -> Sent | None:
        """Store the object of a name that is about to appear, in the place of ``replaced`` in a rename.

        Returns None if the writeback queue will send it. Unsent bytes stay marked unsent if any of the file's other names is
        to be sent too. Raises ``NameNotStorableError`` and ``RemoteError``.
        """
        self._view.check_name(name)
        await before_waiting()
        once = create_only or name.created_once
        opened = node.opened
        was_unsent = False
        if opened is not None:
            self._writes.detect_writes(opened)
            was_unsent = opened.unsent
            if not self._policy.sent_names(_without(replaced, node)):
                self._writes.before_send(opened)
        try:
            with self._files.descriptor_of(node) as fd:
                if not once and self._queue.takes(name):
                    await self._queue.keep(fd)
                    return None
                sent = await self._publisher.send(fd, name, create_only=once)
        except BaseException:
            if opened is not None and was_unsent:
                opened.changed()
            raise
        self._hints.created(name.place.path, name.kind, caller.pid)
        return sent

    def record(self, node: Node, name: Name, directory_fd: int, sent: Sent, stat: FileStat) -> None:
        """Write the entry: the store has the bytes of the file ``stat`` under the name that it just got."""
        entry = self._entries.get(stat.st_ino)
        others_unsent = entry is not None and entry.is_unsent and bool(self._policy.sent_names(_without(name, node)))
        self._publisher.record([sent], stat, entry, others_unsent=others_unsent)
        self._copies.drop_sidecar(name.path, directory_fd)


def _without(left_out: Name | None, node: Node) -> Names:
    """Return the names of a node, but one."""
    if left_out is None:
        return node.names()
    return [name for name in node.names() if name != (left_out.directory, left_out.name)]
