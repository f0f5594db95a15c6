"""The LMDB environment: opened, checked, opened anew when it can't be trusted.

Write transactions are not synced: the daemon's death loses nothing, since the pages are the kernel's; a power cut may
tear the file. So the environment records the kernel's boot id while it is in use, and is not trusted after a boot that
it did not see end in order. An environment that is damaged, torn or of another store is moved aside and begun anew:
the index can always be rebuilt from the tree and the store.
"""

from __future__ import annotations

import time
from pathlib import Path

import lmdb

from holdfast.index.directories import DirectoryMarks
from holdfast.index.entries import Entries
from holdfast.index.workdirs import WorkdirRecords

_SCHEMA = b"1"
_MAP_BYTES = 16 * 2**30
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Index:
    """The open index of one store.

    ``run`` counts the daemon's runs on this index; ``renewed`` says why the index had to be begun anew, or is None.
    """

    def __init__(self, environment: lmdb.Environment, run: int, renewed: str | None) -> None:
        self.run = run
        self.renewed = renewed
        self._environment = environment
        self._meta = environment.open_db(b"meta")
        self.entries = Entries(environment)
        self.marks = DirectoryMarks(environment)
        self.workdirs = WorkdirRecords(environment)

    @classmethod
    def open(cls, path: Path, store_id: str) -> Index:
        """Open the index in the directory ``path`` for the store ``store_id``."""
        boot_id = _BOOT_ID.read_bytes().strip()
        had_one = (path / "data.mdb").exists()
        environment, problem = _open_checked(path, store_id.encode(), boot_id)
        if problem is not None:
            if environment is not None:
                environment.close()
            _move_aside(path)
            environment = _open(path)
        assert environment is not None
        with environment.begin(write=True) as transaction:
            meta = environment.open_db(b"meta", txn=transaction)
            run = int(transaction.get(b"run", db=meta) or 0) + 1
            if problem is not None:
                run = time.time_ns() // 10**9
            for key, value in (
                (b"schema", _SCHEMA),
                (b"store", store_id.encode()),
                (b"boot", boot_id),
                (b"run", b"%d" % run),
            ):
                transaction.put(key, value, db=meta)
        return cls(environment, run, problem if had_one else None)

    def sync(self) -> None:
        """Write everything to the disk. It waits for the disk and releases the GIL: call it in a thread."""
        self._environment.sync(True)

    def close(self) -> None:
        """Flush, sync and mark the end as orderly."""
        self.entries.flush_uses()
        self._environment.sync(True)
        with self._environment.begin(write=True) as transaction:
            transaction.put(b"boot", b"", db=self._meta)
        self._environment.sync(True)
        self._environment.close()


def _open(path: Path) -> lmdb.Environment:
    return lmdb.open(str(path), map_size=_MAP_BYTES, max_dbs=8, sync=False, metasync=False, readahead=False, max_readers=64)


def _open_checked(path: Path, store_id: bytes, boot_id: bytes) -> tuple[lmdb.Environment | None, str | None]:
    try:
        environment = _open(path)
        with environment.begin() as transaction:
            meta = environment.open_db(b"meta", txn=transaction, create=False)
            schema, store, boot = (transaction.get(key, db=meta) for key in (b"schema", b"store", b"boot"))
    except lmdb.NotFoundError:
        return environment, "empty"
    except (lmdb.Error, OSError) as problem:
        return None, f"damaged: {problem}"
    if schema != _SCHEMA:
        return environment, f"of another schema ({schema!r})"
    if store != store_id:
        return environment, "of another store"
    if boot not in (b"", boot_id):
        return environment, "torn: the machine went down while it was in use"
    return environment, None


def _move_aside(path: Path) -> None:
    for name in ("data.mdb", "lock.mdb"):
        file = path / name
        if file.exists():
            file.replace(path / f"{name}.old")
