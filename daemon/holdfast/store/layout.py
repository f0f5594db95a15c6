"""The store directory on the disk: its contents, its lock, and whether it can be used at all.

::

    format.json     format version and the store's own id
    lock            flock of the daemon that uses it
    held            directories that nobody may enter for now (store.held_directories)
    tree/           the backing tree, in the shape of the mount
    fetching/  orphans/  trash/  quarantine/
    index/          LMDB
    disks.json      the other disks in use, with the first one (store.other_disks)
    plans/          plans of sweeps (checkpoints.sweeps.plan_store), created with the first one

The format version changes whenever an older daemon would misread what a newer one wrote. A store with other disks has
another one than a store without.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.errors import StoreInUseError, StoreUnsuitableError
from holdfast.mount import mountpoint
from holdfast.store.change_stamps import Stamps
from holdfast.store.directory_times import ImpliedTimes
from holdfast.store.disk_inspection import AREAS, KnownDisks, check_other_disks
from holdfast.store.format_file import (
    FORMAT_FILE,
    FORMAT_VERSION,
    SPREAD_FORMAT_VERSION,
    read_format,
    set_format,
    write_format,
)
from holdfast.store.held_directories import NOTES_BYTES, HeldDirectories, HeldDirectory
from holdfast.store.other_disks import NO_OTHER_DISKS, OtherDisks, open_other_disks
from holdfast.store.outside_calls import Answer, OutsideCalls
from holdfast.store.quarantine import Quarantine
from holdfast.store.space import NO_ROOM, Freeing, ignoring_full_disk
from holdfast.store.spread_tree import SpreadTree
from holdfast.store.staging import Orphanage, Staging, Trash
from holdfast.store.suitability import (
    PROBE,
    STORE_DIRECTORY,
    check_hard_links,
    check_lasting,
    check_writable,
    failed,
)
from holdfast.store.tree import Tree
from holdfast.system import file_id
from holdfast.system.inode_flags import NOT_COPIED_ON_WRITE, set_inode_flag
from holdfast.system.whole_file import new_name

_LOCK_FILE = "lock"
_HELD_FILE = "held"
_OF_FILES = ("tree", "fetching", "orphans", "trash", "quarantine")
"""The subdirectories between which files are renamed and linked."""
_SUBDIRECTORIES = (*_OF_FILES, "index")


@dataclass(frozen=True, slots=True)
class StoreDirectory:
    """An open store. It holds the lock until ``close``, or until the process ends."""

    path: Path
    store_id: str
    tree: Tree
    staging: Staging
    orphanage: Orphanage
    trash: Trash
    quarantine: Quarantine
    stamps: Stamps
    freeing: Freeing
    implied_times: ImpliedTimes
    calls: OutsideCalls
    others: OtherDisks
    _descriptors: tuple[int, ...]
    _undo: ExitStack
    _noting: threading.Lock = field(init=False, default_factory=threading.Lock)
    """Held while ``disks.json`` is changed: disks may fail together."""

    @classmethod
    def open(cls, path: Path, other_disks: Sequence[Path] = ()) -> StoreDirectory:
        """Open the store at ``path``, and its ``other_disks``; create what is empty or missing.

        Raises ``StoreUnsuitableError`` (not writable, no hard links, on tmpfs, on two disks, another format, not a store)
        and ``StoreInUseError``. A directory that is refused is left unchanged, and a missing one is not created.
        """
        with ExitStack() as undo, _explained(path):
            _make(path, undo)
            _check_contents(path)
            read_format(path)
            kind = check_lasting(path, STORE_DIRECTORY)
            _check_one_file_system(path)
            lock_fd = _lock(path, undo)
            with _passed_before(path):
                check_hard_links(path, kind, STORE_DIRECTORY)
            store_id = read_format(path) or write_format(path, undo)  # another daemon may have written it before
            fds = {name: _open_subdirectory(path, name, undo) for name in _SUBDIRECTORIES}
            _overwrite_in_place(fds["index"])
            stamps = Stamps.tried(fds["fetching"])
            notes_fd = _open_notes(path, undo)
            _sign(lock_fd)
            others = _open_others(path, store_id, fds["tree"], other_disks, undo)
            are_fine = all(Stamps.tried(disk.fds["fetching"]).are_fine for disk in others.present)
            stamps = stamps if are_fine else Stamps(are_fine=False)
            store = cls._of(path, store_id, fds, stamps, others, lock_fd, notes_fd)
            undo.pop_all()
        return store

    @classmethod
    def _of(
        cls,
        path: Path,
        store_id: str,
        fds: dict[str, int],
        stamps: Stamps,
        others: OtherDisks,
        lock_fd: int,
        notes_fd: int,
    ) -> StoreDirectory:
        calls = OutsideCalls()
        freeing = Freeing(calls, [disk.device for disk in others.present])
        held = HeldDirectories(notes_fd)
        undo = ExitStack()
        tree = Tree(fds["tree"], held)
        if others.disks:
            tree = SpreadTree(fds["tree"], held, others.disks, others.placed)
            undo.callback(file_id.tell_apart(tree.file_stat, tree.listed_ids))
        area = {name: [disk.place(name) for disk in others.present] for name in AREAS}
        quarantine = Quarantine(fds["quarantine"], others=area["quarantine"])
        _restore_held(tree, quarantine, calls)
        return cls(
            path,
            store_id,
            tree,
            Staging(fds["fetching"], area["fetching"], tree.disk_at),
            Orphanage(fds["orphans"], calls, area["orphans"]),
            Trash(fds["trash"], freeing, area["trash"]),
            quarantine,
            stamps,
            freeing,
            ImpliedTimes((path / FORMAT_FILE).stat().st_mtime_ns),
            calls,
            others,
            (*fds.values(), lock_fd, notes_fd, *(fd for disk in others.disks for fd in disk.fds.values())),
            undo,
        )

    @staticmethod
    def check(path: Path, other_disks: Sequence[Path] = ()) -> None:
        """Check that ``path`` is, or could be made, a store with these other disks, whoever uses it.

        Changes nothing, so it can't see everything.

        Raises ``StoreUnsuitableError``, as ``open`` does.
        """
        with _explained(path):
            nearest = next(each for each in (path, *path.parents) if os.path.lexists(each))
            store_id = None
            if nearest == path:
                _check_contents(path)
                store_id = read_format(path)
            check_lasting(path, STORE_DIRECTORY, nearest)
            _check_one_file_system(path)
            if not nearest.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            if not os.access(nearest, os.W_OK | os.X_OK):
                number = errno.EROFS if os.statvfs(nearest).f_flag & os.ST_RDONLY else errno.EACCES
                raise OSError(number, os.strerror(number), path)
            check_other_disks(path, store_id, nearest.stat().st_dev, list(other_disks))

    @staticmethod
    def is_at(path: Path) -> bool:
        """Say whether there is a store at ``path`` that a daemon has used, whatever its format."""
        return (path / FORMAT_FILE).exists()

    @staticmethod
    def has_failed(path: Path) -> bool:
        """Say whether the disk of the store at ``path`` has failed: no daemon can start on it. Waits for the disk."""
        try:
            check_writable(path)
        except OSError as problem:
            return failed(problem)
        return False

    @property
    def index_path(self) -> Path:
        """The directory of the index."""
        return self.path / "index"

    def note_failed(self, disk: int) -> None:
        """Note, over restarts, that the disk with this number has failed.

        Raises ``OSError`` and ``StoreUnsuitableError``.
        """
        with self._noting:
            KnownDisks.note_failed(self.path, disk)

    def note_forgotten(self, disk: int) -> None:
        """Note that the index knows nothing any more of what was given up on a disk. Raises as ``note_failed`` does."""
        with self._noting:
            KnownDisks.note_forgotten(self.path, disk)

    def close(self) -> None:
        """Close all descriptors, which releases the lock."""
        self._undo.close()
        self.freeing.end()
        self.calls.close()
        for fd in self._descriptors:
            os.close(fd)


def _make(path: Path, undo: ExitStack) -> None:
    """Create the missing parts of ``path``; ``undo`` removes them again."""
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    for directory in reversed(missing):
        directory.mkdir(mode=0o700 if directory == path else 0o755, exist_ok=True)
        undo.callback(_remove_if_empty, directory)


def _remove_if_empty(directory: Path) -> None:
    with suppress(OSError):  # it is in use by now
        directory.rmdir()


def _check_contents(path: Path) -> None:
    ours = (_LOCK_FILE, "lost+found", new_name(FORMAT_FILE))
    others = sorted(name for name in os.listdir(path) if name not in ours and not name.startswith(PROBE))
    if others and FORMAT_FILE not in others:
        raise StoreUnsuitableError(
            f"the directory {path} is not empty and not a store (it holds {', '.join(others[:3])}); "
            "set store.directory (--store) to an empty one"
        )


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        what = f"{problem.filename}: " if problem.filename and Path(problem.filename) != path else ""
        is_full = problem.errno in NO_ROOM
        mend = "free some space there" if is_full else "make it a directory that this user may write to"
        raise StoreUnsuitableError(
            f"the store directory {path} can't be used: {what}{problem.strerror}; {mend}, "
            "or set store.directory (--store) to another one"
        ) from None


@contextmanager
def _passed_before(path: Path) -> Iterator[None]:
    """Let a check pass for which the disk has no room, if there is a store, which has passed it: it must be taken over."""
    try:
        yield
    except OSError as problem:
        if problem.errno not in NO_ROOM or not read_format(path):
            raise


def _check_one_file_system(path: Path) -> None:
    """Refuse a store in which something is mounted: its files are told apart, and move, within one file system."""
    places = tuple(f"{mountpoint.real_path(str(path))}/{name}/" for name in _OF_FILES)
    for mount in mountpoint.mounts():
        if f"{mount.mountpoint}/".startswith(places):
            raise StoreUnsuitableError(
                f"something is mounted on {mount.mountpoint}, but all files of the store directory {path} must be on one "
                "file system; unmount it, and put several disks together below the store directory (LVM, RAID)"
            )


def _lock(path: Path, undo: ExitStack) -> int:
    file = path / _LOCK_FILE
    is_new = not file.exists()
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    undo.callback(os.close, fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        raise StoreInUseError(
            f"the store directory {path} is in use by another daemon (pid {holder}); "
            "stop it with 'holdfast umount', or give this one a directory of its own with --store"
        ) from None
    if is_new:
        undo.callback(file.unlink)
    return fd


def _sign(lock_fd: int) -> None:
    """Write the pid of the lock's holder, for the error message of others. On a full disk it may be left out."""
    os.ftruncate(lock_fd, 0)
    with ignoring_full_disk():
        os.pwrite(lock_fd, b"%d\n" % os.getpid(), 0)


