"""The daemon's cleanup hooks over a root in memory, for tests without a mount."""

from __future__ import annotations

from pathlib import Path

import trio

from holdfast.checkpoints.hooks.execution import Hooks
from holdfast.checkpoints.hooks.shelf import Outcome, PlanShelf
from holdfast.checkpoints.hooks.stored import StoredPlan
from holdfast.remote import RemoteStore
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer import RemoteAccess


class NoCopies:
    """A node that has nothing of the store here, but for ``busy``."""

    def __init__(self) -> None:
        self.busy: set[str] = set()
        self.told: list[str] = []

    def in_use(self, zone: str, key: str) -> bool:
        return key in self.busy

    async def gone(self, zone: str, keys: list[str]) -> None:
        self.told += keys

    async def directory_gone(self, zone: str, key: str, *, for_good: bool) -> None:
        self.told.append(f"{key}/" + ("!" if for_good else ""))


class HooksOver:
    """Hooks of one node over ``store``."""

    def __init__(self, store: RemoteStore, directory: Path) -> None:
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
        self.shelf = PlanShelf(directory)
        self.stores = {"checkpoints": access}
        self.hooks = Hooks(self.stores, self.shelf, self.copies, self.events, self.counters)

    async def carry_out(self, plan: StoredPlan, *, at_once: bool = False) -> Outcome:
        outcome = Outcome()
        async for step in self.hooks.execute(plan, at_once=at_once):
            outcome = step.outcome
        await trio.lowlevel.checkpoint()
        return outcome
