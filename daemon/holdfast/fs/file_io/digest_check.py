"""Digest checks of nodes before their first use."""

from __future__ import annotations

import stat as stat_module

from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.node import Node, path_of
from holdfast.fs.inodes.open_file import OpenFile, open_local
from holdfast.fs.integrity.verifier import Verifier
from holdfast.system.file_id import FileStat, file_stat
from holdfast.system.waits import before_waiting
from holdfast.zones import ZonePath


class DigestCheck:
    """Checks nodes, where ``Verifier`` checks files. The caller of an async method holds the node's lock."""

    def __init__(self, base: Foundation, verifier: Verifier) -> None:
        self._policy, self._directories = base.policy, base.directories
        self._verifier = verifier

    def is_checked(self, node: Node, opened: OpenFile) -> bool:
        """Say whether a file that has a digest may be served without reading its bytes."""
        return self._is_checked(node, file_stat(opened.fd))

    def is_closed_file_checked(self, node: Node) -> bool:
        """Say whether a node that is not open may be served without reading it: without a digest, or with a checked one.

        Symbolic links and special files have nothing to check.
        """
        if not self._policy.has_digest(node):
            return True
        stat = self._directories.stat(node.parent, node.name) if node.parent is not None else None
        if stat is None or stat.st_ino != node.backing:
            return False
        return not stat_module.S_ISREG(stat.st_mode) or self._is_checked(node, stat)

    def _is_checked(self, node: Node, stat: FileStat) -> bool:
        path = path_of(node)
        return path is None or self._verifier.is_checked(path, stat)

    async def is_intact(self, node: Node, opened: OpenFile) -> bool:
        """Say whether a file that has a digest and is not ``is_checked`` may be served.

        If not, it has been put into quarantine and the node has no file.
        """
        await before_waiting()
        path = path_of(node)
        return path is None or await self._verifier.check_before_use(path, opened.fd)

    async def is_closed_file_intact(self, node: Node) -> bool:
        """Do what ``is_intact`` does for a node that is not open."""
        if self.is_closed_file_checked(node):
            return True
        try:
            opened = open_local(self._directories, node, writable=False)
        except PermissionError:  # only its owner could have changed it, and this user can't read it
            return True
        try:
            return await self.is_intact(node, opened)
        finally:
            opened.close()

    async def still_matches(self, path: bytes, fd: int) -> bool:
        """Hash a file though it was checked before; say whether it has its digest. If not, it is put into quarantine."""
        return await self._verifier.check(path, fd)

    def drop_unreadable(self, opened: OpenFile, problem: OSError) -> None:
        """Drop an open file that the disk can't read if it is a copy: its next open fetches it again."""
        path = path_of(opened.node)
        if path is not None and self._policy.has_digest(opened.node):
            self._verifier.drop_unreadable(path, opened.fd, problem)

    def later(self, place: ZonePath, node: Node) -> None:
        """Queue a file for hashing if that is to be done in its directory's zone."""
        if place.zone.digests_later and node.backing:
            path = path_of(node)
            if path is not None:
                self._verifier.digest_soon(path)
