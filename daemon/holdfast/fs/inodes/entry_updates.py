"""Index entries follow their files: after a change that left the bytes alone, and before one that does not."""

from __future__ import annotations

import os

from holdfast.fs.inodes.name_policy import NamePolicy
from holdfast.fs.inodes.nodes import Node, path_of
from holdfast.index import Entries, Entry, EntryState


class EntryUpdates:
    """Keeps the entry of a file right. Each call is one uninterrupted step."""

    def __init__(self, entries: Entries, policy: NamePolicy) -> None:
        self._entries = entries
        self._policy = policy

    def refresh(self, before: os.stat_result, after: os.stat_result) -> Entry | None:
        """A change that left the bytes alone (a link, a rename, a mode) has moved ctime: let the entry follow; return it.

        An entry that did not describe the file ``before`` does not follow: somebody else has changed the bytes.
        """
        entry = self._entries.get(after.st_ino)
        if entry is not None and entry.describes(before) and entry.ctime_ns != after.st_ctime_ns:
            entry.ctime_ns = after.st_ctime_ns
            entry.mtime_ns = after.st_mtime_ns
            self._entries.put(after.st_ino, entry)
        return entry

    def mark_dirty(self, stat: os.stat_result, path: bytes | None) -> Entry:
        """Note that the bytes of the file at ``path`` are about to change, or have; return its entry."""
        entry = self._entries.get(stat.st_ino)
        if entry is None:
            entry = Entry(EntryState.DIRTY, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        elif entry.state is not EntryState.UPLOADING:
            entry.become(EntryState.DIRTY)
        entry.digest = b""
        entry.path = path or entry.path
        self._entries.put(stat.st_ino, entry)
        return entry

    def note_change(self, node: Node, fd: int) -> None:
        """Note that the bytes of a file, open as ``fd``, are about to change, or have, if they are held against a digest.

        Where no known name of it asks for a digest, one that has gone may have, or one that nobody has looked up.
        """
        stat = os.fstat(fd)
        if self._entries.get(stat.st_ino) is not None or self._policy.has_digest(node):
            self.mark_dirty(stat, path_of(node))
