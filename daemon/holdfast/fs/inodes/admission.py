"""Refusals of what is new: while the node is drained, and in working directories that are above their limits.

A node that is drained is about to go away: it takes nothing new for its stores, and sends what it has. Other daemons of the
same mount go on draining; a new mount begins without.

The disk usage of working directories comes from walks in the background (``workdirs.usage``), so a limit holds to within
seconds, not to the byte.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import DrainingError, QuotaExceededError
from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.node import Node
from holdfast.store import Space
from holdfast.zones import Zone, ZoneKind

NO_LIMIT = Space(0, 0)


class Drain:
    """The draining of this node. ``flag`` is a file that exists as long as the node is being drained."""

    def __init__(self, flag: Path) -> None:
        self._flag = flag
        self.is_on = flag.exists()

    def begin(self) -> None:
        """Take nothing new from now on. Raises ``OSError``."""
        self._flag.touch(mode=0o600)
        self.is_on = True

    def end(self) -> None:
        """Take everything again. Raises ``OSError``."""
        self._flag.unlink(missing_ok=True)
        self.is_on = False

    def check(self, zone: Zone) -> None:
        """Raise ``DrainingError`` if something new in ``zone`` would be sent to a store."""
        if self.is_on and zone.sends:
            raise DrainingError(
                "this node is being drained: it takes nothing new for its stores ('holdfast drain --undo' ends that)"
            )


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


class Admission:
    """Tells what a directory or file may still take. Nearly always nothing is refused, which costs a look at two flags."""

    def __init__(self, directories: Directories, drain: Drain, quotas: Quotas) -> None:
        self._directories = directories
        self._drain = drain
        self._quotas = quotas

    def descriptor_for_new(self, node: Node) -> int:
        """Return the ``writable_descriptor`` for a new entry. Raises as ``check_takes_new`` does."""
        if self._drain.is_on or self._quotas.are_exceeded:
            self.check_takes_new(node)
        return self._directories.writable_descriptor(node)

    def check_takes_new(self, node: Node, moved_from: Node | None = None) -> None:
        """Raise an error if the directory takes no new entries now, or none that are moved to it from ``moved_from``.

        ``DrainingError``: what is new in it would be sent, and the node is being drained. ``QuotaExceededError``: its
        working directory is above its limit.
        """
        if self._drain.is_on:
            self._drain.check(self._directories.place(node).zone)
        if self._quotas.are_exceeded:
            self._quotas.check(
                self._directories.place(node).zone,
                self._directories.place(moved_from).zone if moved_from is not None else None,
            )

    def check_may_grow(self, node: Node) -> None:
        """Raise ``QuotaExceededError`` if a node is in a working directory that is above its limit, or is that directory."""
        if self._quotas.are_exceeded:
            for parent in [node] if node.is_directory else node.names_by_directory():
                self._quotas.check(self._directories.place(parent).zone)


def workdir_of(zone: Zone) -> bytes | None:
    """Return the path of the working directory that a zone belongs to."""
    if zone.kind is ZoneKind.PRIVATE:
        return zone.prefix
    if zone.kind in (ZoneKind.LOCAL_STATE, ZoneKind.BLOB_STORAGE):
        return zone.prefix.rpartition(b"/")[0]
    return None
