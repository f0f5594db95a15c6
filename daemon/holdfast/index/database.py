"""One of the databases in the index's file: its records, and how they are read and written.

All calls are short and unsynced. What LMDB says of damage is noted (``Doubt``), so that the next start does not trust the
index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from operator import lt

import lmdb

from holdfast.errors import IndexFullError, IndexUnwritableError
from holdfast.index.doubt import DAMAGE, Doubt

_PAGE = 10_000


class Database:
    """The database ``name``."""

    def __init__(self, environment: lmdb.Environment, doubt: Doubt, name: bytes, *, create: bool = True) -> None:
        """Open the database, or create it. Raises ``lmdb.Error``."""
        self._environment = environment
        self._doubt = doubt
        self._database = environment.open_db(name, create=create)
        if any(self._database.flags().values()):  # LMDB would order and replace its records differently
            raise lmdb.CorruptedError(f"the database {name.decode()} has flags that it was not made with")

    def get(self, key: bytes) -> bytes | None:
        """Return the record with this key."""
        try:
            with self._environment.begin(db=self._database) as transaction:
                return transaction.get(key)
        except DAMAGE as problem:
            raise self._damage(problem) from None

    def put(self, key: bytes, value: bytes, *, overwrite: bool = True) -> bool:
        """Write a record; say whether that was done. Raises ``IndexUnwritableError``."""
        with self.writing() as transaction:
            return bool(transaction.put(key, value, overwrite=overwrite))

    def put_all(self, values: Mapping[bytes, bytes]) -> None:
        """Write these records, all or none. Raises ``IndexUnwritableError``."""
        with self.writing() as transaction:
            for key, value in values.items():
                transaction.put(key, value)

    def delete(self, key: bytes) -> None:
        """Remove the record with this key, if there is one. Raises ``IndexUnwritableError``."""
        with self.writing() as transaction:
            transaction.delete(key)

    @contextmanager
    def writing(self) -> Iterator[lmdb.Transaction[bytes]]:
        """Provide a write transaction, committed when the block ends. After ``IndexUnwritableError`` nothing has changed."""
        try:
            with self._environment.begin(db=self._database, write=True) as transaction:
                yield transaction
        except (lmdb.DiskError, lmdb.MapFullError):
            raise IndexFullError(
                "the disk of the store is full, and the index has no room left in it: free some disk space, or give the "
                "store a larger disk"
            ) from None
        except lmdb.Error as problem:
            if isinstance(problem, DAMAGE):
                self._doubt.note(problem)
            if type(problem) is not lmdb.Error:
                raise
            # LMDB knows its own errors by name; one without a name comes from the disk
            raise IndexUnwritableError(
                f"the disk of the store takes no writes: {problem}; look at the kernel's log"
            ) from None

    def pages(self, first: bytes = b"", most: int = _PAGE) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yield the records from the key ``first`` on, in the order of keys, up to ``most`` of them at a time.

        A transaction that is open for long makes the index grow, so each page has its own. Raises ``lmdb.CorruptedError`` if
        a key is not greater than the one before: a damaged index would be read for ever.
        """
        while page := self._page(first, most):
            yield page
            first = key_after(page[-1][0])

    def records(self, first: bytes = b"", most: int = _PAGE) -> Iterator[tuple[bytes, bytes]]:
        """Yield the records from the key ``first`` on, as ``pages`` does."""
        for page in self.pages(first, most):
            yield from page

    def whole(self, most: int = _PAGE) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yield all records, while nothing is changed. Raises ``lmdb.CorruptedError`` unless they are as many as noted."""
        found = 0
        for page in self.pages(most=most):
            found += len(page)
            yield page
        if found != self.count():
            raise self._damage(lmdb.CorruptedError(f"it has {found} records, and should have {self.count()}"))

    def _damage(self, problem: lmdb.Error) -> lmdb.Error:
        self._doubt.note(problem)
        return problem

    def _page(self, first: bytes, most: int) -> list[tuple[bytes, bytes]]:
        try:
            with self._environment.begin(db=self._database) as transaction, transaction.cursor() as cursor:
                page = list(islice(cursor, most)) if cursor.set_range(first) else []
            keys = [key for key, _ in page]
            if page and (keys[0] < first or not all(map(lt, keys, keys[1:]))):
                raise lmdb.CorruptedError("its records are not in the order of their keys")
        except DAMAGE as problem:
            raise self._damage(problem) from None
        return page

    def count(self) -> int:
        """Return how many records there are."""
        with self._environment.begin(db=self._database) as transaction:
            return int(transaction.stat(self._database)["entries"])


def key_after(key: bytes) -> bytes:
    """Return the least key that is greater."""
    return key + b"\0"
