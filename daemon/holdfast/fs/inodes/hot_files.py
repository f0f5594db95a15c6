"""Files whose inode's lock a user may hold for as long as it likes, and what is done with them.

While the kernel reads or writes a backing file past the daemon, it may hold the lock of the file's inode until the caller's
memory comes (``store.outside_calls``). So a file is *hot* while a user who is not root has a handle in passthrough, or while
a call on it by the other process has not ended. Calls that take its lock are made there. Nobody waits for them longer than
``PATIENCE_SECONDS``; then the file is busy (EBUSY) until the call has ended. If it has changed names by then, nodes and
index learn of it.

Calls that add or remove names take the lock of the directory first. So the file's lock is waited for alone (``settle``)
before, and only a user who takes it again at that very moment makes a directory wait. Then nobody goes into that directory
until the user lets go (``Tree.held``). It is that user's own: the first handle in passthrough is for the owner of all
directories in which the file has names, or for root (``file_io.passthrough``), and a file that has become hot neither gets
nor loses a name in another's directory, or while yet another user has it open.

What is not hot is changed by the loop itself. Where the daemon serves the data, a write in one of its threads has the lock
too, on a slow disk for some hundred milliseconds. Whoever wants to change the file waits until none is under way, and no
other begins until the change is made.

For what is neither hot nor written, which is nearly everything, this costs a look at one attribute.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

import trio

from holdfast.errors import FileBusyError
from holdfast.fs.inodes.descriptor_cache import DescriptorCache
from holdfast.fs.inodes.kernel import BackingFiles
from holdfast.fs.inodes.late_calls import LateCall, LateCalls
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.store import (
    RENAME_NOREPLACE,
    Answer,
    HeldDirectory,
    OutsideCalls,
    StoreDirectory,
    ignoring_full_disk,
    own_directory,
    rename_with_flags,
)
from holdfast.system.file_id import FileId, file_stat
from holdfast.system.waits import before_waiting

PATIENCE_SECONDS = 3.0
"""The time that a caller waits: longer than a write or read takes on a disk that works."""
LONG_PATIENCE_SECONDS = 60.0
"""The time that a caller waits for a change of a file in many pieces."""
_AT_ONCE_SECONDS = 0.05
"""The time that the event loop waits for a call that nobody has a reason to hold up."""
_WRITE_SECONDS = 0.005
"""The time after which a write in a thread is looked at again."""
_STILL_HELD = "a process has held the lock of the file for long, with memory that does not come"
_MOST_LATE = 8
"""The limit of late calls on a user's files; then all of its hot files are busy. For calls that the loop waits for, the
limit is one."""


T = TypeVar("T")


class HotFiles:
    """Makes calls on hot files."""

    def __init__(
        self,
        store: StoreDirectory,
        nodes: NodeTable,
        descriptors: DescriptorCache,
        invalidate: Callable[[int, bytes], None],
        writes: BackingFiles,
    ) -> None:
        self._calls: OutsideCalls = store.calls
        self._tree = store.tree
        self._orphanage = store.orphanage
        self._quarantine = store.quarantine
        self._nodes = nodes
        self._descriptors = descriptors
        self._writes = writes
        self._late_calls = LateCalls(nodes, store.orphanage, invalidate)
        self._late = self._late_calls.by_file
        self._running: set[FileId] = set()
        """The inode numbers of files that are changed for longer by the other process, for any user."""

    def of(self, inode: FileId) -> OpenFile | None:
        """Return the open file ``inode`` if it is hot. Raises ``FileBusyError`` for a closed one on which a call is late."""
        node = self._nodes.of_backing(inode)
        if (node is None or node.opened is None) and not self._late:  # nearly always
            return None
        return self.of_node(node, inode)

    def of_node(self, node: Node | None, inode: FileId) -> OpenFile | None:
        """Return and raise what ``of`` does for ``inode``, the file of ``node``."""
        opened = node.opened if node is not None else None
        if opened is not None and self.is_hot(opened):
            return opened
        if opened is None and self._late and self._is_in_use(inode):
            raise FileBusyError(_STILL_HELD)
        return None

    def is_hot(self, opened: OpenFile) -> bool:
        """Say whether another may hold the lock of the file's inode."""
        return opened.is_hot or (bool(self._running or self._late) and self._is_in_use(opened.inode))

    def inodes(self) -> set[FileId]:
        """Return the inode numbers of all hot files. It looks at every node."""
        opened = (node.opened for node in self._nodes.all() if node.opened is not None)
        return {each.inode for each in opened if self.is_hot(each)}

    # --- waiting -----------------------------------------------------------------------------------------------------

    async def settle(self, inode: FileId) -> None:
        """Return when the lock of the file was free a moment ago. Raises ``FileBusyError``.

        That is at once if the file is not hot and no thread of the daemon writes to it. No thread begins such a write before
        the caller's step has ended.
        """
        hot = self.of(inode)
        if hot is not None:
            await self.call(hot, "probe", [])
        elif (written := self.written(self._nodes.of_backing(inode))) is not None:
            await self._wait_written(written.fd)

    def written(self, node: Node | None) -> OpenFile | None:
        """Return the open file of a node if threads of the daemon write to it: then ``settle`` waits, hot or not."""
        opened = None if node is None else node.opened
        return opened if opened is not None and self._writes.is_written(opened.fd) else None

    async def _wait_written(self, fd: int) -> None:
        await before_waiting()
        deadline = trio.current_time() + PATIENCE_SECONDS
        try:
            while self._writes.hold_back(fd):
                if trio.current_time() >= deadline:
                    raise FileBusyError("the disk takes long to write to the file")
                await trio.sleep(_WRITE_SECONDS)
        finally:
            trio.lowlevel.current_trio_token().run_sync_soon(self._writes.let_go, fd)

    async def change(self, inode: FileId, change: Callable[[], T]) -> T:
        """Make a change of the file that waits for its lock in one step, and may be made twice. Raises ``FileBusyError``.

        The event loop waits but a moment, which is too short on a busy machine, also where nobody holds the lock. Then the
        caller alone waits for the call to end, and the change is made again.
        """
        await self.settle(inode)
        deadline = math.inf
        while True:
            try:
                return change()
            except FileBusyError:
                if inode not in self._late:
                    raise
            deadline = min(deadline, trio.current_time() + PATIENCE_SECONDS)
            while self._late_calls.is_late(inode):  # whoever looks first closes the answer that an event would need
                if trio.current_time() >= deadline:
                    raise FileBusyError(_STILL_HELD)
                await trio.sleep(_AT_ONCE_SECONDS)

    async def call(
        self,
        opened: OpenFile,
        call: str,
        directories: Sequence[int],
        *arguments: int | bytes,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """Make a call of ``outside_calls`` on the open file. Raises its ``OSError``, and ``FileBusyError``.

        If cancelled, it goes on.
        """
        await before_waiting()
        self._check_free(opened)
        if self._late and self._late_calls.of(_user_of(opened)) >= _MOST_LATE:
            raise FileBusyError(_STILL_HELD)
        answer = self._calls.begin(call, [opened.fd, *directories], *arguments)
        is_long = patience > PATIENCE_SECONDS and opened.inode not in self._running
        if is_long:
            self._running.add(opened.inode)
        try:
            with trio.move_on_after(patience):
                await trio.lowlevel.wait_readable(answer)
        finally:
            if is_long:
                self._running.discard(opened.inode)
            if not answer.has_come():
                self._late_calls.add(opened.inode, LateCall(_user_of(opened), answer, delays_all=False))
        self._take(opened, answer)

    def call_now(
        self,
        opened: OpenFile,
        call: str,
        descriptors: Sequence[int],
        *arguments: int | bytes,
        holds: Sequence[tuple[int, bytes]] = (),
        then: Callable[[], None] | None = None,
    ) -> None:
        """Make a call on a file that has settled, in this step. Raises as ``call`` does, after a moment.

        ``holds``: the descriptors of directories whose locks the call takes first, each with the name that it changes there.
        ``then`` records what the call has done if it succeeds after ``FileBusyError``.
        """
        self._check_free(opened)
        if self._late and self._late_calls.of(_user_of(opened), delays_all=True):
            raise FileBusyError(_STILL_HELD)
        held = [self._as_held(fd) for fd, _ in holds]
        if held:
            self._tree.held.about_to_be(held)
        answer = self._calls.begin(call, descriptors, *arguments)
        if not answer.has_come(_AT_ONCE_SECONDS):
            names = [(directory.inode, name) for directory, (_, name) in zip(held, holds, strict=True)]
            self._late_calls.add(opened.inode, LateCall(_user_of(opened), answer, True, names, then))
            for directory in held:
                self._hold(directory, answer)
        elif held:
            self._tree.held.about_to_be(())
        self._take(opened, answer)

    def _take(self, opened: OpenFile, answer: Answer) -> None:
        if any(late.answer is answer for late in self._late.get(opened.inode, ())):
            raise FileBusyError("a process holds the lock of the file: it reads or writes it with memory that does not come")
        answer.take()

    # --- names -------------------------------------------------------------------------------------------------------

    def unlink(self, opened: OpenFile, directory_fd: int, name: bytes, then: Callable[[], None] | None = None) -> None:
        """Remove a name of a file that has settled. If it is the last, another one keeps the file for the next daemon.

        Of this and of what follows, ``then`` is called after a success that comes too late, as in ``call_now``.
        """
        self._check_owner(opened, directory_fd)
        if os.fstat(opened.fd).st_nlink == 1:
            self.shelter(opened)
        self.call_now(opened, "unlink", [directory_fd], name, holds=[(directory_fd, name)], then=then)

    def shelter(self, opened: OpenFile) -> None:
        """Give an open file, hot or not, a name among the orphans: its others are about to go. Raises ``OSError``."""
        if not self.is_hot(opened):
            self._orphanage.shelter_open(opened.fd, opened.inode)
            return
        with ignoring_full_disk():
            self.call_now(
                opened, "shelter", [opened.fd, self._orphanage.directory_of(opened.inode)], own_directory(opened.inode)
            )

    def rename(
        self,
        opened: Sequence[OpenFile],
        source_fd: int,
        old: bytes,
        target_fd: int,
        new: bytes,
        flags: int = 0,
        *,
        then: Callable[[], None],
    ) -> None:
        """Rename a file in the tree. Those ``opened``, it or the one that has the new name, are hot and have settled."""
        for each in opened:
            self._check_owner(each, source_fd)
            self._check_owner(each, target_fd)
            self._check_free(each)
        holds = [(source_fd, old), (target_fd, new)]
        self.call_now(opened[0], "rename", [source_fd, target_fd], old, new, flags, holds=holds, then=then)

    def link(
        self, opened: OpenFile, source_fd: int, old: bytes, target_fd: int, new: bytes, then: Callable[[], None]
    ) -> None:
        """Give a file that has settled another name."""
        self._check_owner(opened, target_fd)
        self.call_now(opened, "link", [source_fd, target_fd], old, new, holds=[(target_fd, new)], then=then)

    def rename_out(
        self, inode: FileId, source_fd: int, old: bytes, target_fd: int, new: bytes, then: Callable[[], None]
    ) -> None:
        """Move a file, hot or not, out of the tree to a directory of the store's own, under a name that is free there."""
        opened = self.of(inode)
        if opened is None:
            rename_with_flags(source_fd, old, target_fd, new, RENAME_NOREPLACE)
        else:
            self._check_owner(opened, source_fd)
            holds = [(source_fd, old), (target_fd, new)]
            self.call_now(opened, "rename", [source_fd, target_fd], old, new, RENAME_NOREPLACE, holds=holds, then=then)

    def _check_owner(self, opened: OpenFile, directory_fd: int) -> None:
        owner = opened.passthrough_uid
        if opened.has_strangers:
            raise FileBusyError("several users have the file open: let all but its owner close it first")
        if opened.is_hot and owner and os.stat(directory_fd).st_uid != owner:
            raise FileBusyError("a process that does not own this directory has the file open: let it close the file first")

    # --- attributes --------------------------------------------------------------------------------------------------

    def chmod(self, opened: OpenFile, mode: int) -> None:
        """fchmod(2) of an open file, hot or not."""
        if self.is_hot(opened):
            self.call_now(opened, "chmod", [opened.fd], mode)
        else:
            os.fchmod(opened.fd, mode)

    def set_attribute(self, fd: int, name: str | bytes, value: bytes, flags: int = 0) -> None:
        """fsetxattr(2) of a file, hot or not."""
        opened = self._behind(fd)
        if opened is None:
            os.setxattr(fd, name, value, flags)
        else:
            self.call_now(opened, "setxattr", [fd], os.fsencode(name), value, flags)

    def remove_attribute(self, fd: int, name: str | bytes) -> None:
        """fremovexattr(2) of a file, hot or not."""
        opened = self._behind(fd)
        if opened is None:
            os.removexattr(fd, name)
        else:
            self.call_now(opened, "removexattr", [fd], os.fsencode(name))

    def _behind(self, fd: int) -> OpenFile | None:
        return self.of(file_stat(fd).st_ino)

    # --- what is late ------------------------------------------------------------------------------------------------

    def _check_free(self, opened: OpenFile) -> None:
        """Raise ``FileBusyError`` if a call on the file is late."""
        if self.is_held_up(opened.inode):
            raise FileBusyError(_STILL_HELD)

    def is_held_up(self, inode: FileId) -> bool:
        """Say whether a call on the file is late."""
        return bool(self._late) and self._late_calls.is_late(inode)

    def _is_in_use(self, inode: FileId) -> bool:
        return inode in self._running or self._late_calls.is_late(inode)

    def _as_held(self, directory_fd: int) -> HeldDirectory:
        """Return how to write down a directory. Raises ``OSError`` if its path is too long for that."""
        return HeldDirectory(file_stat(directory_fd).st_ino, self._tree.path_of(directory_fd))

    def _hold(self, directory: HeldDirectory, answer: Answer) -> None:
        """Let nobody into a directory whose lock the call may have."""
        self._tree.held.add(directory, answer)
        if directory.path is None:
            self._quarantine.hold(answer)
            return
        node = self._nodes.of_backing(directory.inode)
        if node is not None:
            self._descriptors.forget(node.id)


def _user_of(opened: OpenFile) -> int:
    """Return the user whose fault it is if a call on the file is late; 0 if that is nobody, or one of several."""
    return 0 if opened.has_strangers else opened.passthrough_uid or opened.charged_uid
