"""Marks on names and directories that neither the tree nor the store can hold.

- *held*: a directory (by inode number) that exists although no object implies it, because it was created or emptied here.
- *whiteout*: a path that hides what the store has there: an object (fallback zones), or an empty directory that was
  removed here (zones over stores).
- *deletion*: a path whose object is deleted on this node but not yet in the store, with the version to be deleted.
"""

from __future__ import annotations

import lmdb

from holdfast.digest import digest_of
from holdfast.index.pages import writing
from holdfast.index.records import CachedName, decoded_name, encoded
from holdfast.system.file_id import FileId

_LONGEST_KEY_BYTES = 480  # LMDB keys have at most 511 bytes; a longer path is cut, and a digest makes it unique
_CUT_BYTES = _LONGEST_KEY_BYTES - 16


class NameMarks:
    """The databases of marks. All calls are short and unsynced."""

    def __init__(self, environment: lmdb.Environment) -> None:
        self._environment = environment
        self._held = environment.open_db(b"held")
        self._whiteouts = environment.open_db(b"whiteouts")
        self._deletions = environment.open_db(b"versions-to-delete")
        self.holds = 0
        """Counts directories marked, or moved with their marks: a cache of unmarked paths is valid until it changes."""

    def hold(self, inode: FileId) -> None:
        """Mark the directory ``inode`` as existing without objects."""
        self.holds += 1
        self._put(self._held, inode.to_bytes(8, "big"), b"")

    def let_go(self, inode: FileId) -> None:
        """Remove the mark of ``inode``, if it has one."""
        self._delete(self._held, inode.to_bytes(8, "big"))

    def moved(self) -> None:
        """Note that a directory, which may be marked, has another path."""
        self.holds += 1

    def is_held(self, inode: FileId) -> bool:
        """Say whether ``inode`` is marked."""
        return self._has(self._held, inode.to_bytes(8, "big"))

    def white_out(self, path: bytes) -> bool:
        """Hide what the store has at the tree path ``path``; say whether it was not hidden before."""
        return self._put(self._whiteouts, _bounded(path), path, overwrite=False)

    def uncover(self, path: bytes) -> None:
        """Show what the store has at ``path`` again."""
        self._delete(self._whiteouts, _bounded(path))

    def is_whited_out(self, path: bytes) -> bool:
        """Say whether ``path`` is hidden."""
        return self._has(self._whiteouts, _bounded(path))

    def whited_out_below(self, path: bytes) -> list[bytes]:
        """Return all paths below ``path`` that are hidden."""
        prefix = path + b"/"
        start = prefix[:_CUT_BYTES]
        found = []
        with self._environment.begin(db=self._whiteouts) as transaction:
            cursor = transaction.cursor()
            is_there = cursor.set_range(start)
            while is_there and cursor.key().startswith(start):
                found.append(bytes(cursor.value()))
                is_there = cursor.next()
        return [hidden for hidden in found if hidden.startswith(prefix)]

    def uncover_below(self, path: bytes) -> None:
        """Show everything that the store has below ``path`` again."""
        prefix = path + b"/"
        start = prefix[:_CUT_BYTES]
        with writing(self._environment, self._whiteouts) as transaction:
            cursor = transaction.cursor()
            found = cursor.set_range(start)
            while found and cursor.key().startswith(start):
                found = cursor.delete() if cursor.value().startswith(prefix) else cursor.next()

    def mark_deleted(self, version: CachedName) -> None:
        """Record that this version of an object is to be deleted in the store."""
        self._put(self._deletions, _bounded(version.path), encoded(version))

    def clear_deleted(self, path: bytes) -> None:
        """Remove the record: the deletion was sent, or the name is in use again."""
        self._delete(self._deletions, _bounded(path))

    def deletions(self) -> list[CachedName]:
        """Return all objects that are still to be deleted; one whose record can't be read stays."""
        found = map(decoded_name, self._values(self._deletions))
        return [version for version in found if version is not None]

    def _put(self, database: lmdb._Database, key: bytes, value: bytes, *, overwrite: bool = True) -> bool:
        with writing(self._environment, database) as transaction:
            return bool(transaction.put(key, value, overwrite=overwrite))

    def _delete(self, database: lmdb._Database, key: bytes) -> None:
        with writing(self._environment, database) as transaction:
            transaction.delete(key)

    def _values(self, database: lmdb._Database) -> list[bytes]:
        with self._environment.begin(db=database) as transaction:
            return [bytes(value) for _, value in transaction.cursor()]

    def _has(self, database: lmdb._Database, key: bytes) -> bool:
        with self._environment.begin(db=database) as transaction:
            return transaction.get(key) is not None


def _bounded(path: bytes) -> bytes:
    if len(path) <= _LONGEST_KEY_BYTES:
        return path
    return path[:_CUT_BYTES] + digest_of(path)
