"""Refusals of what is new: while the node is drained, and in working directories that are above their limits.

A node that is drained is about to go away: it takes nothing new for its stores, and sends what it has. Other daemons of the
same mount go on draining; a new mount begins without.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.errors import DrainingError
from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.quotas import Quotas
from holdfast.zones import Zone


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