def _open_others(path: Path, store_id: str, tree_fd: int, paths: Sequence[Path], undo: ExitStack) -> OtherDisks:
    """Open the other disks. While there may be any, older versions are kept away: they don't know of placeholders."""
    if not paths and not KnownDisks.are_at(path):
        set_format(path, store_id, FORMAT_VERSION)  # a start that was killed may have changed it
        return NO_OTHER_DISKS
    if not KnownDisks.are_at(path):
        undo.callback(set_format, path, store_id, FORMAT_VERSION)
    set_format(path, store_id, SPREAD_FORMAT_VERSION)
    others = open_other_disks(path, store_id, tree_fd, paths, undo)
    if not others.disks:
        set_format(path, store_id, FORMAT_VERSION)
    return others


def _open_subdirectory(path: Path, name: str, undo: ExitStack) -> int:
    directory = path / name
    if not directory.exists():
        directory.mkdir(mode=0o700)
        undo.callback(directory.rmdir)
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    undo.callback(os.close, fd)
    if os.fstat(fd).st_mode & 0o077:
        os.fchmod(fd, 0o700)  # what is below has rights in the mount that are those of the whole way
    return fd


def _overwrite_in_place(fd: int) -> None:
    """Have btrfs change a new file, or those that are made in a directory, in place: a full disk must take changes."""
    with suppress(OSError):  # another file system
        set_inode_flag(fd, NOT_COPIED_ON_WRITE, on=True)


def _open_notes(path: Path, undo: ExitStack) -> int:
    """Open the notes of ``HeldDirectories``, with room for all that is written there, also on a full disk."""
    file = path / _HELD_FILE
    is_new = not file.exists()
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    undo.callback(os.close, fd)
    if is_new:
        undo.callback(file.unlink)
        _overwrite_in_place(fd)
    if os.fstat(fd).st_size < NOTES_BYTES:
        os.posix_fallocate(fd, 0, NOTES_BYTES)
    return fd


def _restore_held(tree: Tree, quarantine: Quarantine, calls: OutsideCalls) -> None:
    """Enter no directory whose lock a call of an earlier daemon may have."""

    def probe(directory: HeldDirectory) -> Answer:
        if directory.path is not None:
            fd, path = tree.anchor(directory.path)
            return calls.begin("probe_directory", [fd], path)
        for fd in quarantine.directories():
            answer = calls.begin("probe_directory", [fd], b"")
            quarantine.hold(answer)
        return answer

    tree.held.restore(probe)
