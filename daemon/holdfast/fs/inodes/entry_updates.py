"""Keeping index entries in step with their files, when attributes or bytes change: all changes of state but the first.

An entry is first written by whoever has hashed the bytes: by an upload (``writeback.publisher``), a fetch
(``transfer.cached_copies``), or a check (``integrity.verifier``).
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.fs.inodes.name_policy import NamePolicy
from holdfast.fs.inodes.node import Node, path_of
from holdfast.index import INTACT, Entries, Entry, EntryState
from holdfast.system.file_id import FileId, FileStat


@dataclass(eq=False)
class EntryUpdates:
    """Updates the entry of a file. No method awaits."""

    _entries: Entries
    _policy: NamePolicy

    def refresh(self, before: FileStat, after: FileStat) -> Entry | None:
        """Copy a new ctime to the entry after a change that left the bytes alone (link, rename, mode); return the entry.

        The entry stays as it is if it did not describe the file ``before``: the bytes were changed by someone else.
        """
        entry = self._entries.get(after.st_ino)
        if entry is not None and entry.describes(before) and entry.ctime_ns != after.st_ctime_ns:
            entry.ctime_ns = after.st_ctime_ns
            entry.mtime_ns = after.st_mtime_ns
            self._entries.put(after.st_ino, entry)
        return entry

    def mark_dirty(self, stat: FileStat, path: bytes | None) -> Entry:
        """Mark the file at ``path`` dirty because its bytes change or have changed; return its entry."""
        entry = self._entries.get(stat.st_ino)
        if entry is None:
            entry = Entry(EntryState.DIRTY, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        elif entry.state is not EntryState.UPLOADING:
            entry.become(EntryState.DIRTY)
        entry.mtime_is_set = False
        entry.path = path or entry.path
        self._entries.put(stat.st_ino, entry)
        return entry

    def open_for_writing(self, inode: FileId) -> None:
        """Note that a file may change unseen from now on."""
        entry = self._entries.get(inode)
        if entry is not None and entry.state in INTACT and entry.digest:
            entry.become(EntryState.OPEN)
            self._entries.put(inode, entry)

    def close_unchanged(self, inode: FileId) -> None:
        """Note that a file has not changed since ``open_for_writing``, and can't from now on: its digest counts again."""
        entry = self._entries.get(inode)
        if entry is not None and entry.state is EntryState.OPEN:
            entry.become(EntryState.CLEAN if entry.names else EntryState.LOCAL)
            self._entries.put_if_room(inode, entry)

    def begin_upload(self, stat: FileStat, path: bytes | None) -> Entry:
        """Note that the unsent file at ``path`` is being sent; return its entry."""
        entry = self._entries.get(stat.st_ino) or self.mark_dirty(stat, path)
        if entry.state is not EntryState.UPLOADING:
            entry.become(EntryState.DIRTY)
            entry.become(EntryState.UPLOADING)
        self._entries.put(stat.st_ino, entry)
        return entry

    def upload_failed(self, inode: FileId) -> None:
        """Note that a file could not be sent."""
        entry = self._entries.get(inode)
        if entry is not None:
            entry.become(EntryState.DIRTY)
            self._entries.put(inode, entry)

    def note_change(self, node: Node, stat: FileStat) -> None:
        """Mark a file dirty if its bytes are checked against a digest; ``stat`` holds its present attributes.

        An existing entry is enough: a name that needs a digest may be gone, or not looked up yet.
        """
        if self._entries.get(stat.st_ino) is not None or self._policy.has_digest(node):
            self.mark_dirty(stat, path_of(node))
