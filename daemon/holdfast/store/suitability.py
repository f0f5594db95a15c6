"""Checks of directories that a store is to use: whether their file systems can keep files as the store needs it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import StoreUnsuitableError
from holdfast.mount import mountpoint
from holdfast.store.space import NO_ROOM

_WHERE_TO = "a directory on ext4, XFS or btrfs"
_VOLATILE = {"tmpfs", "ramfs", "devtmpfs"}
_WITHOUT_FILES = {"proc", "sysfs", "cgroup", "cgroup2", "devpts", "debugfs", "tracefs", "securityfs", "configfs", "bpf"}
"""File systems in which the kernel shows things of its own, and nobody makes files."""
PROBE = ".probe-"
"""The beginning of the names of files that the checks make and remove."""
_FAILED = frozenset({errno.EIO, errno.EROFS, errno.ENXIO, errno.ENODEV, errno.EUCLEAN, errno.ESHUTDOWN})
"""The errors of a disk that is broken or gone, and of its file system, which takes no more writes then."""


class Subject(NamedTuple):
    """A kind of directory that is checked, in words, and the setting that names it."""

    what: str
    setting: str


STORE_DIRECTORY = Subject("the store directory", "store.directory (--store)")
OTHER_DISK = Subject("the other disk", "store.other_disks")


def check_lasting(path: Path, subject: Subject, there: Path | None = None) -> str:
    """Return the kind of file system that ``path`` is on, or ``there``, a directory above it; refuse what keeps no files."""
    device = (there or path).stat().st_dev
    kind = next((mount.file_system for mount in mountpoint.mounts() if mount.device == device), "unknown")
    if kind in _VOLATILE:
        raise StoreUnsuitableError(
            f"{subject.what} {path} is on {kind}, which a reboot empties; set {subject.setting} to {_WHERE_TO}"
        )
    if kind in _WITHOUT_FILES:
        raise StoreUnsuitableError(
            f"{subject.what} {path} is on {kind}, which is no place for files; set {subject.setting} to {_WHERE_TO}"
        )
    return kind


def check_hard_links(path: Path, kind: str, subject: Subject) -> None:
    """Refuse a directory on a file system without hard links."""
    probe, link = path / f"{PROBE}file", path / f"{PROBE}link"
    link.unlink(missing_ok=True)  # a crash may have left it behind
    try:
        probe.touch()
        try:
            os.link(probe, link)
        except OSError as problem:  # link(2) says EPERM where the file system has no hard links
            if problem.errno in NO_ROOM:
                raise
            raise StoreUnsuitableError(
                f"{subject.what} {path} is on {kind}, which can't make hard links ({problem.strerror}); "
                f"set {subject.setting} to {_WHERE_TO}"
            ) from None
    finally:
        probe.unlink(missing_ok=True)
        link.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Raise ``OSError`` if the disk of the directory takes no writes. Waits for the disk."""
    probe = path / f"{PROBE}disk"
    probe.unlink(missing_ok=True)  # a crash may have left it behind
    fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
        probe.unlink()


def failed(problem: OSError) -> bool:
    """Say whether an error is that of a disk that has failed."""
    return problem.errno in _FAILED
