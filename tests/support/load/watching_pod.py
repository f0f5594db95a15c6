"""A pod whose program works in a mount all the time, and what it saw: each error, and its longest wait.

``python -m tests.support.load.watching_pod DIRECTORY BOOK`` goes round: it reads and writes a file that stays open, and a
mapping of it, makes, renames, lists and removes others in DIRECTORY. After each round it appends ``ok SECONDS`` to BOOK, or
the error's name and what it was doing. Its mount namespace is a copy made when it starts.
"""

from __future__ import annotations

import errno
import mmap
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.daemons.node import wait_until

HOST_TO_CONTAINER, PLAIN = "slave", "private"
"""The mounts that reach a pod: later ones too, or only those that were there when it started (a bind of the mount)."""
_PAUSE_SECONDS = 0.005
_POD = ("unshare", "--mount", "--pid", "--net", "--uts", "--fork", "--kill-child=SIGKILL", "--mount-proc")


class Watched:
    """The lines that a pod has written into its book."""

    def __init__(self, book: Path) -> None:
        self._book = book

    @property
    def lines(self) -> list[str]:
        """All rounds."""
        return self._book.read_text().split("\n")[:-1] if self._book.exists() else []

    @property
    def errors(self) -> list[str]:
        """The rounds that failed, each kind once."""
        return sorted({line for line in self.lines if not line.startswith("ok ")})

    def longest_seconds(self, after: int = 0) -> float:
        """Return the longest round that went well, of those after so many lines."""
        return max(float(line.split()[1]) for line in self.lines[after:] if line.startswith("ok "))

    def goes_on(self) -> None:
        """Wait until two more rounds went well: the second was begun after this was called."""
        before = self._well()
        try:
            wait_until(lambda: self._well() >= before + 2)
        except AssertionError as problem:
            problem.add_note(f"the pod's last rounds: {self.lines[-5:]}")
            raise

    def fails(self, name: str) -> None:
        """Wait for a round that fails with the error of this name."""
        wait_until(lambda: any(line.startswith(name) for line in self.lines))

    def _well(self) -> int:
        return sum(line.startswith("ok ") for line in self.lines)


def watching(directory: Path, book: Path) -> list[str]:
    """Return the command that runs the program."""
    return [sys.executable, "-m", __name__, str(directory), str(book)]


@contextmanager
def watching_pod(directory: Path, book: Path, propagation: str) -> Iterator[Watched]:
    """Run the program in a pod of its own for the duration of the block."""
    command = [*_POD, "--propagation", propagation, *watching(directory, book)]
    with subprocess.Popen(command) as process:
        watched = Watched(book)
        try:
            watched.goes_on()
            yield watched
        finally:
            process.send_signal(signal.SIGKILL)


class _Rounds:
    """The program's work in ``directory``. ``what`` it is doing is known when it fails."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._fd = os.open(f"{directory}/open-{os.getpid()}-{time.monotonic_ns()}", os.O_RDWR | os.O_CREAT, 0o644)
        os.pwrite(self._fd, b"0" * 4096, 0)
        self._mapped = mmap.mmap(self._fd, 4096)
        self.what = ""

    def run(self, number: int) -> None:
        """Do one round."""
        self.what = "write of an open file"
        written = b"%020d" % number
        os.pwrite(self._fd, written, 0)
        self.what = "read of an open file"
        if os.pread(self._fd, len(written), 0) != written:
            raise OSError(errno.EBADMSG, "")
        self.what = "mapping"
        self._mapped[4000 : 4000 + len(written)] = written
        name = f"{self._directory}/{number}"
        self.what = "create"
        with open(f"{name}.tmp", "xb") as file:
            file.write(b"x" * 1000)
        self.what = "rename"
        os.rename(f"{name}.tmp", name)
        self.what = "list"
        if str(number) not in os.listdir(self._directory):
            raise OSError(errno.ENOENT, "")
        self.what = "stat"
        if os.stat(name).st_size != 1000:
            raise OSError(errno.EBADMSG, "")
        self.what = "mkdir"
        os.mkdir(f"{name}.d")
        os.rmdir(f"{name}.d")
        self.what = "unlink"
        os.unlink(name)


def main() -> None:
    """Go round until killed."""
    directory, book = sys.argv[1], os.open(sys.argv[2], os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    rounds = _Rounds(directory)
    number = time.monotonic_ns()
    while True:
        number += 1
        began = time.monotonic()
        try:
            rounds.run(number)
        except OSError as problem:
            line = f"{errno.errorcode[problem.errno or 0]} {rounds.what}"
        else:
            line = f"ok {time.monotonic() - began:.3f}"
        os.write(book, f"{line}\n".encode())
        select.select((), (), (), _PAUSE_SECONDS)


if __name__ == "__main__":
    main()
