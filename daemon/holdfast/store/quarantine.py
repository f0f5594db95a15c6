"""Files that must not be served again: kept aside with the reason, for a person to look at, until they expire.

Each file ``NAME`` stands beside ``NAME.json``. A crash between the two leaves a file without a reason; it expires all the
same.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from dataclasses import dataclass

from holdfast.store.syscalls import RENAME_NOREPLACE, rename_with_flags


@dataclass(frozen=True, slots=True)
class QuarantinedFile:
    """One file in quarantine: its name there, its size, and why it is there."""

    name: str
    size_bytes: int
    since: float
    reason: dict[str, str]


class Quarantine:
    """The ``quarantine/`` directory behind ``directory_fd``."""

    def __init__(self, directory_fd: int) -> None:
        self.directory_fd = directory_fd
        self._numbers = itertools.count(1)

    def take(self, source_fd: int, name: bytes, reason: dict[str, str]) -> str:
        """Move the file ``name`` here and write ``reason`` beside it; return its name here. Raises ``OSError``."""
        while True:
            kept = f"{time.time_ns()}-{next(self._numbers)}"
            try:
                rename_with_flags(source_fd, name, self.directory_fd, kept.encode(), RENAME_NOREPLACE)
                break
            except FileExistsError:
                continue
        fd = os.open(f"{kept}.json", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=self.directory_fd)
        with open(fd, "w") as file:
            json.dump(reason, file)
        return kept

    def files(self) -> list[QuarantinedFile]:
        """Return what is here, oldest first."""
        found = []
        for entry in os.scandir(self.directory_fd):
            if not entry.name.endswith(".json"):
                stat = entry.stat(follow_symlinks=False)
                found.append(QuarantinedFile(entry.name, stat.st_size, stat.st_ctime, self._reason(entry.name)))
        return sorted(found, key=lambda file: file.since)

    def expire(self, before: float) -> int:
        """Delete the files that came before the time ``before`` (seconds since the epoch); return how many."""
        doomed = [file for file in self.files() if file.since < before]
        for file in doomed:
            for name in (file.name, f"{file.name}.json"):
                try:
                    os.unlink(name, dir_fd=self.directory_fd)
                except FileNotFoundError:
                    continue
        return len(doomed)

    def _reason(self, name: str) -> dict[str, str]:
        try:
            fd = os.open(f"{name}.json", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.directory_fd)
        except FileNotFoundError:
            return {}
        with open(fd) as file:
            try:
                return dict(json.load(file))
            except ValueError:
                return {}
