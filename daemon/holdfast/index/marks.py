"""Marks on names and directories that neither the tree nor the store can hold.

- *held*: a directory (by inode number) that exists although no object implies it, because it was created or emptied here.
- *whiteout*: a path that hides what the store has there: an object (fallback zones), or an empty directory that was
  removed here (zones over stores).
- *deletion*: a path whose object is deleted on this node but not yet in the store, with the version to be deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile

from holdfast.digest import digest_of
from holdfast.index.database import Database, key_after
from holdfast.index.records import CachedName, decoded_name, encoded
from holdfast.system.file_id import FileId

_LONGEST_KEY_BYTES = 480  # LMDB keys have at most 511 bytes; a longer path is cut, and a digest makes it unique
_CUT_BYTES = _LONGEST_KEY_BYTES - 16
_FEW = 100
"""The number of records that are read at once: mostly there are none below a path."""


class NameMarks:
    """The databases of marks. All calls are short and unsynced."""

    def __init__(self, held: Database, whiteouts: Database, deletions: Database) -> None:
        self._held = held
        self._whiteouts = whiteouts
        self._deletions = deletions
        self.holds = 0
        """Counts directories marked, or moved with their marks: a cache of unmarked paths is valid until it changes."""

    def hold(self, inode: FileId) -> None:
        """Mark the directory ``inode`` as existing without objects."""
        self.holds += 1
        self._held.put(inode.to_bytes(8, "big"), b"")

    def let_go(self, inode: FileId) -> None:
        """Remove the mark of ``inode``, if it has one."""
        self._held.delete(inode.to_bytes(8, "big"))

    def moved(self) -> None:
        """Note that a directory, which may be marked, has another path."""
        self.holds += 1

    def is_held(self, inode: FileId) -> bool:
        """Say whether ``inode`` is marked."""
        return self._held.get(inode.to_bytes(8, "big")) is not None

    def white_out(self, path: bytes) -> bool:
        """Hide what the store has at the tree path ``path``; say whether it was not hidden before."""
        return self._whiteouts.put(_bounded(path), path, overwrite=False)

    def uncover(self, path: bytes) -> None:
        """Show what the store has at ``path`` again."""
        self._whiteouts.delete(_bounded(path))

    def is_whited_out(self, path: bytes) -> bool:
        """Say whether ``path`` is hidden."""
        return self._whiteouts.get(_bounded(path)) is not None

    def whited_out_below(self, path: bytes, after: bytes = b"", most: int | None = None) -> list[bytes]:
        """Return the paths below ``path`` that are hidden: up to ``most``, after ``after`` in an order of their own."""
        return [hidden for _, hidden in islice(self._hidden_below(path, after), most)]

    def uncover_below(self, path: bytes, most: int | None = None) -> bool:
        """Show everything that the store has below ``path`` again; only the first ``most`` paths if it is given.

        Return whether that was all.
        """
        keys = [key for key, _ in islice(self._hidden_below(path), most)]
        if keys:
            with self._whiteouts.writing() as transaction:
                for key in keys:
                    transaction.delete(key)
        return most is None or len(keys) < most

    def _hidden_below(self, path: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the key of each hidden path below ``path``, and that path, beginning after the path ``after``."""
        prefix = path + b"/"
        start = prefix[:_CUT_BYTES]
        records = self._whiteouts.records(key_after(_bounded(after)) if after else start, _FEW)
        return (
            record for record in takewhile(lambda each: each[0].startswith(start), records) if record[1].startswith(prefix)
        )

    def mark_deleted(self, version: CachedName) -> None:
        """Record that this version of an object is to be deleted in the store."""
        self._deletions.put(_bounded(version.path), encoded(version))

    def clear_deleted(self, path: bytes) -> None:
        """Remove the record: the deletion was sent, or the name is in use again."""
        self._deletions.delete(_bounded(path))

    def deletions(self) -> list[CachedName]:
        """Return all objects that are still to be deleted; one whose record can't be read stays."""
        found = (decoded_name(data) for _, data in self._deletions.records())
        return [version for version in found if version is not None]


def _bounded(path: bytes) -> bytes:
    if len(path) <= _LONGEST_KEY_BYTES:
        return path
    return path[:_CUT_BYTES] + digest_of(path)
