"""Trees of directories deeper than PATH_MAX, made as their owner makes them: step by step."""

from __future__ import annotations

import os
from pathlib import Path


def dig(top: Path, levels: int, name: str = "d") -> int:
    """Make ``levels`` directories, one in the other, below ``top``; return a descriptor of the last."""
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=fd)
        child = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = child
    return fd


def depth_of(top: Path, name: str = "d") -> int:
    """Return how many directories ``name`` there are, one in the other, below ``top``."""
    fd, levels = os.open(top, os.O_RDONLY | os.O_DIRECTORY), 0
    while True:
        try:
            child = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        except FileNotFoundError:
            os.close(fd)
            return levels
        os.close(fd)
        fd, levels = child, levels + 1
