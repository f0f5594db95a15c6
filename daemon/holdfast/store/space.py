"""Room on the disk that holds the store."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Bytes of the whole file system, and bytes an ordinary user may still write."""

    total_bytes: int
    free_bytes: int


def disk_space(fd: int) -> DiskSpace:
    """Return the space of the file system that ``fd`` lies on (fstatvfs(3))."""
    stats = os.fstatvfs(fd)
    return DiskSpace(stats.f_blocks * stats.f_frsize, stats.f_bavail * stats.f_frsize)
