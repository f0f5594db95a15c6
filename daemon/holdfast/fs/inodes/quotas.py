"""The disk usage of working directories, and those that have reached their limit.

The figures come from walks in the background (``workdirs.usage``), so a limit holds to within seconds, not to the byte.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from holdfast.errors import QuotaExceededError
from holdfast.store import Space
from holdfast.zones import Zone, ZoneKind

NO_LIMIT = Space(0, 0)


class Usage(NamedTuple):
    """The disk usage of a working directory and its limit, both in files and in bytes; 0 is no limit."""

    used: Space
    limit: Space

    @property
    def left(self) -> Space:
        """The space that it may still take, where there is a limit."""
        return Space(max(0, self.limit.files - self.used.files), max(0, self.limit.size_bytes - self.used.size_bytes))

    @property
    def is_exceeded(self) -> bool:
        """True if it takes more than it may."""
        return 0 < self.limit.size_bytes < self.used.size_bytes or 0 < self.limit.files < self.used.files


class Quotas:
    """The usage of working directories by path, as it was found last.

    ``tell`` is called when a directory is above its limit and none was before, and when none is any more.
    """

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self._tell = tell
        self._usages: dict[bytes, Usage] = {}
        self._exceeded: set[bytes] = set()
        self.are_exceeded = False
        """True if any directory is above its limit: otherwise nothing need be checked."""

    def of(self, workdir: bytes) -> Usage | None:
        """Return the usage of the working directory at this path; None if it is not known yet."""
        return self._usages.get(workdir)

    def found(self, workdir: bytes, usage: Usage) -> bool:
        """Record the usage of a working directory; say whether it has reached its limit, or is below it again."""
        before = workdir in self._exceeded
        self._usages[workdir] = usage
        (self._exceeded.add if usage.is_exceeded else self._exceeded.discard)(workdir)
        self._note()
        return before != usage.is_exceeded

    def keep_only(self, workdirs: set[bytes]) -> None:
        """Forget all working directories but these."""
        for path in self._usages.keys() - workdirs:
            del self._usages[path]
        self._exceeded &= workdirs
        self._note()

    def _note(self) -> None:
        are_exceeded = bool(self._exceeded)
        if are_exceeded != self.are_exceeded:
            self.are_exceeded = are_exceeded
            self._tell(are_exceeded)

    def check(self, zone: Zone, moved_from: Zone | None = None) -> None:
        """Raise ``QuotaExceededError`` if the zone belongs to a working directory that is above its limit.

        A move from another of its zones, ``moved_from``, takes nothing more.
        """
        workdir = workdir_of(zone)
        if moved_from is not None and workdir == workdir_of(moved_from):
            return
        if workdir in self._exceeded:
            used, limit = self._usages[workdir]
            what, key = (
                (f"{used.files} files and may take {limit.files}", "max_files")
                if 0 < limit.files < used.files
                else (f"{used.size_bytes} bytes and may take {limit.size_bytes}", "max_bytes")
            )
            raise QuotaExceededError(f"{os.fsdecode(workdir)} takes {what} (roles.NAME.{key}): delete something")


def workdir_of(zone: Zone) -> bytes | None:
    """Return the path of the working directory that a zone belongs to."""
    if zone.kind is ZoneKind.PRIVATE:
        return zone.prefix
    if zone.kind in (ZoneKind.LOCAL_STATE, ZoneKind.BLOB_STORAGE):
        return zone.prefix.rpartition(b"/")[0]
    return None
