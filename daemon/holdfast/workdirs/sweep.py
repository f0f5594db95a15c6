"""Sweeps of working directories: plans as for checkpoints, for garbage on this node's own disk.

As everywhere, a plan is executed after a second look. Removals take effect in one step, a whole tree at a time. A crash
leaves a tree in place, or in the store's ``trash/``, which the next start empties.
"""

from __future__ import annotations

import os
import stat as stat_module
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from itertools import islice

import trio

from holdfast.checkpoints.reachability import Plan, PlanEntry, Policy
from holdfast.checkpoints.sweeps.plan_format import WORKDIRS, Header, Item, StoredPlan, StoredPolicy, items_of
from holdfast.checkpoints.sweeps.plan_store import PlanStore, new_id
from holdfast.checkpoints.sweeps.revalidation import Execution, Step, confirmed
from holdfast.errors import NoSuchPlanError, PlanError
from holdfast.fs.foundation import Foundation
from holdfast.index import EntryState
from holdfast.store import LONGEST_TICK_NS
from holdfast.system.file_id import FileStat
from holdfast.workdirs.garbage import Content, garbage, is_judged
from holdfast.workdirs.service import Workdir, Workdirs
from holdfast.workdirs.tree import WorkdirTree

_IN_ONE_GO = 100


class WorkdirSweeps:
    """Plans for the working directories of a mount. A zone is the name of a base, a root the name of a directory in it."""

    def __init__(self, base: Foundation, workdirs: Workdirs, plan_store: PlanStore) -> None:
        self.plan_store = plan_store
        self._parts = base.parts
        self._nodes = base.nodes
        self._workdirs = workdirs
        self._tree = WorkdirTree(base)

    @property
    def zones(self) -> frozenset[str]:
        """The bases of working directories."""
        return frozenset(os.fsdecode(name) for name in self._parts.zones.top_names) - self._parts.remotes.keys()

    async def plan_sweep(self, zone: str, root: str, policy: Policy) -> StoredPlan:
        """Make and store the plan of a sweep. Raises ``PlanError`` for anything but a base or a working directory."""
        now_ns = time.time_ns()
        plan, _ = await self._plan(zone, root, policy, now_ns)
        items = items_of(plan, {})
        header = Header(
            id=new_id(),
            kind=WORKDIRS,
            zone=zone,
            root=root,
            store=self._parts.store.store_id,
            made_ns=now_ns,
            policy=StoredPolicy.of(policy),
            count=len(items),
            size_bytes=sum(item.size_bytes for item in items),
        )
        stored = StoredPlan(header, items)
        await trio.to_thread.run_sync(self.plan_store.put, stored)
        return stored

    async def execute(self, plan: StoredPlan, *, at_once: bool) -> AsyncIterator[Step]:
        """Execute a stored plan, always after a second look. Raises as ``StoreSweeps.execute`` does."""
        del at_once
        header = plan.header
        if header.store != self._parts.store.store_id:
            raise PlanError(f"the plan {header.id} is another node's: what it names is not here")
        with self.plan_store.executing(header.id):
            later, names = await self._plan(header.zone, header.root, header.policy.policy(), time.time_ns())
            items = confirmed(plan, later, names, {})
            execution = Execution(plan, self.plan_store, self._parts.counters, self._parts.events)
            execution.begin(items)
            left = iter(items)
            while group := list(islice(left, _IN_ONE_GO)):
                removed, left_over = await self._remove(header, group)
                gone = len(group) - len(removed) - left_over
                yield execution.removed(removed, gone=gone, in_use=left_over)
            yield execution.done()

    async def _remove(self, header: Header, group: list[Item]) -> tuple[list[Item], int]:
        """Remove the items that still exist; return them, and how many others can't be removed."""
        removed = []
        failures: list[tuple[bytes, OSError]] = []
        with self._tree.one_step():
            for item in group:
                path = _joined(header.zone, header.root, item.name)
                try:
                    if self._remove_one(path):
                        removed.append(item)
                except OSError as problem:  # one user's names must not keep those of all others from being swept
                    failures.append((path, problem))
        if failures:
            path, failure = failures[0]
            self._parts.events.emit("not-deleted", path=os.fsdecode(path), problem=str(failure), times=len(failures))
        await self._tree.invalidate_kernel()
        await self._tree.empty_trash()
        return removed, len(failures)

    def _remove_one(self, path: bytes) -> bool:
        """Remove a file or directory; False if its owner was faster, who may have put something else on the way."""
        try:
            if self._tree.exists(path):
                self._tree.remove(path)
            else:
                self._tree.drop(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def _plan(self, zone: str, root: str, policy: Policy, now_ns: int) -> tuple[Plan, set[bytes]]:
        """Make a plan; return it, and all names examined: files, and directories that are removed as a whole."""
        entries: list[PlanEntry] = []
        names: set[bytes] = set()
        for workdir in await self._wanted(zone, root):
            contents = await self._contents(workdir.path)
            plan = await trio.to_thread.run_sync(garbage, contents, _held_since_ns(workdir), policy, now_ns)
            prefix = b"" if root else workdir.path.rpartition(b"/")[2] + b"/"
            entries += (replace(entry, name=prefix + entry.name) for entry in plan.entries)
            names.update(prefix + content.name for content in contents)
        return Plan(tuple(entries)), names

    async def _wanted(self, zone: str, root: str) -> list[Workdir]:
        found = [workdir for workdir in await self._workdirs.some() if workdir.path.rpartition(b"/")[0] == os.fsencode(zone)]
        if not root:
            return found
        chosen = [workdir for workdir in found if workdir.path == _joined(zone, root)]
        if not chosen:
            raise NoSuchPlanError(f"{zone}/{root} is no working directory; 'holdfast workdir ls' lists those there are")
        return chosen

    async def _contents(self, path: bytes) -> list[Content]:
        skip = len(path) + 1
        listed = await trio.to_thread.run_sync(lambda: list(self._judged(path, skip)))
        contents = []
        for index, (name, stat) in enumerate(listed):
            contents.append(self._content(path + b"/" + name, name, stat))
            if index % _IN_ONE_GO == _IN_ONE_GO - 1:
                await trio.lowlevel.checkpoint()
        return contents

    def _judged(self, path: bytes, skip: int) -> Iterator[tuple[bytes, FileStat]]:
        for child, stat in self._parts.store.tree.walk(path, directories=True):
            if is_judged(child[skip:]):
                yield child[skip:], stat

    def _content(self, path: bytes, name: bytes, stat: FileStat) -> Content:
        node = self._nodes.of_backing(stat.st_ino)
        entry = self._parts.index.entries.get(stat.st_ino)
        is_known = entry is not None and entry.describes(stat)
        return Content(
            name,
            stat.st_size,
            stat.st_mtime_ns,
            used_ns=entry.used_ns if entry is not None else 0,
            is_directory=stat_module.S_ISDIR(stat.st_mode),
            is_open=node is not None and node.opened is not None,
            is_copy=is_known and entry is not None and entry.state is EntryState.CLEAN and entry.name_at(path) is not None,
        )


def _held_since_ns(workdir: Workdir) -> int | None:
    """Return the time from which writes are the holder's. File times lag behind the clock by up to one tick."""
    return None if workdir.holder is None else int(workdir.record.acquired_seconds * 10**9) - LONGEST_TICK_NS


def _joined(*parts: str) -> bytes:
    return os.fsencode("/".join(part for part in parts if part))
