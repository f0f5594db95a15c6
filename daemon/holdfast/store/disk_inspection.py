"""Inspects the directories of other disks (``store.other_disks``), and refuses those that a store may not use.

The store directory's ``disks.json`` has the disks that are in use; ``disk.json`` in a disk's directory says whose it is.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast.errors import StoreInUseError, StoreUnsuitableError
from holdfast.mount import mountpoint
from holdfast.store.suitability import OTHER_DISK, PROBE, check_lasting
from holdfast.system.directory_lock import lock_directory
from holdfast.system.file_id import MOST_DISKS
from holdfast.system.processes import boot_id
from holdfast.system.whole_file import new_name, write_whole

_FORMAT_VERSION = 1
DISK_FILE = "disk.json"
_DISKS_FILE = "disks.json"
WORKDIRS = "workdirs"
PARTITIONS = "partitions"
AREAS = ("fetching", "orphans", "trash", "quarantine")
SUBDIRECTORIES = (WORKDIRS, PARTITIONS, *AREAS)


class _DiskFile(msgspec.Struct):
    """The contents of ``disk.json``."""

    format: int
    store: str
    disk: str


class KnownDisk(msgspec.Struct):
    """A disk that is in use: its number in ids of files, its own id, where it is, and where its file system is mounted.

    ``has_failed``: it has failed while a daemon ran, which has given up the partitions' directories there.
    ``is_to_forget``: the index may still know files in directories that were given up there.
    """

    number: int
    disk: str
    path: str
    mountpoint: str = ""
    has_failed: bool = False
    is_to_forget: bool = False


class KnownDisks(msgspec.Struct):
    """The contents of ``disks.json``.

    ``last_number`` is the largest number that a disk has had. ``let_go`` has the numbers of disks that were let go in
    ``boot``: the kernel, and notes for the next daemon, may know files by ids with them until the machine starts again.
    """

    disks: list[KnownDisk] = []
    last_number: int = 0
    boot: str = ""
    let_go: list[int] = []

    def new_number(self, in_use: Iterable[int]) -> int | None:
        """Return a number that nothing knows a file by; None if there is none. ``in_use`` are given by now."""
        if self.last_number < MOST_DISKS:
            self.last_number += 1
            return self.last_number
        taken = {*in_use, *(disk.number for disk in self.disks), *self._let_go_in(_boot())}
        return next((number for number in range(1, MOST_DISKS + 1) if number not in taken), None)

    def changed_to(self, disks: list[KnownDisk]) -> KnownDisks:
        """Return what is known once these disks are in use."""
        let_go = {*self._let_go_in(_boot()), *(disk.number for disk in self.disks)} - {disk.number for disk in disks}
        return KnownDisks(disks, self.last_number, _boot(), sorted(let_go))

    def _let_go_in(self, boot: str) -> list[int]:
        return self.let_go if self.boot == boot else []

    @staticmethod
    def are_at(store: Path) -> bool:
        """Say whether the store at ``store`` has had other disks."""
        return (store / _DISKS_FILE).exists()

    @classmethod
    def read(cls, store: Path) -> KnownDisks:
        """Return those of the store at ``store``. Raises ``StoreUnsuitableError``."""
        try:
            return msgspec.json.decode((store / _DISKS_FILE).read_bytes(), type=cls)
        except FileNotFoundError:
            return cls()
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise StoreUnsuitableError(
                f"{store / _DISKS_FILE} is damaged; restore it from a copy, or remove it: "
                "then the working directories on other disks are given up"
            ) from None

    @classmethod
    def note_failed(cls, store: Path, number: int) -> None:
        """Note that the disk with this number has failed. Raises ``OSError`` and ``StoreUnsuitableError``."""
        cls._change(store, number, has_failed=True)

    @classmethod
    def note_forgotten(cls, store: Path, number: int) -> None:
        """Note that the index knows nothing any more of what was given up on a disk. Raises as ``note_failed`` does."""
        cls._change(store, number, is_to_forget=False)

    @classmethod
    def _change(cls, store: Path, number: int, **changes: bool) -> None:
        """Change what is known of one disk. The caller lets no other thread change it meanwhile."""
        known = cls.read(store)
        disks = [msgspec.structs.replace(disk, **changes) if disk.number == number else disk for disk in known.disks]
        if disks != known.disks:
            known.disks = disks
            known.write(store)

    def write(self, store: Path) -> None:
        """Write them down. Raises ``OSError``."""
        write_whole(store / _DISKS_FILE, [msgspec.json.encode(self)])


def _boot() -> str:
    return boot_id().decode(errors="replace")


def write_disk_file(path: Path, store_id: str, disk_id: str) -> None:
    """Make the directory at ``path`` a disk of the store. Raises ``OSError``."""
    write_whole(path / DISK_FILE, [msgspec.json.encode(_DiskFile(_FORMAT_VERSION, store_id, disk_id))])


def lock_disk(path: Path) -> int:
    """Return a descriptor of the directory at ``path``; until it is closed no other daemon can use the disk.

    Raises ``StoreInUseError`` and ``OSError``.
    """
    try:
        return lock_directory(path)
    except BlockingIOError:
        raise StoreInUseError(
            f"the other disk {path} is in use by another daemon ('fuser {path}' shows its process); "
            "stop that one with 'holdfast umount', or name another directory in store.other_disks"
        ) from None


class Inspected(NamedTuple):
    """A directory that can be used: the device that it is on, the disk in use that it is, and what is new of it.

    ``kind`` is the kind of file system of one that is not in use yet, else empty.
    """

    path: Path
    device: int
    mountpoint: str
    known: KnownDisk | None
    kind: str


@dataclass(eq=False)
class Inspection:
    """Inspects the other disks of the store at ``store``. ``store_id`` is None if there is no store yet."""

    store: Path
    store_id: str | None
    known: KnownDisks
    device: int
    """The device of the store directory."""
    _places: dict[int, Path] = field(init=False)
    """The directories that were inspected so far, by device."""

    def __post_init__(self) -> None:
        self._places = {self.device: self.store}

    def at(self, path: Path) -> KnownDisk | None:
        """Return the disk in use that was at ``path`` when the store was last used."""
        return next((known for known in self.known.disks if known.path == str(path)), None)

    def look(self, path: Path) -> Inspected:
        """Return what is at ``path``. Raises ``StoreUnsuitableError`` if the store may not use it.

        Raises ``OSError`` if a disk in use that was there can't be used any more.
        """
        try:
            return self._look(path)
        except OSError as problem:
            if self.at(path) is not None:
                raise
            raise StoreUnsuitableError(f"the other disk {path} can't be used: {problem.strerror}") from None

    def _look(self, path: Path) -> Inspected:
        device = path.stat().st_dev
        found, before, mounted_on = _read_disk_file(path), self.at(path), _mountpoint_of(path)
        if found is None and before is not None and (device in self._places or mounted_on != before.mountpoint):
            raise FileNotFoundError(errno.ENOENT, "its file system is not mounted")
        if device in self._places:
            raise StoreUnsuitableError(
                f"the other disk {path} is on the same file system as {self._places[device]}; "
                "store.other_disks names a directory on each further disk"
            )
        if found is None and device == os.stat("/").st_dev:
            raise StoreUnsuitableError(
                f"the other disk {path} is on the root file system; mount the disk there before the first start with it"
            )
        if found is not None and found.store != self.store_id:
            raise StoreUnsuitableError(
                f"the other disk {path} belongs to another store, perhaps the one that was in {self.store} before; "
                "remove what is in it if nobody needs that, or set store.other_disks to another directory"
            )
        self._places[device] = path
        for known in self.known.disks:
            if found is not None and known.disk == found.disk:
                return Inspected(path, device, mounted_on, known, "")
        return Inspected(path, device, mounted_on, None, _kind_of_new(path, was_ours=found is not None))


def count_left(known: KnownDisk) -> int | None:
    """Return how many directories with files a disk has where it was last, empty working directories too.

    None if it is not there.
    """
    path = Path(known.path)
    try:
        found = _read_disk_file(path)
        if found is None or found.disk != known.disk:
            return None
        partitions = path / PARTITIONS
        names = os.listdir(partitions) if partitions.exists() else []
        return len(os.listdir(path / WORKDIRS)) + sum(_has_files(partitions / name) for name in names)
    except OSError:
        return None


def _has_files(directory: Path) -> bool:
    return any(files for _, _, files in os.walk(directory))


def check_not_left(known: KnownDisk) -> None:
    """Raise ``StoreUnsuitableError`` if a disk that is named no more has directories of this store."""
    count = count_left(known)
    if count:
        raise StoreUnsuitableError(
            f"store.other_disks does not name {known.path} any more, where {count} directories of this store are (working "
            "directories, and those of state); name it again, or remove that directory with what is in it"
        )


def check_other_disks(store: Path, store_id: str | None, device: int, paths: list[Path]) -> None:
    """Check that the store could use the disks at these paths, as far as can be seen. Raises ``StoreUnsuitableError``."""
    inspection = Inspection(store, store_id, KnownDisks.read(store), device)
    named = set()
    for path in paths:
        before = inspection.at(path)
        try:
            known = inspection.look(path).known
        except OSError:  # it is lost, and the daemon starts without it
            known = before
        named.add(known.disk if known is not None else "")
    for known in inspection.known.disks:
        if known.disk not in named:
            check_not_left(known)


def _mountpoint_of(path: Path) -> str:
    """Return where the file system of an existing path is mounted, as this process sees it."""
    real = f"{mountpoint.real_path(str(path))}/"
    above = [mount.mountpoint for mount in mountpoint.mounts() if real.startswith(f"{mount.mountpoint.rstrip('/')}/")]
    return max(above, key=len, default="/")


def _kind_of_new(path: Path, *, was_ours: bool) -> str:
    """Return the kind of file system; refuse a directory that can't become a disk. ``was_ours``: it was one once."""
    kind = check_lasting(path, OTHER_DISK)
    others = sorted(name for name in os.listdir(path) if not _is_ours(path, name))
    if others and not was_ours:
        raise StoreUnsuitableError(
            f"the other disk {path} is not empty (it holds {', '.join(others[:3])}); "
            "set store.other_disks to an empty directory on that disk"
        )
    return kind


def _is_ours(path: Path, name: str) -> bool:
    """Say whether a file system has made a name, or a start that was interrupted, which leaves empty directories."""
    if name in SUBDIRECTORIES:
        return not os.listdir(path / name)
    return name in ("lost+found", new_name(DISK_FILE)) or name.startswith(PROBE)


def _read_disk_file(path: Path) -> _DiskFile | None:
    """Return what is at ``path``; None if that is no disk of a store. Raises ``OSError`` and ``StoreUnsuitableError``."""
    try:
        content = msgspec.json.decode((path / DISK_FILE).read_bytes(), type=_DiskFile)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise OSError(errno.EUCLEAN, f"{DISK_FILE} there is damaged") from None
    if content.format != _FORMAT_VERSION:
        raise StoreUnsuitableError(
            f"the other disk {path} has format {content.format}, this Holdfast reads format {_FORMAT_VERSION}"
        )
    return content
