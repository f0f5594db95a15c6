"""link(2): another name for a node; in a sending zone also another object with the same bytes."""

from __future__ import annotations

import errno
import os
import stat as stat_module
from dataclasses import dataclass
from functools import partial

import trio

from holdfast.errors import NoSuchEntryError
from holdfast.fs.file_io.digest_check import DigestCheck
from holdfast.fs.file_io.local_files import LocalFiles
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.entry_updates import EntryUpdates
from holdfast.fs.inodes.hot_files import HotFiles
from holdfast.fs.inodes.locks import NodeLocks
from holdfast.fs.inodes.name_policy import Name, NamePolicy
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.fs.inodes.replay import FIRST, Attempt
from holdfast.fs.namespace.link_upload import LinkUpload
from holdfast.fs.namespace.new_entries import check_not_root, check_storable
from holdfast.fs.remote_view.fallback_guard import FallbackGuard
from holdfast.fs.writeback.publisher import Sent
from holdfast.index import NameMarks
from holdfast.zones import Zone

MOST_NAMES = 1000
"""The limit of names for one file. The loop goes through all of them when the file is opened, closed, linked or moved."""


@dataclass(eq=False)
class Linking:
    """Makes hard links."""

    _directories: Directories
    _nodes: NodeTable
    _policy: NamePolicy
    _locks: NodeLocks
    _local_files: LocalFiles
    _link_upload: LinkUpload
    _updates: EntryUpdates
    _check: DigestCheck
    _marks: NameMarks
    _guard: FallbackGuard
    _hot: HotFiles

    async def link(
        self, node: Node, directory: Node, name: bytes, caller: Caller, attempt: Attempt = FIRST
    ) -> os.stat_result:
        """Give ``node`` the name ``name`` in ``directory``; return its attributes.

        Raises ``AccessRefusedError`` and ``RemoteError``.
        """
        new = self._policy.name(directory, name)
        check_not_root(new.place)
        self._guard.check_open(node, os.O_RDONLY, caller)
        self._guard.check_put(new, caller)
        self._directories.check_takes_new(directory)  # before anything is sent
        await self._local_files.make_local(node)
        self._guard.check_open(node, os.O_RDONLY, caller)  # by now it may have turned out to be a copy
        _directory_of(node)
        sent = None
        stat = self._directories.stat(_directory_of(node), node.name)
        if stat is not None and not attempt.resent:
            _check_room(stat)  # before anything is sent
            if bool(self._policy.sent_names(node.names())) != new.sends:
                _check_owner(stat, caller)
        self._check_storable(node, new.zone)
        await self._hot.settle(node.backing)
        if new.sends:
            is_hidden = self._marks.is_whited_out(new.path)
            sent = await self._link_upload.send(node, node.names(), new, caller, create_only=not is_hidden)
        return self._add_name(node, new, sent, attempt, self._hot.of_node(node, node.backing))

    def link_nowait(self, node: Node, directory: Node, name: bytes) -> os.stat_result:
        """Link a file that needs no fetch or hashing to a name that is not sent; else raise ``trio.WouldBlock``."""
        new = self._policy.name(directory, name)
        check_not_root(new.place)
        if node.backing == 0 or self._locks.is_held(node) or self._policy.has_digest(node):
            raise trio.WouldBlock
        if new.sends:
            raise trio.WouldBlock
        self._check_storable(node, new.zone)
        if self._hot.of_node(node, node.backing) is not None:
            raise trio.WouldBlock
        return self._add_name(node, new, None, FIRST, None)

    def _check_storable(self, node: Node, zone: Zone) -> None:
        stat = self._directories.stat(_directory_of(node), node.name) if zone.sends else None
        if stat is not None:
            check_storable(zone, stat.st_mode)

    def _add_name(self, node: Node, name: Name, sent: Sent | None, attempt: Attempt, hot: OpenFile | None) -> os.stat_result:
        source_fd = self._directories.descriptor(_directory_of(node))
        target_fd = self._directories.descriptor_for_new(name.directory)
        before = os.stat(node.name, dir_fd=source_fd, follow_symlinks=False)
        if not (attempt.resent and self._is_there(name, before)):
            _check_room(before)
            if hot is not None:
                then = partial(self._added_late, name, before, sent)
                self._hot.link(hot, source_fd, node.name, target_fd, name.name, then)
            else:
                os.link(node.name, name.name, src_dir_fd=source_fd, dst_dir_fd=target_fd, follow_symlinks=False)
        stat = os.stat(name.name, dir_fd=target_fd, follow_symlinks=False)
        self._added(node, name, sent, before, stat)
        return stat

    def _added_late(self, name: Name, before: os.stat_result, sent: Sent | None) -> None:
        """Follow a file that got the name after its user was told that it is busy; the kernel may have forgotten it."""
        stat = self._directories.stat(name.directory, name.name)
        if stat is not None and stat.st_ino == before.st_ino:
            node = self._nodes.local(name.directory, name.name, stat.st_ino, stat.st_mode)
            self._added(node, name, sent, before, stat)
            self._nodes.release(node)

    def _added(self, node: Node, name: Name, sent: Sent | None, before: os.stat_result, stat: os.stat_result) -> None:
        self._nodes.add_name(node, name.directory, name.name)
        if sent is not None:
            self._link_upload.record(node, name, self._directories.descriptor(name.directory), sent, stat)
        else:
            self._updates.refresh(before, stat)
            if stat_module.S_ISREG(stat.st_mode):
                self._check.later(self._directories.place(name.directory), node)

    def _is_there(self, name: Name, stat: os.stat_result) -> bool:
        """Say whether the name already leads to the file, linked by an earlier daemon."""
        found = self._directories.stat(name.directory, name.name)
        return found is not None and found.st_ino == stat.st_ino


def _check_room(stat: os.stat_result) -> None:
    """Raise EMLINK if a file has as many names as it may have."""
    if stat.st_nlink >= MOST_NAMES:
        raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))


def _check_owner(stat: os.stat_result, caller: Caller) -> None:
    """Raise EPERM if a file of somebody else is to be kept by a link between a store and another directory.

    The kernel refuses that only with ``fs.protected_hardlinks``, and only to those who may not write the file.
    """
    if caller.uid not in (0, stat.st_uid):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def _directory_of(node: Node) -> Node:
    if node.parent is None:
        raise NoSuchEntryError("a file without a name can't get one")
    return node.parent
