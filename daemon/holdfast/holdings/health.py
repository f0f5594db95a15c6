"""Tells what is wrong with this node, in sentences for people: status, page, ``top`` and the other nodes' pages show them.

Alerts (``docs/monitoring``) are about the same things over time. A sentence names what is wrong and what to do or where the
reason stands; an empty list means that nothing is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.fs.foundation import Foundation
from holdfast.fs.fuse.session import ServedMount
from holdfast.holdings.report import LONGEST_PROBLEM, MOST_PROBLEMS, NodeHealth
from holdfast.problems import DRAINING, STORE, is_clearly_below

_MANY_DELETIONS = 1000
_ABSENT = "what was there fails with EIO until it is mounted and the daemon restarted, or store.other_disks leaves it out"
_NOT_USED = "its working directories are gone, and none are made there until it is mended and the daemon restarted"


@dataclass(frozen=True, slots=True)
class Health:
    """The health of this node. It answers from memory, so it may be asked at any rate."""

    base: Foundation
    mount: ServedMount
    version: str

    def problems(self, is_shown: Callable[[str], bool] = lambda _: True) -> list[str]:
        """Return a sentence for each thing that is wrong, the worst first; of stores those for which ``is_shown`` holds."""
        return [*self.of_stores(is_shown), *self.of_node(), *self._of_users()]

    def of_stores(self, is_shown: Callable[[str], bool], *, with_reasons: bool = True) -> list[str]:
        """Return the sentences about the stores for which ``is_shown`` holds. The reasons name what others do."""
        found = []
        for name, remote in self.base.parts.remotes.items():
            health, waiting = remote.access.health, len(remote.deletions)
            if is_shown(name) and not health.up:
                reason = f": {health.problem}" if with_reasons else ""
                found.append(f"{STORE}{name} does not answer{reason}")
            if is_shown(name) and with_reasons and waiting > _MANY_DELETIONS:
                found.append(f"{waiting:,} deletions wait to be sent to the store {name}")
        return found

    def of_node(self) -> list[str]:
        """Return the sentences that tell nothing of what users do."""
        found = []
        if not self.base.parts.index.takes_writes:
            found.append("the disk of the store directory takes no writes: the kernel's log (dmesg) says why")
        others = self.base.parts.store.others
        absent = (disk for disk in others.disks if disk.is_absent)
        found += [f"the disk {disk.path} is not there ({disk.problem}): {_ABSENT}" for disk in absent]
        found += [f"the disk {disk.path} has failed: {_NOT_USED}" for disk in others.present if disk.has_failed]
        found += [f"the disk {lost.path} is lost ({lost.problem}): {_NOT_USED}" for lost in others.missing]
        is_first_full = False
        for room in self.base.rooms.all:
            disk = room.usage().disk
            reserve = room.limits.reserve(disk)
            name = f"the disk {room.disk.path}" if room.disk.number else "the disk of the store directory"
            if is_clearly_below(disk.free_bytes, reserve.size_bytes):
                found.append(f"{name} is full, and evicting makes no more room")
                is_first_full = is_first_full or not room.disk.number
            elif is_clearly_below(disk.free_files, reserve.files):
                found.append(f"{name} has hardly any inodes left, and evicting frees no more of them")
        if not self.base.parts.index.has_room and not is_first_full:
            found.append("the index's disk is full: soon no new files for the stores are accepted")
        if self.mount.session.passthrough_possible and self.mount.session.data_mode != "passthrough":
            found.append(f"no passthrough, so state stores are slow ({self.mount.session.data_mode})")
        if self.mount.keeper_problem:
            found.append(f"the mount ends with this daemon's pod: {self.mount.keeper_problem}")
        if self.base.drain.is_on:
            found.append(f"{DRAINING}: it takes nothing new for its stores ('holdfast drain --undo' ends that)")
        return found

    def sends_state_away(self) -> bool:
        """Say whether state is to go to other nodes: this one is drained, or its disk takes no writes."""
        return self.base.drain.is_on or not self.base.parts.index.takes_writes

    def for_others(self, zone: str) -> NodeHealth:
        """Return what the other nodes are told through the store of ``zone``: its readers may know of no other store."""
        usage = self.base.rooms.first.usage()
        return NodeHealth(
            version=self.version,
            data_mode=self.mount.session.data_mode.partition(":")[0],
            cached_bytes=max(0, self.base.parts.index.entries.cached_bytes),
            free_bytes=max(0, usage.disk.free_bytes),
            problems=[problem[:LONGEST_PROBLEM] for problem in self.problems(lambda name: name == zone)[:MOST_PROBLEMS]],
        )

    def _of_users(self) -> list[str]:
        faults = self.base.parts.counters.internal_errors
        return [f"requests failed because of a bug in Holdfast ({faults}): the log has the traceback"] if faults else []
