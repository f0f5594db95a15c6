"""Keeping index entries in step with their files, when attributes or bytes change."""

from __future__ import annotations

import os
from dataclasses import dataclass

from holdfast.fs.inodes.name_policy import NamePolicy
from holdfast.fs.inodes.node import Node, path_of
from holdfast.index import Entries, Entry, EntryState


@dataclass(eq=False)
class EntryUpdates:
    """Updates the entry of a file. No method awaits."""

    _entries: Entries
    _policy: NamePolicy

    def refresh(self, before: os.stat_result, after: os.stat_result) -> Entry | None:
        """Copy a new ctime to the entry after a change that left the bytes alone (link, rename, mode); return the entry.

        The entry stays as it is if it did not describe the file ``before``: the bytes were changed by someone else.
        """
        entry = self._entries.get(after.st_ino)
        if entry is not None and entry.describes(before) and entry.ctime_ns != after.st_ctime_ns:
            entry.ctime_ns = after.st_ctime_ns
            entry.mtime_ns = after.st_mtime_ns
            self._entries.put(after.st_ino, entry)
        return entry

    def mark_dirty(self, stat: os.stat_result, path: bytes | None) -> Entry:
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

    def note_change(self, node: Node, stat: os.stat_result) -> None:
        """Mark a file dirty if its bytes are checked against a digest; ``stat`` holds its present attributes.

        An existing entry is enough: a name that needs a digest may be gone, or not looked up yet.
        """
        if self._entries.get(stat.st_ino) is not None or self._policy.has_digest(node):
            self.mark_dirty(stat, path_of(node))
