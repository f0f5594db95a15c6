"""RELEASE, from top to bottom: uncount the handle, account for written bytes, close the file with the last handle.

Bytes that are unsent at the last handle are sent in the background. A large file that may have been written unnoticed after
it was sent (``passthrough``) is hashed in the background too. The handle counts until that is done.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio

from holdfast.errors import HoldfastError
from holdfast.fs.file_io.commit import Committer
from holdfast.fs.file_io.open_files import HandleTable, OpenFiles
from holdfast.fs.file_io.passthrough import PassthroughWrites
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.node import Node, path_of
from holdfast.fs.inodes.open_file import OpenFile


class Background:
    """Tasks that a request starts and that do not delay its reply, while ``run`` runs. Any part may start one."""

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, which cancels all tasks too."""
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def start_soon(self, action: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Start a task in the background."""
        assert self._nursery is not None, "the file system is not running"
        self._nursery.start_soon(action, *arguments)

    def start_from_thread(self, action: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Start a task, from any thread. Once the daemon ends, nothing is started."""
        assert self._token is not None, "the file system is not running"
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._start_if_possible, action, *arguments)

    def _start_if_possible(self, action: Callable[..., Awaitable[object]], *arguments: object) -> None:
        with suppress(RuntimeError):  # the nursery is closed
            self.start_soon(action, *arguments)


class Releasing:
    """Releases the kernel's handles."""

    def __init__(
        self,
        base: Foundation,
        files: OpenFiles,
        handles: HandleTable,
        writes: PassthroughWrites,
        committer: Committer,
        background: Background,
    ) -> None:
        self._invalidation, self._events = base.invalidation, base.parts.events
        self._files = files
        self._handles = handles
        self._writes = writes
        self._committer = committer
        self._background = background
        self._comparing: set[trio.Event] = set()

    def release(self, opened: OpenFile, request: int, *, executes: bool | None = None) -> None:
        """Release a handle that the kernel drops by ``request``: a running program's if ``executes``; None if unknown."""
        self._handles.released(opened, request, executes=executes)
        self.finish(opened)

    def forgotten(self, node: Node) -> None:
        """Release the handles of an open node that the kernel no longer has: it has none of them, or it would have the node.

        An earlier daemon died after it had counted an open and before it had answered, and the process that waited was
        killed before this daemon could answer.
        """
        opened = node.opened
        if opened is None or self._invalidation.kernel_has(node.id):
            return
        for _ in range(self._handles.lost(opened)):
            self.finish(opened)

    def finish(self, opened: OpenFile) -> None:
        """Account for the bytes written through a released handle. Closes the file with the last one.

        The handle is released even after an error: nobody would release it again.
        """
        try:
            is_late = opened.may_change and not self._account_nowait(opened)
        except (HoldfastError, OSError) as problem:
            is_late = False
            self._report_unsent(opened, problem)
        if is_late:
            self._begin_late(opened)
        else:
            self._files.release(opened)

    async def settle(self) -> None:
        """Return when every file closed so far has been accounted for.

        The kernel reports a close after the call has returned, and a large file is then hashed again.
        """
        await self._invalidation.caught_up()
        for compared in list(self._comparing):
            await compared.wait()

    def _account_nowait(self, opened: OpenFile) -> bool:
        """Account for the bytes written. Returns False if that is to be done in the background."""
        is_accounted = self._writes.compare_nowait(opened)
        self._writes.detect_writes(opened)
        if not is_accounted or self._committer.has_unsent_at_end(opened):
            return False
        if opened.handles == 1:
            self._committer.digest_at_end(opened)
        return True

    def _begin_late(self, opened: OpenFile) -> None:
        opened.begin_leaving()
        compared = trio.Event()
        self._comparing.add(compared)
        self._background.start_soon(self._finish_later, opened, compared)

    async def _finish_later(self, opened: OpenFile, compared: trio.Event) -> None:
        try:
            await self._compare(opened, compared)
            await self._committer.commit(opened)
            self._writes.detect_writes(opened)
            if opened.handles == 1:
                self._committer.digest_at_end(opened)
        except (HoldfastError, OSError) as problem:  # no process is waiting for the result: the bytes stay unsent
            self._report_unsent(opened, problem)
        opened.end_leaving()
        self._files.release(opened)

    async def _compare(self, opened: OpenFile, compared: trio.Event) -> None:
        try:
            await self._writes.compare(opened)
        finally:
            self._comparing.remove(compared)
            compared.set()

    def _report_unsent(self, opened: OpenFile, problem: Exception) -> None:
        path = path_of(opened.node)
        self._events.emit("unsent", path=os.fsdecode(path or b"?"), problem=str(problem))
