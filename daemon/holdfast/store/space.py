"""Free space on the disk of the store."""

from __future__ import annotations

import os


def free_bytes(fd: int) -> int:
    """Return how many bytes an ordinary user may still write to the file system that ``fd`` is on (fstatvfs(3))."""
    stats = os.fstatvfs(fd)
    return stats.f_bavail * stats.f_frsize
