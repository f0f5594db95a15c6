"""Processes that keep a file system busy: ``python -m tests.benchmarks.loads KIND DIRECTORY SECONDS``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

_DATA = b"\x5a" * 65536


def commit(directory: str, number: int) -> None:
    """Write 64 KiB, sync, rename over the one before, sync the directory: a checkpoint that is to last."""
    name = f"{directory}/{os.getpid()}"
    fd = os.open(f"{name}.{number}.tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        os.write(fd, _DATA)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(f"{name}.{number}.tmp", name)
    directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory_fd)
    finally:
        os.close(directory_fd)


def listing(directory: str, number: int) -> None:
    """List everything."""
    del number
    os.listdir(directory)


KINDS: dict[str, Callable[[str, int], None]] = {"commit": commit, "list": listing}


def main(kind: str, directory: str, seconds: str) -> None:
    """Do one thing again and again for so many seconds."""
    end = time.monotonic() + float(seconds)
    number = 0
    while time.monotonic() < end:
        KINDS[kind](directory, number)
        number += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
