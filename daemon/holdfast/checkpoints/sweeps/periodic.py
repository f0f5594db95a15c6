"""Sweeps that the daemon makes by itself, one node of all for each store.

Time is cut into periods, by the store's clock. In each, the node that is first to create ``.holdfast/sweep-<end>``, named by
the end of the period in seconds since the epoch, leads: it sweeps the store, and the others only take what ended writers
have left on their own disks. The lease expires with its period, for the next one has another name; so a leader that dies is
succeeded without anyone having to judge whether it is dead, and no lease is ever taken over. Once expired, a lease is swept
like everything else. Working directories are each node's own.

Were there two leaders, as on a store that can't create conditionally, they would only do the same work twice.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import trio

from holdfast.checkpoints.reachability import Policy
from holdfast.checkpoints.sweeps.plan_format import StoredPlan
from holdfast.checkpoints.sweeps.revalidation import Step
from holdfast.errors import HoldfastError, RemoteError
from holdfast.telemetry import EventLog
from holdfast.transfer import RemoteAccess

_SECOND_NS = 10**9
_RETRY_SECONDS = 60.0


PlanOfRoot: TypeAlias = Callable[[str, str, Policy], Awaitable[StoredPlan | None]]
"""Makes the plan for a root of a zone; None if there is nothing to do."""


class Sweeper(Protocol):
    """Plans and carries out sweeps of some zones."""

    async def plan_sweep(self, zone: str, root: str, policy: Policy) -> StoredPlan:
        """Make and store the plan of a sweep."""
        ...

    def execute(self, plan: StoredPlan, *, at_once: bool) -> AsyncIterator[Step]:
        """Carry a stored plan out."""
        ...


@dataclass(frozen=True, slots=True)
class PeriodicSweeps:
    """Sweeps ``roots``, pairs of zone and root, once in each period of ``every_seconds``.

    ``plan_leftovers`` is for the zones that another node sweeps.
    """

    stores: Mapping[str, RemoteAccess]
    sweepers: Mapping[str, Sweeper]
    plan_leftovers: PlanOfRoot
    roots: Sequence[tuple[str, str]]
    policy: Policy
    every_seconds: float
    node: str
    events: EventLog

    async def run(self) -> None:
        """Sweep in each period, until cancelled."""
        async with trio.open_nursery() as nursery:
            for zone in {zone for zone, _ in self.roots}:
                nursery.start_soon(self._run_zone, zone)

    async def sweep_zone(self, zone: str) -> bool:
        """Sweep the zone's roots if this node leads in the present period; say whether it does. Raises ``HoldfastError``."""
        leads = zone not in self.stores or await self._leads(self.stores[zone])
        sweeper = self.sweepers[zone]
        plan_root: PlanOfRoot = sweeper.plan_sweep if leads else self.plan_leftovers
        for _, root in (each for each in self.roots if each[0] == zone):
            plan = await plan_root(zone, root, self.policy)
            if plan is not None:
                async for _ in sweeper.execute(plan, at_once=True):
                    pass
        return leads

    @property
    def _every_ns(self) -> int:
        return int(self.every_seconds * _SECOND_NS)

    async def _run_zone(self, zone: str) -> None:
        while True:
            try:
                await self.sweep_zone(zone)
                pause_ns = await self._until_the_next_period(zone)
            except (HoldfastError, OSError) as problem:
                self.events.emit("sweep-failed", zone=zone, problem=str(problem))
                pause_ns = min(self._every_ns, int(_RETRY_SECONDS * _SECOND_NS))
            await trio.sleep(pause_ns / _SECOND_NS)

    async def _leads(self, access: RemoteAccess) -> bool:
        now_ns = await access.now_ns()
        until = (now_ns - now_ns % self._every_ns + self._every_ns) // _SECOND_NS
        lease = json.dumps({"node": self.node, "until": until}).encode()
        try:
            return await access.take_lease(f"sweep-{until}", lease)
        except RemoteError:
            return False  # the lease may have been created all the same: no node sweeps in this period

    async def _until_the_next_period(self, zone: str) -> int:
        if zone not in self.stores:
            return self._every_ns
        return self._every_ns - await self.stores[zone].now_ns() % self._every_ns
