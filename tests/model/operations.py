"""Operations as data: each is carried out on two directories, and must end alike on both."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.store import rename_with_flags

Outcome = tuple[str, Any]


@dataclass(frozen=True)
class Operation:
    """A name for the log, and what is done below a root."""

    words: str
    run: Callable[[Path], Any]

    def outcome(self, root: Path) -> Outcome:
        """Carry it out; return its result, or the name of its error."""
        try:
            return "result", self.run(root)
        except OSError as problem:
            return "error", errno.errorcode.get(problem.errno or 0, str(problem))


def write(name: str, data: bytes, offset: int) -> Operation:
    def run(root: Path) -> int:
        fd = os.open(root / name, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            return os.pwrite(fd, data, offset)
        finally:
            os.close(fd)

    return Operation(f"write {name} {len(data)} at {offset}", run)


def append(name: str, data: bytes) -> Operation:
    def run(root: Path) -> int:
        fd = os.open(root / name, os.O_WRONLY | os.O_APPEND)
        try:
            return os.write(fd, data)
        finally:
            os.close(fd)

    return Operation(f"append {name}", run)


def create(name: str, flags: int) -> Operation:
    def run(root: Path) -> None:
        if flags & os.O_TRUNC:  # clears set-id bits in the mount, also for root (docs/semantics.md)
            with suppress(OSError):
                os.chmod(root / name, stat.S_IMODE(os.stat(root / name).st_mode) & 0o777)
        os.close(os.open(root / name, os.O_WRONLY | os.O_CREAT | flags, 0o600))

    return Operation(f"create {name} {flags:o}", run)


def read(name: str) -> Operation:
    return Operation(f"read {name}", lambda root: (root / name).read_bytes())


def truncate(name: str, size: int) -> Operation:
    return Operation(f"truncate {name} {size}", lambda root: os.truncate(root / name, size))


def mkdir(name: str) -> Operation:
    return Operation(f"mkdir {name}", lambda root: (root / name).mkdir())


def rmdir(name: str) -> Operation:
    return Operation(f"rmdir {name}", lambda root: (root / name).rmdir())


def unlink(name: str) -> Operation:
    return Operation(f"unlink {name}", lambda root: (root / name).unlink())


def link(name: str, new: str) -> Operation:
    return Operation(f"link {name} {new}", lambda root: os.link(root / name, root / new, follow_symlinks=False))


def symlink(target: str, name: str) -> Operation:
    return Operation(f"symlink {target} {name}", lambda root: os.symlink(target, root / name))


def rename(name: str, new: str, flags: int) -> Operation:
    def run(root: Path) -> None:
        rename_with_flags(-100, os.fsencode(root / name), -100, os.fsencode(root / new), flags)

    return Operation(f"rename {name} {new} {flags}", run)


def chmod(name: str, mode: int) -> Operation:
    return Operation(f"chmod {name} {mode:o}", lambda root: (root / name).chmod(mode))


def utime(name: str, mtime_ns: int) -> Operation:
    def run(root: Path) -> int:
        os.utime(root / name, ns=(mtime_ns, mtime_ns), follow_symlinks=False)
        return (root / name).lstat().st_mtime_ns

    return Operation(f"utime {name} {mtime_ns}", run)


def list_directory(name: str) -> Operation:
    return Operation(f"list {name}", lambda root: sorted(os.listdir(root / name)))


def status(name: str) -> Operation:
    return Operation(f"stat {name}", lambda root: facts(root / name))


def rename_while_open(name: str, new: str) -> Operation:
    """Rename over a file that is open: the open one keeps its bytes."""

    def run(root: Path) -> tuple[bytes, int]:
        with (root / new).open("r+b") as file:
            (root / name).rename(root / new)
            file.write(b"still")
            file.seek(0)
            return file.read(), os.fstat(file.fileno()).st_nlink

    return Operation(f"rename {name} over open {new}", run)


def unlink_while_open(name: str) -> Operation:
    def run(root: Path) -> tuple[bytes, int]:
        with (root / name).open("r+b") as file:
            (root / name).unlink()
            file.write(b"gone")
            file.seek(0)
            return file.read(), os.fstat(file.fileno()).st_nlink

    return Operation(f"unlink open {name}", run)


def facts(path: Path) -> tuple[Any, ...]:
    """Return what must be the same about a file on any file system."""
    found = path.lstat()
    kind = stat.S_IFMT(found.st_mode)
    if stat.S_ISDIR(found.st_mode):
        return kind, stat.S_IMODE(found.st_mode)
    return kind, stat.S_IMODE(found.st_mode), found.st_nlink, found.st_size, found.st_uid, found.st_gid


def snapshot(root: Path) -> dict[str, tuple[Any, ...]]:
    """Return everything below ``root``: facts, contents, and which names are one file."""
    everything: dict[str, tuple[Any, ...]] = {}
    inodes: dict[int, str] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        content: Any = None
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = path.read_bytes()
        same_as = inodes.setdefault(path.lstat().st_ino, name)
        everything[name] = (*facts(path), content, same_as)
    return everything
