"""The rarer records that the next daemon needs: LMDB on tmpfs, never synced.

- ``nodes``: nodes whose id is not the inode number of their file, so that the tree does not show which file it is;
- ``notes``: what a request was about to do, by its number, if that can't be seen afterwards;
- ``numbers``: requests that earlier daemons of this mount had counted when they ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import lmdb
import msgspec

from holdfast.errors import SessionFullError, TakeoverError
from holdfast.system.file_id import FileId

_MAP_BYTES = 2**30
_RESERVE_BYTES = 2**19
"""The space that stays allocated for what is written next: some pages in a takeover, two or three in a change."""
_MOST_NOTES = 4096
"""The limit of notes: more than there can be requests in flight."""


class NodeRecord(msgspec.Struct, frozen=True, array_like=True):
    """A node: its file or, without one (0), the id of its directory and its name there."""

    backing: FileId
    is_directory: bool
    parent: int
    name: bytes


class SessionRecords:
    """The records in the directory ``path``, which is created if it is missing.

    A change is complete when the call returns. Every call that writes, and the first opening, may raise
    ``SessionFullError``, having changed nothing. Records that can't be read raise ``TakeoverError``.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.mkdir(mode=0o700, exist_ok=True)
        try:
            self._environment = lmdb.open(
                str(path), map_size=_MAP_BYTES, max_dbs=3, sync=False, metasync=False, lock=False, readahead=False
            )
            self._nodes, self._notes, self._numbers = (
                self._environment.open_db(name) for name in (b"nodes", b"notes", b"numbers")
            )
            self._kept = {node_id for node_id, _ in self.nodes()}
            _keep_reserve(self._environment, path / "data.mdb")
        except lmdb.DiskError:
            raise full(path) from None
        except (lmdb.Error, msgspec.DecodeError) as problem:
            raise TakeoverError(f"{path} can't be read: {problem}") from None

    # --- nodes -------------------------------------------------------------------------------------------------------

    def keep(self, node_id: int, record: NodeRecord) -> None:
        """Record what the id stands for."""
        with self._writing(self._nodes) as transaction:
            transaction.put(_key(node_id), msgspec.msgpack.encode(record))
        self._kept.add(node_id)

    def drop(self, node_id: int) -> None:
        """Remove the record of the id, if there is one."""
        if node_id in self._kept:
            with self._writing(self._nodes) as transaction:
                transaction.delete(_key(node_id))
            self._kept.discard(node_id)

    def nodes(self) -> Iterator[tuple[int, NodeRecord]]:
        """Yield ids and what they stand for."""
        with self._environment.begin(db=self._nodes) as transaction:
            for key, data in transaction.cursor():
                yield int.from_bytes(key, "big"), msgspec.msgpack.decode(data, type=NodeRecord)

    # --- requests ----------------------------------------------------------------------------------------------------

    def note(self, number: int, text: bytes = b"") -> None:
        """Record that the request ``number`` is about to take effect."""
        with self._writing(self._notes) as transaction:
            transaction.put(_key(number), text)
            if transaction.stat(self._notes)["entries"] > _MOST_NOTES:
                cursor = transaction.cursor()
                cursor.first()
                cursor.delete()

    def noted(self, number: int) -> bytes | None:
        """Return what was recorded for a request; None if nothing was."""
        with self._environment.begin(db=self._notes) as transaction:
            return transaction.get(_key(number))

    def add_numbers(self, numbers: Iterable[int]) -> None:
        """Record the numbers of requests that were counted."""
        with self._writing(self._numbers) as transaction:
            for number in numbers:
                transaction.put(_key(number), b"")

    def numbers(self) -> set[int]:
        """Return the numbers of all requests that earlier daemons had counted."""
        with self._environment.begin(db=self._numbers) as transaction:
            return {int.from_bytes(key, "big") for key in transaction.cursor().iternext(values=False)}

    def close(self) -> None:
        """Close the environment; its files stay."""
        self._environment.close()

    @contextmanager
    def _writing(self, database: lmdb._Database) -> Iterator[lmdb.Transaction[bytes]]:
        try:
            with self._environment.begin(db=database, write=True) as transaction:
                yield transaction
        except (lmdb.DiskError, lmdb.MapFullError):
            raise full(self._path) from None


def _keep_reserve(environment: lmdb.Environment, file: Path) -> None:
    """Extend the file beyond its used part, so that the next daemon can take over though the file system is full by then."""
    used_bytes = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # it is full already
            os.posix_fallocate(fd, used_bytes, _RESERVE_BYTES)
    finally:
        os.close(fd)


def full(path: Path) -> SessionFullError:
    """Return the error for a file system that has no room for ``path``."""
    where = path.parent
    return SessionFullError(
        f"the file system of {where} has no room, of bytes or of inodes: free some in it (df {where}; df -i {where})"
    )


def _key(number: int) -> bytes:
    return number.to_bytes(8, "big")
