"""Watches the other disks of the store (``store.other_disks``): one that fails takes its directories alone.

They are removed from the tree. Working directories go as if their owners had removed them: a process that starts again gets
a new one on another disk. The copies in those of partitions are fetched again (``lost_partitions``). Whoever has files there
open goes on with those, and gets the errors of the disk. The disk is not used until the next start that finds it in order.
"""

from __future__ import annotations

import logging
import os

import trio

from holdfast.fs.foundation import Foundation
from holdfast.maintenance.lost_partitions import LostPartitions
from holdfast.store import OtherDisk
from holdfast.telemetry.wakeups import sleep_within
from holdfast.workdirs import Workdirs

_EVERY_SECONDS = 10.0
_PATIENCE_SECONDS = 120.0
"""The time after which a disk that does not answer counts as failed: that of the kernel's warnings of hung tasks."""
_log = logging.getLogger("holdfast.store")


async def watch_disks(base: Foundation, workdirs: Workdirs) -> None:
    """Watch all other disks, until cancelled or all have failed."""
    others, lost = base.parts.store.others, LostPartitions(base)
    async with trio.open_nursery() as nursery:
        for number in others.given_up:
            nursery.start_soon(lost.forget_given_up, number)
        for disk in others.present:
            nursery.start_soon(_watch, disk, base, workdirs, lost)


async def _watch(disk: OtherDisk, base: Foundation, workdirs: Workdirs, lost: LostPartitions) -> None:
    tree, events = base.parts.store.tree, base.parts.events
    limiter = trio.CapacityLimiter(1)  # of its own: a disk that does not answer holds a thread up
    while not disk.has_failed:
        await sleep_within(_EVERY_SECONDS)
        with trio.move_on_after(_PATIENCE_SECONDS) as patience:
            await trio.to_thread.run_sync(disk.look, abandon_on_cancel=True, limiter=limiter)
        disk.has_failed = disk.has_failed or patience.cancelled_caught
    counts = len(tree.workdirs_on(disk.number)), len(tree.partitions_on(disk.number))
    _log.warning("the disk %s has failed, with %d working directories and %d directories of partitions", disk.path, *counts)
    events.emit("disk-failed", disk=str(disk.path), workdirs=counts[0], partitions=counts[1])
    while (paths := tree.workdirs_on(disk.number)) or tree.partitions_on(disk.number):
        for path in workdirs.lost(paths):
            events.emit("workdir-lost", path=os.fsdecode(path), disk=str(disk.path))
        await lost.drop(disk)
        await sleep_within(_EVERY_SECONDS)  # for those that something holds up
