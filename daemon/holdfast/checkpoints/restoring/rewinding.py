"""A query taken back to an earlier batch that is retained: first it is verified that it can be restored from there."""

from __future__ import annotations

from holdfast.checkpoints.plans import Policy
from holdfast.checkpoints.restoring.verifying import StoreVerification
from holdfast.checkpoints.sweeps.execution import StoreSweeps
from holdfast.checkpoints.sweeps.plan_format import StoredPlan

_SECOND_NS = 10**9


class Rewinds:
    """Makes plans of rewinds; they are carried out as all plans are."""

    def __init__(self, verification: StoreVerification, sweeps: StoreSweeps) -> None:
        self._verification = verification
        self._sweeps = sweeps

    async def plan(self, zone: str, location: str, batch: int, idle_seconds: float) -> StoredPlan:
        """Make and store the plan to take the query at ``location`` back to ``batch``.

        Nothing may have been written for ``idle_seconds``. Raises ``PlanError`` when the query seems to run, or there is no
        such batch, or it can't be restored; and ``RemoteError``.
        """
        restore = await self._verification.restore(zone, location, batch)
        name = restore.name.decode()
        idle_ns = int(idle_seconds * _SECOND_NS)
        return await self._sweeps.plan_rewind(zone, location, name, Policy(idle_ns, idle_ns))
