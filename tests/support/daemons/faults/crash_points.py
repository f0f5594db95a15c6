"""Named points at which a daemon dies: SIGKILL before or after a step, once the test has armed it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

from holdfast.fs.fuse.immediate_replies import ImmediateReplies
from holdfast.fs.fuse.operations import Operations
from holdfast.fs.namespace.rename import FileMoves
from holdfast.fs.namespace.unlink import LostNames
from holdfast.fs.writeback.publisher import Publisher
from holdfast.fs.writeback.remote_deletes import RemoteDeletes
from holdfast.fs.writeback.writeback_queue import WritebackQueue
from holdfast.index.entries import Entries
from holdfast.index.marks import NameMarks
from holdfast.maintenance.lost_partitions import LostPartitions
from holdfast.store import OtherDisk, Quarantine, Staging
from holdfast.store.spread_tree import SpreadTree
from holdfast.store.staging import Orphanage, Trash
from holdfast.transfer.cached_copies import CachedCopies
from holdfast.transfer.deletions import Deletions
from holdfast.transfer.store_requests import RemoteAccess
from holdfast.workdirs.holding import Holding
from tests.support.daemons.faults.switches import disarm, replace

POINT = "HOLDFAST_TEST_CRASH_POINT"
"""Names the point: one of ``POINTS``, ``reply: HANDLER`` or ``reply at once: HANDLER``."""


@dataclass(frozen=True)
class Point:
    """A step: a method, and whether the crash comes before or after it."""

    owner: type
    method: str
    after: bool = False


POINTS = {
    "fetch: before the file is placed": Point(Staging, "place"),
    "fetch: placed, no entry": Point(Staging, "place", after=True),
    "fetch: placed, entry written": Point(CachedCopies, "place", after=True),
    "send: before the request": Point(RemoteAccess, "write_once"),
    "send: stored, not recorded": Point(RemoteAccess, "write_once", after=True),
    "send: recorded, not answered": Point(Publisher, "record", after=True),
    "rename: stored, not renamed": Point(RemoteDeletes, "delete"),
    "rename: renamed, entry not moved": Point(FileMoves, "_move_entry"),
    "rename: the old file is sheltered": Point(Orphanage, "shelter", after=True),
    "rename: out of the store, object not deleted": Point(RemoteDeletes, "delete_object"),
    "unlink: deletion noted, file there": Point(RemoteDeletes, "delete", after=True),
    "unlink: file gone, nodes not told": Point(LostNames, "name_removed"),
    "unlink: before the store is told": Point(RemoteAccess, "delete"),
    "unlink: the store was told": Point(RemoteAccess, "delete", after=True),
    "rmdir: gone in the store, here still": Point(RemoteAccess, "prune", after=True),
    "rmdir: gone here, not hidden": Point(NameMarks, "white_out"),
    "rmdir: hidden": Point(NameMarks, "white_out", after=True),
    "other disk: placeholder marked": Point(SpreadTree, "_mark", after=True),
    "other disk: directory gone, placeholder there": Point(SpreadTree, "_drop"),
    "other disk: made, not marked": Point(OtherDisk, "make", after=True),
    "other disk: marked, not known": Point(SpreadTree, "_add"),
    "failed disk: set aside, entries there": Point(LostPartitions, "forget_given_up"),
    "evict: entry gone, file there": Point(Entries, "discard", after=True),
    "quarantine: moved, no reason": Point(Quarantine, "_took"),
    "async: before the mark": Point(WritebackQueue, "keep"),
    "async: marked and synced": Point(WritebackQueue, "keep", after=True),
    "acquire: thrown away": Point(Trash, "throw", after=True),
    "acquire: emptied, not held": Point(Holding, "hold"),
    "acquire: held": Point(Holding, "hold", after=True),
    "deletions: noted": Point(Deletions, "schedule", after=True),
}


def reply_to(handler: str) -> list[Point]:
    """Return where a request is carried out and not answered: past pyfuse3, or by one of its tasks."""
    past = [name for name in (f"_{handler}", f"_{handler}2") if hasattr(ImmediateReplies, name)]
    return [*(Point(ImmediateReplies, name, after=True) for name in past), Point(Operations, handler, after=True)]


def points_of(name: str) -> list[Point]:
    """Return the steps that a point consists of: ``reply: HANDLER``, ``reply at once: HANDLER``, or one of ``POINTS``."""
    kind, _, handler = name.partition(": ")
    if kind == "reply at once":
        return [Point(ImmediateReplies, f"_{handler}", after=True)]
    return reply_to(handler) if kind == "reply" else [POINTS[name]]


def arm(point: Point, is_armed: Callable[[], bool]) -> None:
    """Make the step of ``point`` deadly while ``is_armed``."""
    original = getattr(point.owner, point.method)

    def die() -> None:
        if is_armed():
            os.kill(os.getpid(), signal.SIGKILL)

    @wraps(original)
    async def deadly_async(*arguments: Any, **named: Any) -> Any:
        if not point.after:
            die()
        result = await original(*arguments, **named)
        die()
        return result

    @wraps(original)
    def deadly(*arguments: Any, **named: Any) -> Any:
        if not point.after:
            die()
        result = original(*arguments, **named)
        die()
        return result

    replace(point.owner, point.method, deadly_async if iscoroutinefunction(original) else deadly)


def crash_at_point() -> None:
    """Die at the point that ``POINT`` names, once, when the file that ``ARMED`` names is there."""
    for step in points_of(os.environ[POINT]):
        arm(step, disarm)
