"""Files that must not be served again: kept with the reason, for a person to look at, until they expire.

Beside each file ``NAME`` is ``NAME.json`` with the reason. NAME begins with the time of arrival, in nanoseconds. A crash
between writing the two leaves a file without a reason; it expires all the same.
"""

from __future__ import annotations

import errno
import itertools
import json
import logging
import os
import stat as stat_module
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from holdfast.store.outside_calls import Answer
from holdfast.store.staging import Area, Place
from holdfast.system.syscalls import RENAME_NOREPLACE, rename_with_flags, rewound

_log = logging.getLogger("holdfast.store")
_REASON = ".json"
Rename = Callable[[int, bytes, int, bytes, Callable[[], None]], None]
"""renameat2(2) with RENAME_NOREPLACE. The last argument is called if it succeeds after ``FileBusyError``."""


def _rename(source_fd: int, old: bytes, target_fd: int, new: bytes, then: Callable[[], None]) -> None:
    del then  # it has succeeded on return
    rename_with_flags(source_fd, old, target_fd, new, RENAME_NOREPLACE)


@dataclass(frozen=True, slots=True)
class QuarantinedFile:
    """One file in quarantine: its name there, its size, its time of arrival (seconds since the epoch), and the reason."""

    name: str
    size_bytes: int
    since: float
    reason: dict[str, str]


class Quarantine:
    """The ``quarantine/`` directory behind ``directory_fd``, and those on other disks.

    ``clock`` returns nanoseconds since the epoch.
    """

    def __init__(self, directory_fd: int, clock: Callable[[], int] = time.time_ns, others: Iterable[Place] = ()) -> None:
        self._area = Area(directory_fd, others)
        self.directories = self._area.all
        """Returns their descriptors."""
        self._clock = clock
        self._numbers = itertools.count(1)
        self._held_by: list[Answer] = []

    def hold(self, call: Answer) -> None:
        """Take no file, and show none, until ``call`` has ended, which may have the directory's lock."""
        self._held_by.append(call)

    def _is_held(self) -> bool:
        if self._held_by:
            self._held_by = [call for call in self._held_by if not call.has_ended()]
        return bool(self._held_by)

    def take(
        self, source_fd: int, name: bytes, reason: dict[str, str], taken: Callable[[str], None], rename: Rename = _rename
    ) -> None:
        """Move the file ``name`` here by ``rename``, write ``reason`` beside it, and call ``taken`` with its name here.

        Raises ``OSError`` if the file can't be moved, and what ``rename`` does. A reason that can't be written is only
        logged.
        """
        if self._is_held():
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        directory_fd = self._area.beside(source_fd)
        while True:
            kept = f"{self._clock()}-{next(self._numbers)}"
            then = partial(self._took, directory_fd, kept, name, reason, taken)
            try:
                rename(source_fd, name, directory_fd, kept.encode(), then)
                break
            except FileExistsError:
                continue
        then()

    def _took(self, directory_fd: int, kept: str, name: bytes, reason: dict[str, str], taken: Callable[[str], None]) -> None:
        try:
            _write_reason(directory_fd, kept, reason)
        except OSError as problem:
            _log.warning("can't write down why %r is in quarantine as %s: %s", name, kept, problem)
        taken(kept)

    def files(self) -> list[QuarantinedFile]:
        """Return the files in quarantine, oldest first."""
        found = [
            QuarantinedFile(name, stat.st_size, _since(name, stat), _reason(fd, name)) for fd, name, stat in self._names()
        ]
        return sorted(found, key=lambda file: file.since)

    def sizes(self) -> list[int]:
        """Return the sizes of the files in bytes."""
        return [stat.st_size for _, _, stat in self._names()]

    def _names(self) -> Iterator[tuple[int, str, os.stat_result]]:
        """Yield the files: the descriptor of the directory of each, its name there, its attributes."""
        for fd in [] if self._is_held() else self._area.all():
            names: list[str] = []
            with self._area.unless_failed(fd):
                names = os.listdir(rewound(fd))
            for name in names:
                if not name.endswith(_REASON):
                    with suppress(FileNotFoundError), self._area.unless_failed(fd):  # somebody has removed it meanwhile
                        stat = os.stat(name, dir_fd=fd, follow_symlinks=False)
                        if not stat_module.S_ISDIR(stat.st_mode):  # somebody has put it here
                            yield fd, name, stat

    def expire(self, before: float) -> int:
        """Delete the files that arrived before ``before`` (seconds since the epoch); return how many.

        The reason is deleted first, so a crash in between leaves no reason without a file.
        """
        doomed = [(fd, name) for fd, name, stat in self._names() if _since(name, stat) < before]
        for fd, file in doomed:
            for name in (f"{file}{_REASON}", file):
                try:
                    os.unlink(name, dir_fd=fd)
                except FileNotFoundError:
                    continue
        return len(doomed)


def _write_reason(directory_fd: int, kept: str, reason: dict[str, str]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    with open(os.open(kept + _REASON, flags, 0o600, dir_fd=directory_fd), "w") as file:
        json.dump(reason, file)


def _reason(directory_fd: int, name: str) -> dict[str, str]:
    try:
        fd = os.open(name + _REASON, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory_fd)
    except FileNotFoundError:
        return {}
    with open(fd) as file:
        try:
            return dict(json.load(file))
        except (TypeError, ValueError, RecursionError):
            return {}


def _since(name: str, stat: os.stat_result) -> float:
    """Read the time of arrival from a name; for a file that somebody put here, use that of its last change."""
    nanoseconds = name.partition("-")[0]
    return int(nanoseconds) / 1e9 if nanoseconds.isdecimal() else stat.st_ctime
