"""The kernel's handles of each open file, recorded for the next daemon.

Every OPEN, CREATE and RELEASE counts once, even if it is resent. It is counted in the last step before its reply, without an
await between. So of all requests counted when a daemon was killed, at most one had no reply.
"""

from __future__ import annotations

from holdfast.fs.inodes.open_file import OpenFile
from holdfast.session import NUMBER_MASK, SessionTables, version_mark


class HandleTable:
    """Keeps ``OpenTable`` in step with the replies to the kernel. ``OpenFile.slot`` is the file's slot in the table."""

    def __init__(self, session: SessionTables) -> None:
        self._table = session.opens
        self._counted = session.records.numbers() | session.opens.numbers()
        session.records.add_numbers(self._counted)

    def is_counted(self, request: int) -> bool:
        """Say whether an earlier daemon has counted the request."""
        return request & NUMBER_MASK in self._counted

    def opened(self, opened: OpenFile, request: int, *, writes: bool, executes: bool) -> None:
        """Count one more handle, just before the reply to this OPEN or CREATE. ``opened`` counts it already."""
        table = self._table
        if opened.slot == 0:
            slot = table.add(
                opened.node.id,
                opened.backing_id or 0,
                writes=writes,
                exclusive=opened.exclusive,
                uid=opened.charged_uid,
            )
            opened.count_for_next_daemon(slot)
        elif self.is_counted(request):
            opened.uncount()
            return
        elif writes and not opened.writes:
            table.note_writes(opened.slot)
        if opened.has_strangers:
            table.note_strangers(opened.slot)
        if writes:
            opened.note_writing_handle()
        if executes:
            opened.begin_running()
            table.count_programs(opened.slot, 1)
        table.count(opened.slot, 1, request)

    def note_served(self, opened: OpenFile) -> None:
        """Call just before bytes of a fetch under way are served: the rest must be of the same version."""
        if opened.slot and opened.arrival is not None and not opened.served:
            self._table.note_version(opened.slot, version_mark(opened.arrival.known.etag))
        opened.served_bytes()

    def released(self, opened: OpenFile, request: int, *, executes: bool | None) -> None:
        """Count one handle fewer. If it is not known whether it ``executes``, it does so if all that are left do."""
        if executes is None:
            executes = opened.programs >= opened.handles - opened.leaving
        if executes and opened.programs:
            opened.end_running()
            self._table.count_programs(opened.slot, -1)
        if opened.slot:
            self._table.count(opened.slot, -1, request)

    def lost(self, opened: OpenFile) -> int:
        """Count no handles any more, because the kernel has none; return how many were counted."""
        return self._table.clear(opened.slot) if opened.slot else 0

    def closed(self, opened: OpenFile) -> None:
        """Free the slot of a file whose last release has been processed."""
        if opened.slot:
            self._table.free(opened.slot)
            opened.count_for_next_daemon(0)
