"""link(2): another name for a node; in a sending zone also another object with the same bytes.

The bytes are sent first, then the name appears in the tree, then the entry is written (``LinkUpload``, also for a rename).
The entry must still say if the bytes are unsent under other names.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
from functools import partial

from holdfast.errors import NoSuchEntryError
from holdfast.fs.file_io.files import Files
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.name_policy import Name, Names, check_not_root, check_storable
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.fs.inodes.replay import FIRST, Attempt
from holdfast.fs.remote_view.views import Views
from holdfast.fs.writeback.publisher import Sent
from holdfast.fs.writeback.sending import Sending
from holdfast.system.file_id import FileStat, file_stat
from holdfast.system.waits import before_waiting

MOST_NAMES = 1000
"""The limit of names for one file. The loop goes through all of them when the file is opened, closed, linked or moved."""


class Linking:
    """Makes hard links."""

    def __init__(self, base: Foundation, views: Views, files: Files, link_upload: LinkUpload) -> None:
        self._directories, self._nodes, self._policy = base.directories, base.nodes, base.policy
        self._admission, self._hot, self._index = base.admission, base.hot, base.parts.index
        self._guard, self._hints, self._rooms = views.guard, views.hints, base.rooms
        self._local_files, self._check = files.local_files, files.check
        self._link_upload = link_upload

    async def link(self, node: Node, directory: Node, name: bytes, caller: Caller, attempt: Attempt = FIRST) -> FileStat:
        """Give ``node`` the name ``name`` in ``directory``; return its attributes.

        Raises ``AccessRefusedError`` and ``RemoteError``.
        """
        new = self._policy.name(directory, name)
        check_not_root(new)
        if caller.uid:
            self._guard.check_open(node, os.O_RDONLY, caller)
            self._guard.check_put(new, caller)
        if not self._local_files.is_local(node):
            await self._local_files.make_local(node)
            self._guard.check_open(node, os.O_RDONLY, caller)  # by now it may have turned out to be a copy
        if self._directories.is_spread:
            self._directories.check_one_disk(node, directory)
        before = self._stat(node)
        check_storable(new.zone, before.st_mode)
        if caller.uid not in (0, before.st_uid) and not attempt.resent:
            self._check_strangers_link(node, new)
        hot = self._hot.of_node(node, node.backing)
        if hot is not None or self._hot.written(node) is not None:
            await self._hot.settle(node.backing)
            before = self._stat(node)
        if new.sends:
            self._admission.check_takes_new(directory)
            if not attempt.resent:
                _check_room(before)
            is_hidden = self._index.marks.is_whited_out(new.path)
            sent = await self._link_upload.send(node, new, caller, create_only=not is_hidden)
            add = partial(self._add_name_now, node, new, sent, attempt)
            linked = await self._rooms.of(node.backing).with_room_at_once(add)  # the object is not stored again
        else:
            if hot is not None:
                hot = self._hot.of_node(node, node.backing)
            linked = self._add_name(node, new, None, attempt, before, hot)
        if new.zone.is_store and new.policy.awaits_rename:
            self._hints.temporary_made(new.place.path, new.name, caller.pid)
        return linked

    def _check_strangers_link(self, node: Node, new: Name) -> None:
        """Raise EPERM if a file of somebody else is to be kept by a link between a store and another directory.

        The kernel refuses that only with ``fs.protected_hardlinks``, and only to those who may not write the file.
        """
        if bool(self._policy.sent_names(node.names())) != new.sends:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    def _stat(self, node: Node) -> FileStat:
        directory = node.parent
        stat = self._directories.stat(directory, node.name) if directory is not None else None
        if stat is None:
            raise NoSuchEntryError("a file without a name can't get one")
        return stat

    def _add_name_now(self, node: Node, name: Name, sent: Sent | None, attempt: Attempt) -> FileStat:
        hot = self._hot.of_node(node, node.backing)
        return self._add_name(node, name, sent, attempt, self._stat(node), hot)

    def _add_name(
        self,
        node: Node,
        name: Name,
        sent: Sent | None,
        attempt: Attempt,
        before: FileStat,
        hot: OpenFile | None,
    ) -> FileStat:
        assert node.parent is not None
        source_fd = self._directories.descriptor(node.parent)
        target_fd = self._admission.descriptor_for_new(name.directory)
        if not (attempt.resent and self._is_there(name, before)):
            _check_room(before)
            if hot is not None:
                then = partial(self._added_late, name, before, sent)
                self._hot.link(hot, source_fd, node.name, target_fd, name.name, then)
            else:
                os.link(node.name, name.name, src_dir_fd=source_fd, dst_dir_fd=target_fd, follow_symlinks=False)
        stat = file_stat(name.name, dir_fd=target_fd, follow_symlinks=False)
        self._added(node, name, sent, before, stat)
        return stat

    def _added_late(self, name: Name, before: FileStat, sent: Sent | None) -> None:
        """Follow a file that got the name after its user was told that it is busy; the kernel may have forgotten it."""
        stat = self._directories.stat(name.directory, name.name)
        if stat is not None and stat.st_ino == before.st_ino:
            node = self._nodes.local(name.directory, name.name, stat.st_ino, stat.st_mode)
            self._added(node, name, sent, before, stat)
            self._nodes.release(node)

    def _added(self, node: Node, name: Name, sent: Sent | None, before: FileStat, stat: FileStat) -> None:
        self._nodes.add_name(node, name.directory, name.name)
        if sent is not None:
            self._link_upload.record(node, name, self._directories.descriptor(name.directory), sent, stat)
        else:
            self._index.entries.refresh(before, stat)
            if stat_module.S_ISREG(stat.st_mode):
                self._check.later(name.place, node)

    def _is_there(self, name: Name, stat: FileStat) -> bool:
        """Say whether the name already leads to the file, linked by an earlier daemon."""
        found = self._directories.stat(name.directory, name.name)
        return found is not None and found.st_ino == stat.st_ino


class LinkUpload:
    """Sends files under names that they are about to get."""

    def __init__(self, base: Foundation, views: Views, sending: Sending, files: Files) -> None:
        self._policy, self._copies, self._entries = base.policy, base.copies, base.parts.index.entries
        self._view, self._hints = base.view, views.hints
        self._publisher, self._queue = sending.publisher, sending.queue
        self._files, self._writes = files.files, files.passthrough_writes

    async def send(
        self, node: Node, name: Name, caller: Caller, *, create_only: bool, replaced: Name | None = None
    ) -> Sent | None:
        """Store the object of a name that is about to appear, in the place of ``replaced`` in a rename.

        Returns None if the writeback queue will send it. Unsent bytes stay marked unsent if any of the file's other names is
        to be sent too. Raises ``NameNotStorableError``, ``RemoteError`` and ``LostBytesError``.
        """
        self._view.check_name(name)
        await before_waiting()
        once = create_only or name.created_once
        opened = node.opened
        was_unsent = False
        if opened is not None:
            self._writes.detect_writes(opened)
            was_unsent = opened.unsent
            if not self._policy.sent_names(_without(replaced, node)):
                self._writes.before_send(opened)
        try:
            with self._files.descriptor_of(node) as fd:
                if not once and name.zone.sends_later:
                    await self._queue.keep(fd)
                    return None
                sent = await self._publisher.send(fd, name, create_only=once)
        except BaseException:
            if opened is not None and was_unsent:
                opened.changed()
            raise
        self._hints.created(name.place.path, name.kind, caller.pid)
        return sent

    def record(self, node: Node, name: Name, directory_fd: int, sent: Sent, stat: FileStat) -> None:
        """Write the entry: the store has the bytes of the file ``stat`` under the name that it just got."""
        entry = self._entries.get(stat.st_ino)
        others_unsent = entry is not None and entry.is_unsent and bool(self._policy.sent_names(_without(name, node)))
        self._publisher.record([sent], stat, entry, others_unsent=others_unsent)
        self._copies.drop_sidecar(name.path, directory_fd)


def _check_room(stat: FileStat) -> None:
    """Raise EMLINK if a file has as many names as it may have."""
    if stat.st_nlink >= MOST_NAMES:
        raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))


def _without(left_out: Name | None, node: Node) -> Names:
    """Return the names of a node, but one."""
    if left_out is None:
        return node.names()
    return [name for name in node.names() if name != (left_out.directory, left_out.name)]
