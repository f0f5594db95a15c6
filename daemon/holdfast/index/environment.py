"""The LMDB environment: opened, checked, and replaced by a new one if it can't be trusted.

Write transactions are not synced. A crash of the daemon loses nothing, because the pages belong to the kernel, but a
power cut may tear the file. So the environment records the kernel's boot id while it is in use, and is not trusted if
that boot did not end with a clean close. An environment that is damaged, torn or of another store is moved aside
(``data.mdb.old``), and a new one is created: the index can always be rebuilt from the tree and the store.
"""

from __future__ import annotations

import errno
import logging
import os
from contextlib import suppress
from pathlib import Path

import lmdb

from holdfast.errors import IndexUnwritableError, StoreUnsuitableError
from holdfast.index.entries import Entries
from holdfast.index.marks import NameMarks
from holdfast.index.pages import RESERVE_BYTES, MappedPages, keep_reserve, writing
from holdfast.index.pins import Pins
from holdfast.index.read_check import DAMAGE, MOST_DATABASES, why_unreadable
from holdfast.index.workdirs import WorkdirRecords
from holdfast.system import processes
from holdfast.system.syscalls import was_refused

_SCHEMA = b"1"
_MAP_BYTES = 16 * 2**30
_DATA = "data.mdb"
_LOCK = "lock.mdb"
_LOCK_BYTES = 8192
"""The size of the lock with ``max_readers``, in whole pages."""
_CHUNK_BYTES = 1 << 20
_ENDED_IN_ORDER = b""
_HAS_LOST = b"its disk has refused bytes"
"""Noted in the place of the boot once the disk has refused bytes of the index."""
_PLACE = b"place of store "
_FIRST_RUN = b"first run of boot"
_TO_BE_REBUILT = b"to be rebuilt"
_log = logging.getLogger("holdfast.index")


class _UntrustedError(Exception):
    """The index on the disk can't be used; the message is the reason."""


class Index:
    """The open index of one store.

    ``run`` counts the daemon's runs on this index, ``first_run_of_boot`` is the first one since the machine was started;
    ``renewed`` says why a new index had to be created, or is None.
    """

    def __init__(
        self, environment: lmdb.Environment, path: Path, run: int, first_run_of_boot: int, renewed: str | None
    ) -> None:
        self.run = run
        self.first_run_of_boot = first_run_of_boot
        self.renewed = renewed
        self._environment = environment
        self._file = path / _DATA
        self._mapped_pages = MappedPages(self._file)
        self.entries = Entries(environment, self._mapped_pages)
        self.marks = NameMarks(environment)
        self.workdirs = WorkdirRecords(environment)
        self.pins = Pins(path / "pins")
        self.takes_writes = True
        """False after a sync that failed, until one succeeds."""
        self.has_room = True
        """False while the disk of the index has no room for what it takes next."""
        self._has_lost = False
        self._witness = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC)
        """Tells after a sync that failed whether the disk has refused bytes; LMDB's own descriptor has told that by then."""
        self.keep_reserve()

    @classmethod
    def open(cls, path: Path, store_id: str, boot_id: bytes | None = None) -> Index:
        """Open the index in the directory ``path`` for the store ``store_id``.

        ``boot_id`` identifies this boot of the machine (None: ask the kernel). Raises ``StoreUnsuitableError`` if
        it can't be opened for a reason that would also affect a new one: rights, memory, a full disk.
        """
        boot = processes.boot_id() if boot_id is None else boot_id
        renewed = None
        try:
            if (path / _DATA).exists():
                try:
                    return cls._begin_run(path, store_id.encode(), boot)
                except _UntrustedError as problem:
                    renewed = str(problem)
                    _move_aside(path)
            return cls._begin_anew(path, store_id.encode(), boot, renewed)
        except (lmdb.Error, OSError, IndexUnwritableError) as problem:
            raise StoreUnsuitableError(
                f"the index in {path} can't be opened: {problem}; free some space if its disk is full, let this user write "
                "there, or move it away: it is built anew"
            ) from None

    @classmethod
    def _begin_run(cls, path: Path, store_id: bytes, boot: bytes) -> Index:
        """Open the existing environment. Raises ``_UntrustedError``."""
        try:
            _check_disk(path / _DATA)
            last_boot = _checked_boot(path, store_id, boot)
            if last_boot != _ENDED_IN_ORDER and (problem := why_unreadable(path)) is not None:
                raise _UntrustedError(f"damaged: {problem}")
            environment = _open(path)
            try:
                run = int(_meta_of(environment, b"run") or 0) + 1
                begun, _, known = (_meta_of(environment, _FIRST_RUN) or b"").rpartition(b" ")
                first = int(known) if begun == boot else run
                _write_meta(environment, {b"boot": boot, b"run": b"%d" % run, _FIRST_RUN: b"%s %d" % (boot, first)})
                return cls(environment, path, run, first, None)
            except BaseException:
                environment.close()
                raise
        except (*DAMAGE, ValueError) as problem:
            raise _UntrustedError(f"damaged: {problem}") from None

    @classmethod
    def _begin_anew(cls, path: Path, store_id: bytes, boot: bytes, renewed: str | None) -> Index:
        environment = _open(path)
        try:
            meta = {b"schema": _SCHEMA, b"store": store_id, b"boot": boot, b"run": b"1", _TO_BE_REBUILT: b"yes"}
            _write_meta(environment, {**meta, _FIRST_RUN: b"%s 1" % boot})
            return cls(environment, path, 1, 1, renewed)
        except BaseException:
            environment.close()
            raise

    def is_to_be_rebuilt(self) -> bool:
        """Say whether files of an earlier index may be missing, because no run has examined all files yet."""
        return _meta_of(self._environment, _TO_BE_REBUILT) == b"yes"

    def note_rebuilt(self) -> None:
        """Note that all files have been examined. Raises ``IndexUnwritableError``."""
        _write_meta(self._environment, {_TO_BE_REBUILT: b"no"})

    def place_of_store(self, name: str) -> str | None:
        """Return where the store ``name`` was when that was noted last; None when it never was."""
        value = _meta_of(self._environment, _PLACE + name.encode())
        return None if value is None else value.decode(errors="replace")

    def note_place_of_store(self, name: str, place: str) -> None:
        """Note where the store ``name`` is. Raises ``IndexUnwritableError``."""
        _write_meta(self._environment, {_PLACE + name.encode(): place.encode()})

    def keep_reserve(self) -> None:
        """Reserve more disk space for the index if half of its reserve is used up. Call it now and then."""
        self.has_room = keep_reserve(self._environment, self._file)

    def release_pages(self) -> None:
        """Give back what is mapped of the index, if it is much. Call it now and then."""
        self._mapped_pages.release_many()

    def sync(self) -> bool:
        """Write everything to the disk; return whether it is there. It releases the GIL: call it in a thread.

        After a failure, a power cut loses what was not written; the index is then not trusted, and rebuilt. Once the disk
        has refused bytes, only memory has them, though later syncs succeed: the next start does not trust the index at all.
        """
        try:
            self._environment.sync(True)
        except lmdb.Error as problem:
            _log.warning("can't sync the index in %s: %s", self._file, problem)
            self.takes_writes = False
            if not self._has_lost and was_refused(self._witness):
                self._has_lost = True
                self._note_loss()
        else:
            self.takes_writes = True
        return self.takes_writes and not self._has_lost

    def close(self) -> None:
        """Flush, sync and record that the index was closed cleanly."""
        self.entries.flush_uses()
        if self.sync():
            with suppress(IndexUnwritableError):  # then it is not trusted after a reboot
                _write_meta(self._environment, {b"boot": _ENDED_IN_ORDER})
                self.sync()
        self._mapped_pages.forget()
        os.close(self._witness)
        self._environment.close()

    def _note_loss(self) -> None:
        with suppress(IndexUnwritableError):
            _write_meta(self._environment, {b"boot": _HAS_LOST})


