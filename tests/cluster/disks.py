"""A node's disk: a directory of the machine's, or a small file system of its own that can be filled up, or pulled out."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path

_FILLER = "filler"
_SHUT_DOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
_AT_ONCE = struct.pack("I", 2)  # EXT4_GOING_FLAGS_NOLOGFLUSH


class Disk:
    """A disk at ``path``. With a size it is an image, which the node mounts itself: outside the directory stays empty."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        self.image = path.with_name("disk.img") if size_bytes else None
        self._size_bytes = size_bytes

    def make(self) -> None:
        """Make it, unless it is there."""
        self.path.mkdir(parents=True, exist_ok=True)
        if self.image is None or self.image.exists():
            return
        self.image.touch()
        os.truncate(self.image, self._size_bytes)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(self.image)], check=True)

    def lose(self) -> None:
        """Everything on it is gone."""
        if self.image is not None:
            self.image.unlink()
        shutil.rmtree(self.path)


def fill(disk: Path) -> int:
    """Take all that is free of a disk with a size, seen from where it is mounted; return how many bytes that were."""
    free = os.statvfs(disk)
    size_bytes = free.f_bavail * free.f_frsize
    with (disk / _FILLER).open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size_bytes - size_bytes % 2**20)
    return size_bytes


def clear(disk: Path) -> None:
    """Give back what ``fill`` has taken."""
    (disk / _FILLER).unlink()


def pull_out(disk: Path) -> None:
    """Let everything fail from now on that reads or writes a disk with a size, seen from where it is mounted."""
    fd = os.open(disk, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, _SHUT_DOWN, _AT_ONCE)
    finally:
        os.close(fd)
