"""How many handles the kernel has of each open file, kept for the daemon after this one.

Every OPEN, CREATE and RELEASE counts once, however often it is sent. It is counted in the last uninterrupted step before
its reply: so of all requests that were counted when a daemon was killed at most one had not been answered.
"""

from __future__ import annotations

from holdfast.fs.inodes.open_file import OpenFile
from holdfast.session import NUMBER_MASK, SessionTables, version_mark


class HandleTable:
    """Keeps ``OpenTable`` in step with what the kernel is told. ``OpenFile.slot`` is the file's place in it."""

    def __init__(self, session: SessionTables) -> None:
        self._table = session.opens
        self._counted = session.records.numbers() | session.opens.numbers()
        session.records.add_numbers(self._counted)

    def is_counted(self, request: int) -> bool:
        """Say whether an earlier daemon has counted the request already."""
        return request & NUMBER_MASK in self._counted

    def opened(self, opened: OpenFile, request: int, *, writes: bool) -> None:
        """The reply to this OPEN or CREATE comes next: the kernel has one handle more, which ``opened`` counts already."""
        table = self._table
        if opened.slot == 0:
            slot = table.add(opened.node.id, opened.backing_id or 0, writes=writes, exclusive=opened.exclusive)
            opened.count_for_next_daemon(slot)
        elif self.is_counted(request):
            opened.uncount()
            return
        elif writes and not opened.writes:
            table.note_writes(opened.slot)
        if writes:
            opened.note_writing_handle()
        table.count(opened.slot, 1, request)

    def told(self, opened: OpenFile) -> None:
        """Bytes of a file that is still arriving come next: what follows them must be of the same version."""
        if opened.slot and opened.arrival is not None and not opened.served:
            self._table.note_version(opened.slot, version_mark(opened.arrival.known.etag))
        opened.served_bytes()

    def released(self, opened: OpenFile, request: int) -> None:
        """The kernel has one handle less."""
        if opened.slot:
            self._table.count(opened.slot, -1, request)

    def closed(self, opened: OpenFile) -> None:
        """Everything that the last release asks for is done."""
        if opened.slot:
            self._table.free(opened.slot)
            opened.count_for_next_daemon(0)
