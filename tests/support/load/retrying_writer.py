"""A program that works at a path without rest, whatever becomes of what is mounted there, and notes what it was told.

``python -m tests.support.load.retrying_writer MOUNTPOINT BOOK`` makes directories and creates a file in them, and another
one right below MOUNTPOINT, until it is killed. Each path for which creation and close succeeded is a line in BOOK.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from tests.support.daemons.node import wait_until


class Book:
    """What a writer was told that it has written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def written(self) -> list[Path]:
        """The paths, in order. A line that is being written is left out."""
        return [Path(line) for line in self._path.read_text().split("\n")[:-1]] if self._path.exists() else []

    def goes_on(self) -> None:
        """Wait until two more files are written: the second was begun after this was called."""
        before = len(self.written)
        wait_until(lambda: len(self.written) >= before + 2)


@contextmanager
def retrying_writer(mountpoint: Path, book: Path, *prefix: str) -> Iterator[Book]:
    """Run the program for the duration of the block, under the command ``prefix``."""
    command = [*prefix, sys.executable, "-m", __name__, str(mountpoint), str(book)]
    with subprocess.Popen(command) as process:
        try:
            yield Book(book)
        finally:
            process.send_signal(signal.SIGTERM)


_PAUSE_SECONDS = 0.0002
"""After a failure, so that the daemon that starts gets its turn; shorter than any moment between two mounts."""


def _create(path: str, book: int) -> None:
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os.write(book, f"{path}\n".encode())


def main(arguments: Sequence[str]) -> None:
    """Write until killed."""
    mountpoint, book = arguments[0], os.open(arguments[1], os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    for number in count():
        try:
            os.makedirs(f"{mountpoint}/checkpoints/job", exist_ok=True)
        except OSError:
            select.select((), (), (), _PAUSE_SECONDS)
        _create(f"{mountpoint}/checkpoints/job/{number}", book)
        _create(f"{mountpoint}/{number}", book)


if __name__ == "__main__":
    main(sys.argv[1:])
