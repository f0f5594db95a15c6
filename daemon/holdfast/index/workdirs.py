"""Records of working directories, by their path in the tree."""

from __future__ import annotations

from itertools import islice

import lmdb

from holdfast.index.pages import writing
from holdfast.index.records import WorkdirRecord, decoded_workdir, encoded


class WorkdirRecords:
    """The ``workdirs`` database. All calls are short and unsynced."""

    def __init__(self, environment: lmdb.Environment) -> None:
        self._environment = environment
        self._database = environment.open_db(b"workdirs")

    def get(self, path: bytes) -> WorkdirRecord | None:
        """Return the record of the directory at ``path``; None if there is none, or if it can't be read."""
        with self._environment.begin(db=self._database) as transaction:
            return decoded_workdir(transaction.get(path))

    def put(self, path: bytes, record: WorkdirRecord) -> None:
        """Write the record of the directory at ``path``."""
        with writing(self._environment, self._database) as transaction:
            transaction.put(path, encoded(record))

    def discard(self, path: bytes) -> None:
        """Forget the directory at ``path``, if it is known."""
        with writing(self._environment, self._database) as transaction:
            transaction.delete(path)

    def after(self, path: bytes, most: int) -> list[tuple[bytes, WorkdirRecord]]:
        """Return up to ``most`` paths after ``path`` with their records, in the order of paths; none if these are all."""
        with self._environment.begin(db=self._database) as transaction, transaction.cursor() as cursor:
            if not (cursor.set_range(path) if path else cursor.first()):
                return []
            found = ((bytes(key), decoded_workdir(data)) for key, data in cursor)
            return list(islice(((key, record) for key, record in found if key != path and record is not None), most))
