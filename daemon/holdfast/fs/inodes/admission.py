"""Refusals of what is new: while the node is drained, and in working directories that are above their limits."""

from __future__ import annotations

from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.drain import Drain
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.quotas import Quotas


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
