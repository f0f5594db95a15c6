"""Two nodes over one root in memory that sweep it as the daemon does, with all that may come in between."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from holdfast.checkpoints.reachability import Policy
from holdfast.checkpoints.sweeps import execution
from holdfast.checkpoints.sweeps.plan_format import StoredPlan
from holdfast.errors import PlanOutdatedError, RemoteRefusedError
from tests.support.checkpoints.root_store import RootStore
from tests.support.checkpoints.roots import SECOND, Root
from tests.support.checkpoints.sweeps import SweepsOver

_BATCH = 3
"""So small that the few files of a test take several requests."""
_AT_ONCE_NS = 60 * SECOND
_CUT_OFF = RemoteRefusedError("the node died")


class Fleet:
    """Plans and executions by the store's clock; ``end`` takes its directories away."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self._store = RootStore(root)
        self._directory = tempfile.TemporaryDirectory()
        self._patches = pytest.MonkeyPatch()
        self._patches.setattr(execution, "_BATCH", _BATCH)
        self.nodes = [SweepsOver(self._store, Path(self._directory.name, name)) for name in "ab"]

    def end(self) -> None:
        self._patches.undo()
        self._directory.cleanup()

    def plan(self, policy: Policy) -> StoredPlan:
        return trio.run(self.nodes[0].sweeps.plan_sweep, "checkpoints", "", policy)

    def sweep(self, policy: Policy, cut_after: int | None = None) -> StoredPlan:
        """Plan, and carry it out at once; the node dies after so many requests."""
        plan = self.plan(policy)
        self.execute(plan, cut_after)
        return plan

    def drop(self, name: str, *, all_before: bool, cut_after: int | None = None) -> None:
        plan = trio.run(lambda: self.nodes[0].sweeps.plan_drop("checkpoints", name, "", all_before=all_before))
        self.execute(plan, cut_after)

    def execute(self, plan: StoredPlan, cut_after: int | None = None) -> None:
        """Carry a plan out, as long as it is new without a second listing; one that is refused has touched nothing."""
        at_once = self.root.now_ns - plan.header.made_ns < _AT_ONCE_NS
        self._store.failures = [] if cut_after is None else [None] * cut_after + [_CUT_OFF]
        before = self._names()
        try:
            trio.run(lambda: self.nodes[0].carry_out(plan, at_once=at_once))
        except PlanOutdatedError:
            assert self._names() == before
        except RemoteRefusedError:
            pass
        self._store.failures = []

    def sweep_twice_at_a_time(self, policy: Policy, between: Callable[[], None]) -> None:
        """One node begins, the other does all of its sweep, then the first goes on; ``between`` happens in the middle."""
        trio.run(self._sweep_twice, policy, between)

    async def _sweep_twice(self, policy: Policy, between: Callable[[], None]) -> None:
        plans = [await node.sweeps.plan_sweep("checkpoints", "", policy) for node in self.nodes]
        first = self.nodes[0].sweeps.execute(plans[0], at_once=True)
        await anext(first)
        between()
        await self.nodes[1].carry_out(plans[1], at_once=True)
        async for _ in first:
            pass

    def _names(self) -> set[bytes]:
        return set(self.root.files) | set(self.root.directories)