def _open(path: Path) -> lmdb.Environment:
    _keep_room_for_lock(path / _LOCK)
    return lmdb.open(
        str(path), map_size=_MAP_BYTES, max_dbs=MOST_DATABASES, sync=False, metasync=False, readahead=False, max_readers=64
    )


def _keep_room_for_lock(file: Path) -> None:
    """Give LMDB's lock its blocks. It is mapped, and a store into a hole of a file on a full disk would kill the process."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not os.fstat(fd).st_blocks:  # else it was in use before, and has the blocks that are written
            os.posix_fallocate(fd, 0, _LOCK_BYTES)
    finally:
        os.close(fd)


def _check_disk(file: Path) -> None:
    """Raise ``_UntrustedError`` if the disk can't read the file. LMDB maps it: for a bad block the daemon would be killed.

    The scans at the start read most of it anyway.
    """
    chunk = bytearray(_CHUNK_BYTES)
    with file.open("rb", buffering=0) as data:
        try:
            while data.readinto(chunk):
                pass
        except OSError as problem:
            if problem.errno != errno.EIO:
                raise
            raise _UntrustedError("damaged: the disk can't read it") from None


def _checked_boot(path: Path, store_id: bytes, boot: bytes) -> bytes:
    """Return the boot in which the environment was last in use. Raises ``_UntrustedError`` and ``lmdb.Error``."""
    with _open(path) as environment:
        wanted_bytes = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
        if (path / _DATA).stat().st_size < wanted_bytes:
            raise _UntrustedError("damaged: the file is cut short")  # reading further would raise SIGBUS
        schema, store, last_boot = (_meta_of(environment, key) for key in (b"schema", b"store", b"boot"))
    if schema != _SCHEMA:
        raise _UntrustedError(f"of another schema ({schema!r})")
    if store != store_id:
        raise _UntrustedError("of another store")
    if last_boot == _HAS_LOST:
        raise _UntrustedError("damaged: its disk has refused bytes that were written to it")
    if last_boot not in (_ENDED_IN_ORDER, boot):
        raise _UntrustedError("torn: the machine went down while it was in use")
    assert last_boot is not None
    return last_boot


def _meta_of(environment: lmdb.Environment, key: bytes) -> bytes | None:
    with environment.begin() as transaction:
        database = environment.open_db(b"meta", txn=transaction, create=False)
        return transaction.get(key, db=database)


def _write_meta(environment: lmdb.Environment, values: dict[bytes, bytes]) -> None:
    with writing(environment) as transaction:
        database = environment.open_db(b"meta", txn=transaction)
        for key, value in values.items():
            transaction.put(key, value, db=database)


def _move_aside(path: Path) -> None:
    """Keep what can't be trusted for a look at it, unless the new one needs its room."""
    disk = os.statvfs(path)
    has_room = disk.f_bavail * disk.f_frsize > (path / _DATA).stat().st_size + 2 * RESERVE_BYTES
    for name in (_DATA, _LOCK):
        file = path / name
        if not has_room:
            for each in (file, path / f"{name}.old"):
                each.unlink(missing_ok=True)
        elif file.exists():
            file.replace(path / f"{name}.old")
