"""The store directory on the disk: what lies in it, who holds it, and whether it can be used at all.

::

    format.json     format version and the store's own id
    lock            flock of the daemon that uses it
    tree/           the backing tree, in the shape of the mount
    fetching/  orphans/  trash/  quarantine/
    index/          LMDB

The format version changes whenever an older daemon would misread what a newer one wrote.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import StoreInUseError, StoreUnsuitableError
from holdfast.store.quarantine import Quarantine
from holdfast.store.staging import Orphanage, Staging, Trash
from holdfast.store.tree import Tree

FORMAT_VERSION = 1
_VOLATILE = {"tmpfs", "ramfs"}
_FORMAT_FILE = "format.json"
_SUBDIRECTORIES = ("tree", "fetching", "orphans", "trash", "quarantine", "index")


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
    _descriptors: tuple[int, ...]

    @classmethod
    def open(cls, path: Path) -> StoreDirectory:
        """Open the store at ``path``; create it if it is empty or missing.

        Raises ``StoreUnsuitableError`` (not writable, no hard links, on tmpfs, another format, not a store) and
        ``StoreInUseError``; a directory that is refused is left as it was.
        """
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            _check_contents(path)
            _check_file_system(path)
            lock_fd = _lock(path)
        except OSError as problem:
            raise StoreUnsuitableError(
                f"the store directory {path} can't be used: {problem.strerror}; make it writable for this user "
                "or set store.directory (--store) to another one"
            ) from None
        try:
            store_id = _read_or_write_format(path)
            fds = {name: _open_subdirectory(path, name) for name in _SUBDIRECTORIES}
        except BaseException:
            os.close(lock_fd)
            raise
        return cls(
            path,
            store_id,
            Tree(fds["tree"]),
            Staging(fds["fetching"]),
            Orphanage(fds["orphans"]),
            Trash(fds["trash"]),
            Quarantine(fds["quarantine"]),
            (*fds.values(), lock_fd),
        )

    @property
    def index_path(self) -> Path:
        """Where the index lives."""
        return self.path / "index"

    def close(self) -> None:
        """Close all descriptors; the lock goes with them."""
        for fd in self._descriptors:
            os.close(fd)


def _check_file_system(path: Path) -> None:
    kind = _file_system_of(path)
    if kind in _VOLATILE:
        raise StoreUnsuitableError(
            f"the store directory {path} is on {kind}, which a reboot empties; "
            "set store.directory (--store) to a directory on ext4 or XFS"
        )
    probe, link = path / f".probe-{uuid.uuid4().hex}", path / f".probe-{uuid.uuid4().hex}"
    try:
        probe.touch()
        os.link(probe, link)
    except PermissionError:
        raise
    except OSError as problem:
        raise StoreUnsuitableError(
            f"the store directory {path} is on {kind}, which can't make hard links ({problem.strerror}); "
            "set store.directory (--store) to a directory on ext4 or XFS"
        ) from None
    finally:
        probe.unlink(missing_ok=True)
        link.unlink(missing_ok=True)


def _file_system_of(path: Path) -> str:
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split(" ")
        if fields[2] == wanted:
            return fields[fields.index("-") + 1]
    return "unknown"


def _lock(path: Path) -> int:
    fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise StoreInUseError(
            f"the store directory {path} is in use by another daemon (pid {holder}); "
            "stop it with 'holdfast umount', or give this one a directory of its own with --store"
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    return fd


def _check_contents(path: Path) -> None:
    others = sorted(entry.name for entry in path.iterdir() if entry.name not in ("lock", "lost+found", "format.new"))
    if others and _FORMAT_FILE not in others:
        raise StoreUnsuitableError(
            f"the directory {path} is not empty and not a store (it holds {', '.join(others[:3])}); "
            "set store.directory (--store) to an empty one"
        )


def _read_or_write_format(path: Path) -> str:
    file = path / _FORMAT_FILE
    try:
        content = json.loads(file.read_text())
        version, store_id = content["format"], str(content["store"])
    except FileNotFoundError:
        return _write_format(file)
    except (ValueError, KeyError, TypeError):
        raise StoreUnsuitableError(
            f"{file} is damaged; if nothing in {path} is needed, remove the directory and start again"
        ) from None
    if version != FORMAT_VERSION:
        raise StoreUnsuitableError(
            f"the store directory {path} has format {version}, this Holdfast reads format {FORMAT_VERSION}; "
            "install the version that wrote it, or remove the directory (it is a cache: objects are fetched again)"
        )
    return store_id


def _write_format(file: Path) -> str:
    store_id = uuid.uuid4().hex
    new = file.with_suffix(".new")
    with new.open("w") as stream:
        json.dump({"format": FORMAT_VERSION, "store": store_id}, stream)
        stream.flush()
        os.fsync(stream.fileno())
    new.rename(file)
    return store_id


def _open_subdirectory(path: Path, name: str) -> int:
    directory = path / name
    directory.mkdir(exist_ok=True, mode=0o700)
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
