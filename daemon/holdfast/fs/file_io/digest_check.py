"""Digest checks of nodes before their first use."""

from __future__ import annotations

import stat as stat_module
from dataclasses import dataclass

from holdfast.fs.file_io.backing_file import open_local
from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.name_policy import NamePolicy
from holdfast.fs.inodes.node import Node, path_of
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.fs.integrity.verifier import Verifier
from holdfast.system.waits import before_waiting
from holdfast.zones import ZonePath


@dataclass(eq=False)
class DigestCheck:
    """Checks nodes, where ``Verifier`` checks files. The caller of an async method holds the node's lock."""

    _verifier: Verifier
    _policy: NamePolicy
    _directories: Directories

    def is_known_intact(self, node: Node, opened: OpenFile) -> bool:
        """Say whether the file may be served without reading its bytes."""
        if not self._policy.has_digest(node):
            return True
        path = path_of(node)
        return path is None or self._verifier.is_checked(path, opened.fd)

    async def is_intact(self, node: Node, opened: OpenFile) -> bool:
        """Say whether the file may be served. If not, it has been put into quarantine and the node has no file."""
        if self.is_known_intact(node, opened):
            return True
        await before_waiting()
        path = path_of(node)
        return path is None or await self._verifier.check_before_use(path, opened.fd)

    async def is_closed_file_intact(self, node: Node) -> bool:
        """Do what ``is_intact`` does for a node that is not open."""
        if not self._policy.has_digest(node) or self._is_special(node):
            return True
        try:
            opened = open_local(self._directories, node, writable=False)
        except PermissionError:  # only its owner could have changed it, and this user can't read it
            return True
        try:
            return await self.is_intact(node, opened)
        finally:
            opened.close()

    def drop_unreadable(self, opened: OpenFile, problem: OSError) -> None:
        """Drop an open file that the disk can't read if it is a copy: its next open fetches it again."""
        path = path_of(opened.node)
        if path is not None and self._policy.has_digest(opened.node):
            self._verifier.drop_unreadable(path, opened.fd, problem)

    def digests_later(self, place: ZonePath) -> bool:
        """Say whether the zone keeps digests and sends nothing: what is hashed in other zones is hashed when it is sent."""
        return place.zone.digests and not place.zone.sends

    def later(self, place: ZonePath, node: Node) -> None:
        """Queue the file at ``place`` for hashing if its zone keeps digests and sends nothing."""
        if self.digests_later(place) and node.backing:
            path = path_of(node)
            if path is not None:
                self._verifier.digest_soon(path)

    def _is_special(self, node: Node) -> bool:
        """Say whether the node is a symbolic link, FIFO, socket or device, whose bytes are not read here."""
        stat = self._directories.stat(node.parent, node.name) if node.parent is not None else None
        return stat is not None and not stat_module.S_ISREG(stat.st_mode)
