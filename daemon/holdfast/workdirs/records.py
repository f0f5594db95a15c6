"""Records of working directories, each in the index and on its directory.

What the index knows of files can be recovered, but not who holds a directory; and a living process must not lose its files
because an index was damaged or has another version. So each record is also an extended attribute of its directory. Users
don't see it (``fs.namespace.xattrs``), it needs no rights but the owner's, and it is removed with the directory. It is read
at the start if the index has no record. A crash between the two leaves the attribute one step behind; the index counts.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from holdfast.index import WorkdirRecord, WorkdirRecords
from holdfast.index.records import decoded_workdir, encoded
from holdfast.store import Tree
from holdfast.zones import WorkdirName

_ATTRIBUTE = "user.holdfast.workdir"
_SEPARATOR = b"\n"
_PORTION = 500
"""The number of records that are read at once: two milliseconds. Users decide how many there are."""
_log = logging.getLogger("holdfast.workdirs")


class Records:
    """The records by path in the tree. ``boot_id`` identifies this boot of the machine."""

    def __init__(self, index: WorkdirRecords, tree: Tree, boot_id: bytes) -> None:
        self._index = index
        self._tree = tree
        self._boot_id = boot_id

    def get(self, path: bytes) -> WorkdirRecord | None:
        """Return the record of the directory at ``path``; None if there is none."""
        return self._index.get(path)

    def listed(self, after: bytes = b"") -> Iterator[tuple[bytes, WorkdirRecord]]:
        """Yield every path after ``after`` with its record, by path. What is changed meanwhile may be missed."""
        while portion := self._index.after(after, _PORTION):
            yield from portion
            after, _ = portion[-1]

    def put(self, path: bytes, record: WorkdirRecord) -> None:
        """Write the record of the directory at ``path``. Raises ``IndexUnwritableError``."""
        self._index.put(path, record)
        try:
            with suppress(FileNotFoundError, NotADirectoryError), self._directory(path) as directory:
                os.setxattr(directory, _ATTRIBUTE, self._boot_id + _SEPARATOR + encoded(record))
        except OSError as problem:  # a full disk, or a directory that its owner may not write
            _log.warning("who holds %s is noted in the index alone: %s", os.fsdecode(path), problem)

    def discard(self, path: bytes) -> None:
        """Delete the record of the directory at ``path``, which is gone."""
        self._index.discard(path)

    def restore(self, path: bytes, name: WorkdirName) -> None:
        """Take the record on the existing directory at ``path`` if the index has none.

        The process number in it is valid only within the same boot. A directory without any record counts as released now.
        """
        if self._index.get(path) is not None:
            return
        now = time.time()
        self.put(
            path, self._on_directory(path) or WorkdirRecord(name.role, name.resource_id, now, now, released_seconds=now)
        )

    def _on_directory(self, path: bytes) -> WorkdirRecord | None:
        try:
            with self._directory(path) as directory:
                boot_id, _, data = os.getxattr(directory, _ATTRIBUTE).partition(_SEPARATOR)
        except OSError as problem:
            _log.warning("%s does not say who holds it: %s", os.fsdecode(path), problem)
            return None
        record = decoded_workdir(data)
        if record is not None and boot_id != self._boot_id:
            record.pid = 0
        return record

    @contextmanager
    def _directory(self, path: bytes) -> Iterator[bytes]:
        """Yield a path of the directory for the os module: an ``O_PATH`` descriptor gives no access to attributes."""
        fd = self._tree.open_directory(path)
        try:
            yield b"/proc/self/fd/%d/." % fd
        finally:
            os.close(fd)
