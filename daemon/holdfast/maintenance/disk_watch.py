"""Watches the other disks of the store (``store.other_disks``): one that fails takes its working directories alone.

They are removed from the tree, as if their owners had removed them: a process that starts again gets a new one on another
disk. Whoever has files there open goes on with those, and gets the errors of the disk. The disk is not used until the next
start that finds it in order.
"""

from __future__ import annotations

import logging
import os

import trio

from holdfast.store import OtherDisk, StoreDirectory
from holdfast.telemetry import EventLog
from holdfast.telemetry.wakeups import sleep_within
from holdfast.workdirs import Workdirs

_EVERY_SECONDS = 10.0
_PATIENCE_SECONDS = 120.0
"""The time after which a disk that does not answer counts as failed: that of the kernel's warnings of hung tasks."""
_log = logging.getLogger("holdfast.store")


async def watch_disks(store: StoreDirectory, workdirs: Workdirs, events: EventLog) -> None:
    """Watch all other disks, until cancelled or all have failed."""
    async with trio.open_nursery() as nursery:
        for disk in store.others.present:
            nursery.start_soon(_watch, disk, store, workdirs, events)


async def _watch(disk: OtherDisk, store: StoreDirectory, workdirs: Workdirs, events: EventLog) -> None:
    limiter = trio.CapacityLimiter(1)  # of its own: a disk that does not answer holds a thread up
    while not disk.has_failed:
        await sleep_within(_EVERY_SECONDS)
        with trio.move_on_after(_PATIENCE_SECONDS) as patience:
            await trio.to_thread.run_sync(disk.look, abandon_on_cancel=True, limiter=limiter)
        disk.has_failed = disk.has_failed or patience.cancelled_caught
    count = len(store.tree.paths_on(disk.number))
    _log.warning("the disk %s has failed, with %d working directories", disk.path, count)
    events.emit("disk-failed", disk=str(disk.path), workdirs=count)
    while paths := store.tree.paths_on(disk.number):
        for path in workdirs.lost(paths):
            events.emit("workdir-lost", path=os.fsdecode(path), disk=str(disk.path))
        await sleep_within(_EVERY_SECONDS)  # for those that something holds up
