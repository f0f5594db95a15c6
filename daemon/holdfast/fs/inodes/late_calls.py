"""Calls on hot files that have not ended in time, and what follows once they have (``hot_files``)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import trio

from holdfast.errors import HoldfastError
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.store import Answer, Orphanage
from holdfast.system.file_id import FileId

_log = logging.getLogger("holdfast.fs")


class LateCall(NamedTuple):
    """A call that has not ended in time: whose file it is, and whether the event loop has waited for it.

    ``then`` is called once it has succeeded, and the kernel asks again for ``names``: each a directory's inode number and a
    name in it.
    """

    uid: int
    answer: Answer
    delays_all: bool
    names: Sequence[tuple[FileId, bytes]] = ()
    then: Callable[[], None] | None = None


class LateCalls:
    """The calls, by file. ``invalidate`` lets the kernel ask again for a name in the directory with a node id."""

    def __init__(self, nodes: NodeTable, orphanage: Orphanage, invalidate: Callable[[int, bytes], None]) -> None:
        self.by_file: dict[FileId, list[LateCall]] = {}
        self._nodes = nodes
        self._orphanage = orphanage
        self._invalidate = invalidate

    def add(self, inode: FileId, late: LateCall) -> None:
        """Note that a call on the file ``inode`` has not ended in time."""
        self.by_file.setdefault(inode, []).append(late)
        if late.then is not None:
            trio.lowlevel.spawn_system_task(self._wait_for, late.answer)

    def is_late(self, inode: FileId) -> bool:
        """Say whether a call on the file has not ended yet."""
        self._forget_ended()
        return inode in self.by_file

    def of(self, uid: int, *, delays_all: bool = False) -> int:
        """Return how many calls on the user's files are late; with ``delays_all`` only those the event loop waited for.

        The files of root, and those that nobody has opened, count for nobody.
        """
        late = (each for calls in self.by_file.values() for each in calls)
        return sum(uid == each.uid != 0 and each.delays_all >= delays_all for each in late)

    async def _wait_for(self, answer: Answer) -> None:
        if not answer.has_ended():
            with suppress(trio.ClosedResourceError, OSError):  # somebody has asked before, whether it has come
                await trio.lowlevel.wait_readable(answer)
        self._forget_ended()

    def _forget_ended(self) -> None:
        for inode, calls in list(self.by_file.items()):
            for late in [late for late in calls if late.answer.has_come()]:
                if late in calls:
                    calls.remove(late)
                    self._end(late)
                    self._end_shelter(inode)
            if not calls:
                self.by_file.pop(inode, None)

    def _end(self, late: LateCall) -> None:
        """Close the answer of a call that has ended, and record what it has done if it has succeeded."""
        if late.then is None:
            late.answer.close()
            return
        trio.lowlevel.notify_closing(late.answer)
        try:
            late.answer.take()
            late.then()
        except (OSError, HoldfastError) as problem:
            _log.warning("a late call on a file that was held up has failed, or can't be recorded: %s", problem)
        except Exception:  # noqa: BLE001 whoever happens to ask first has no part in it
            _log.exception("a late call on a file that was held up can't be recorded")
        for inode, name in late.names:
            directory = self._nodes.of_backing(inode)
            if directory is not None:
                self._invalidate(directory.id, name)

    def _end_shelter(self, inode: FileId) -> None:
        """Let go of what keeps the file for the next daemon, unless it is open without a name."""
        node = self._nodes.of_backing(inode)
        if node is None or node.opened is None or node.is_named:
            self._orphanage.release(inode)
