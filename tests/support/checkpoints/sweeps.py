"""The daemon's sweeps over a root in memory, for tests without a mount."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import trio

from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.reachability import Listed
from holdfast.checkpoints.sweeps.execution import StoreSweeps
from holdfast.checkpoints.sweeps.plan_format import StoredPlan
from holdfast.checkpoints.sweeps.plan_store import Outcome, PlanStore
from holdfast.remote import RemoteStore
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer import RemoteAccess


class NoCopies:
    """A node that has nothing of the store here, but for ``busy``, and what ended writers have left: keys and sizes.

    Of the latter somebody has touched those in ``busy``.
    """

    def __init__(self) -> None:
        self.busy: set[str] = set()
        self.left_here: dict[str, int] = {}
        self.told: list[str] = []

    def in_use(self, zone: str, key: str) -> bool:
        return key in self.busy

    async def leftovers(self, zone: str, root: str, before_ns: int) -> list[Listed]:
        start = f"{root}/" if root else ""
        return [
            Listed(key.removeprefix(start).encode(), size_bytes, 1)
            for key, size_bytes in self.left_here.items()
            if key.startswith(start)
        ]

    def is_leftover(self, zone: str, key: str) -> bool:
        return key in self.left_here

    async def remove_leftovers(self, zone: str, keys: Sequence[str], before_ns: int) -> tuple[list[str], int]:
        removed = [key for key in keys if key in self.left_here and key not in self.busy]
        for key in removed:
            del self.left_here[key]
        return removed, len(self.busy.intersection(keys))

    async def gone(self, zone: str, keys: list[str]) -> None:
        self.told += keys

    async def directory_made(self, zone: str, key: str) -> None:
        self.told.append(f"+{key}/")

    async def directory_gone(self, zone: str, key: str, *, for_good: bool) -> None:
        self.told.append(f"{key}/" + ("!" if for_good else ""))


class SweepsOver:
    """Sweeps of one node over ``store``."""

    def __init__(self, store: RemoteStore, directory: Path, formats: Formats = FORMATS) -> None:
        self.events = EventLog(lambda: 0.0)
        self.counters = Counters()
        self.copies = NoCopies()
        access = RemoteAccess(
            "checkpoints",
            store,
            deadline_seconds=10.0,
            parallel=4,
            events=self.events,
            counters=self.counters,
            clock=lambda: 0.0,
        )
        self.plan_store = PlanStore(directory)
        self.stores = {"checkpoints": access}
        self.sweeps = StoreSweeps(self.stores, self.plan_store, self.copies, self.events, self.counters, formats)

    async def carry_out(self, plan: StoredPlan, *, at_once: bool = False) -> Outcome:
        outcome = Outcome()
        async for step in self.sweeps.execute(plan, at_once=at_once):
            outcome = step.outcome
        await trio.lowlevel.checkpoint()
        return outcome
