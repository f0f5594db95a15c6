"""The LMDB environment: opened, checked, and replaced by a new one if it can't be trusted.

Write transactions are not synced. A crash of the daemon loses nothing, because the pages belong to the kernel, but a
power cut may tear the file. So the environment records the kernel's boot id while it is in use, and is not trusted if
that boot did not end with a clean close. It is verified (``doubt``) if the last run did not end in order, after a reboot,
and if the daemon ended while LMDB opened it. An environment that is damaged, torn or of another store is moved aside
(``data.mdb.old``), and a new one is created: the index can always be rebuilt from the tree and the store.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
from collections import deque
from contextlib import suppress
from pathlib import Path

import lmdb

from holdfast.errors import IndexUnwritableError, StoreUnsuitableError
from holdfast.index.database import Database
from holdfast.index.doubt import DAMAGE, Doubt, why_damaged
from holdfast.index.entries import Entries
from holdfast.index.marks import NameMarks
from holdfast.index.pages import RESERVE_BYTES, MappedPages, keep_reserve
from holdfast.index.pins import Pins
from holdfast.index.workdirs import WorkdirRecords
from holdfast.system import processes
from holdfast.system.syscalls import was_refused

_SCHEMA = b"1"
_DATABASES = (b"meta", b"entries", b"held", b"whiteouts", b"versions-to-delete", b"workdirs")
_FORMER_DATABASES = (b"deletions", b"pins")
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
        self, environment: lmdb.Environment, doubt: Doubt, path: Path, run: int, first_run_of_boot: int, renewed: str | None
    ) -> None:
        self.run = run
        self.first_run_of_boot = first_run_of_boot
        self.renewed = renewed
        self._environment = environment
        self._file = path / _DATA
        self._mapped_pages = MappedPages(self._file)
        self._meta, entries, *others = (Database(environment, doubt, name) for name in _DATABASES)
        held, whiteouts, deletions, workdirs = others
        for database in others:  # LMDB finds damage by reading; the entries read themselves
            deque(database.whole(), maxlen=0)
        self.entries = Entries(entries, self._mapped_pages)
        self.marks = NameMarks(held, whiteouts, deletions)
        self.workdirs = WorkdirRecords(workdirs)
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
        doubt, renewed = Doubt(path), None
        try:
            if (path / _DATA).exists():
                try:
                    return cls._begin_run(path, doubt, store_id.encode(), boot)
                except _UntrustedError as problem:
                    renewed = str(problem)
                    _move_aside(path)
            return cls._begin_anew(path, doubt, store_id.encode(), boot, renewed)
        except (lmdb.Error, OSError, IndexUnwritableError) as problem:
            raise StoreUnsuitableError(
                f"the index in {path} can't be opened: {problem}; free some space if its disk is full, let this user write "
                "there, or move it away: it is built anew"
            ) from None

    @classmethod
    def _begin_run(cls, path: Path, doubt: Doubt, store_id: bytes, boot: bytes) -> Index:
        """Open the existing environment. Raises ``_UntrustedError``."""
        file = path / _DATA
        try:
            _check_disk(file)
            must_verify = doubt.is_noted() or not doubt.note()
            if must_verify:
                _verify(file, doubt)
            ended_in_order = _ended_in_order(path, doubt, store_id, boot)
            if not (must_verify or ended_in_order):
                _verify(file, doubt)
            environment = _open(path)
            try:
                meta = Database(environment, doubt, b"meta", create=False)
                run = int(meta.get(b"run") or 0) + 1
                begun, _, known = (meta.get(_FIRST_RUN) or b"").rpartition(b" ")
                first = int(known) if begun == boot else run
                meta.put_all({b"boot": boot, b"run": b"%d" % run, _FIRST_RUN: b"%s %d" % (boot, first)})
                index = cls(environment, doubt, path, run, first, None)
            except BaseException:
                environment.close()
                raise
        except (lmdb.Error, ValueError) as problem:
            if isinstance(problem, (*DAMAGE, ValueError)) or why_damaged(file) is not None:
                raise _UntrustedError(f"damaged: {problem}") from None
            raise
        doubt.clear()
        return index

    @classmethod
    def _begin_anew(cls, path: Path, doubt: Doubt, store_id: bytes, boot: bytes, renewed: str | None) -> Index:
        environment = _open(path)
        try:
            meta = {b"schema": _SCHEMA, b"store": store_id, b"boot": boot, b"run": b"1", _TO_BE_REBUILT: b"yes"}
            Database(environment, doubt, b"meta").put_all({**meta, _FIRST_RUN: b"%s 1" % boot})
            index = cls(environment, doubt, path, 1, 1, renewed)
        except BaseException:
            environment.close()
            raise
        doubt.clear()
        return index

    def is_to_be_rebuilt(self) -> bool:
        """Say whether files of an earlier index may be missing, because no run has examined all files yet."""
        return self._meta.get(_TO_BE_REBUILT) == b"yes"

    def note_rebuilt(self) -> None:
        """Note that all files have been examined. Raises ``IndexUnwritableError``."""
        self._meta.put(_TO_BE_REBUILT, b"no")

    def place_of_store(self, name: str) -> str | None:
        """Return where the store ``name`` was when that was noted last; None when it never was."""
        value = self._meta.get(_PLACE + name.encode())
        return None if value is None else value.decode(errors="replace")

    def note_place_of_store(self, name: str, place: str) -> None:
        """Note where the store ``name`` is. Raises ``IndexUnwritableError``."""
        self._meta.put(_PLACE + name.encode(), place.encode())

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
                self._meta.put(b"boot", _ENDED_IN_ORDER)
                self.sync()
        self._mapped_pages.forget()
        os.close(self._witness)
        self._environment.close()

    def _note_loss(self) -> None:
        with suppress(IndexUnwritableError):
            self._meta.put(b"boot", _HAS_LOST)


def _open(path: Path) -> lmdb.Environment:
    _keep_room_for_lock(path / _LOCK)
    return lmdb.open(
        str(path), map_size=_MAP_BYTES, max_dbs=len(_DATABASES), sync=False, metasync=False, readahead=False, max_readers=64
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
    """Raise ``_UntrustedError`` if the disk can't read the file, or it is too short to be opened.

    LMDB maps it: for a bad block the daemon would be killed. The scans at the start read most of it anyway.
    """
    chunk, read_bytes = bytearray(_CHUNK_BYTES), 0
    with file.open("rb", buffering=0) as data:
        try:
            while more_bytes := data.readinto(chunk):
                read_bytes += more_bytes
        except OSError as problem:
            if problem.errno != errno.EIO:
                raise
            raise _UntrustedError("damaged: the disk can't read it") from None
    if read_bytes < 2 * mmap.PAGESIZE:
        raise _UntrustedError("damaged: the file is cut short")


def _verify(file: Path, doubt: Doubt) -> None:
    """Raise ``_UntrustedError`` if the index is damaged, or was so to an earlier run."""
    if problem := doubt.reason() or why_damaged(file):
        raise _UntrustedError(f"damaged: {problem}")


def _ended_in_order(path: Path, doubt: Doubt, store_id: bytes, boot: bytes) -> bool:
    """Say whether the last run ended in order, in this boot. Raises ``_UntrustedError`` and ``lmdb.Error``."""
    with _open(path) as environment:
        wanted_bytes = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
        if (path / _DATA).stat().st_size < wanted_bytes:
            raise _UntrustedError("damaged: the file is cut short")  # reading further would raise SIGBUS
        names = set(environment.dbs())
        meta = Database(environment, doubt, b"meta", create=False)
        schema, store, last_boot, first_run = (meta.get(key) for key in (b"schema", b"store", b"boot", _FIRST_RUN))
    if schema != _SCHEMA:
        raise _UntrustedError(f"of another schema ({schema!r})")
    if not names.issuperset(_DATABASES) and not names.issubset((*_DATABASES, *_FORMER_DATABASES)):
        raise _UntrustedError("damaged: a database has another name")
    if store != store_id:
        raise _UntrustedError("of another store")
    if last_boot == _HAS_LOST:
        raise _UntrustedError("damaged: its disk has refused bytes that were written to it")
    if last_boot not in (_ENDED_IN_ORDER, boot):
        raise _UntrustedError("torn: the machine went down while it was in use")
    return last_boot == _ENDED_IN_ORDER and (first_run or b"").rpartition(b" ")[0] == boot


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
