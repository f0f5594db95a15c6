"""Records of working directories, by their path in the tree."""

from __future__ import annotations

from itertools import islice

from holdfast.index.database import Database, key_after
from holdfast.index.records import WorkdirRecord, decoded_workdir, encoded


class WorkdirRecords:
    """The ``workdirs`` database. All calls are short and unsynced."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, path: bytes) -> WorkdirRecord | None:
        """Return the record of the directory at ``path``; None if there is none, or if it can't be read."""
        return decoded_workdir(self._database.get(path))

    def put(self, path: bytes, record: WorkdirRecord) -> None:
        """Write the record of the directory at ``path``."""
        self._database.put(path, encoded(record))

    def discard(self, path: bytes) -> None:
        """Forget the directory at ``path``, if it is known."""
        self._database.delete(path)

    def after(self, path: bytes, most: int) -> list[tuple[bytes, WorkdirRecord]]:
        """Return up to ``most`` paths after ``path`` with their records, in the order of paths; none if these are all."""
        pages = self._database.pages(key_after(path) if path else b"", most)
        found = ((key, decoded_workdir(data)) for page in pages for key, data in page)
        return list(islice(((key, record) for key, record in found if record is not None), most))
