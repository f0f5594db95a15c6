"""Checkpoints through the control socket: listing them, plans of removals, and their execution."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import AsyncIterator

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response

from holdfast.checkpoints.sweeps.plan_format import Item, StoredPlan, read_plan
from holdfast.checkpoints.sweeps.plan_store import new_id
from holdfast.checkpoints.sweeps.revalidation import Step
from holdfast.control.messages import (
    CheckpointInfo,
    DropRequest,
    ExecuteRequest,
    KeptInfo,
    PlanInfo,
    PlanItem,
    RewindRequest,
    SweepProgress,
    SweepRequest,
)
from holdfast.control.operations import Operation, RouteGroup
from holdfast.control.paths import Paths
from holdfast.control.replies import body, content, listed, number, reply, required_path, stream
from holdfast.errors import PlanError
from holdfast.maintenance import Upkeep
from holdfast.system.text import shown

_LARGEST_PLAN_BYTES = 2**30


class SweepRoutes(RouteGroup):
    """The routes by path."""

    def __init__(self, upkeep: Upkeep, paths: Paths) -> None:
        self._upkeep = upkeep
        self._sweeps = upkeep.sweeps
        self._sweepers = upkeep.sweepers
        self._paths = paths
        self.operations = {
            "/v1/checkpoints": Operation(self._census, list[CheckpointInfo], {"path": "string"}, ("path",)),
            "/v1/checkpoints/plans": Operation(self._plans, list[PlanInfo]),
            "/v1/checkpoints/plan": Operation(self._plan, PlanInfo, {"id": "string", "items": "number"}, ("id",)),
            "/v1/checkpoints/sweep": Operation(self._sweep, PlanInfo, body=SweepRequest),
            "/v1/checkpoints/drop": Operation(self._drop, PlanInfo, body=DropRequest),
            "/v1/checkpoints/rewind": Operation(self._rewind, PlanInfo, body=RewindRequest),
            "/v1/checkpoints/submit": Operation(self._submit, PlanInfo, body=bytes),
            "/v1/checkpoints/execute": Operation(self._execute, SweepProgress, body=ExecuteRequest, streams=True),
        }

    async def _census(self, request: Request) -> Response:
        path = required_path(request)
        zone, root = self._paths.in_zone(path, self._sweeps.zones)
        found = await self._sweeps.census(zone, root)
        return listed(
            CheckpointInfo(
                path=self._paths.of_object(zone, root, each.name.decode()),
                what=each.what,
                complete=each.is_complete,
                files=each.files,
                size_bytes=each.size_bytes,
                modified=each.newest_ns / 1e9,
            )
            for each in found
        )

    async def _plans(self, request: Request) -> Response:
        del request
        plan_store = self._upkeep.plan_store
        plans = await trio.to_thread.run_sync(lambda: [plan_store.get(plan_id) for plan_id in plan_store.ids()])
        return reply([self._info(plan, 0) for plan in plans])

    async def _plan(self, request: Request) -> Response:
        limit = request.query_params.get("items")
        plan = await self._stored(request.query_params.get("id", ""))
        return reply(self._info(plan, None if limit is None else number(limit, "items")))

    async def _sweep(self, request: Request) -> Response:
        wanted = await body(request, SweepRequest)
        zone, root = self._paths.in_zone(wanted.path, self._sweepers)
        policy = self._upkeep.policy(wanted.grace_seconds, wanted.abandoned_seconds, wanted.min_batches_to_retain)
        plan = await self._sweepers[zone].plan_sweep(zone, root, policy)
        return reply(self._info(plan, wanted.items))

    async def _drop(self, request: Request) -> Response:
        wanted = await body(request, DropRequest)
        zone, name = self._paths.in_zone(wanted.path, self._sweeps.zones)
        root = None if wanted.root is None else self._paths.in_zone(wanted.root, [zone])[1]
        return reply(self._info(await self._sweeps.plan_drop(zone, name, root, all_before=wanted.up_to), wanted.items))

    async def _rewind(self, request: Request) -> Response:
        wanted = await body(request, RewindRequest)
        zone, key = self._paths.in_zone(wanted.path, self._sweeps.zones)
        plan = await self._upkeep.rewinds.plan(zone, key, wanted.to, max(0.0, wanted.idle_seconds))
        return reply(self._info(plan, wanted.items))

    async def _submit(self, request: Request) -> Response:
        """Store a plan that was made elsewhere, from the body of the request. It gets a new id."""
        plan = read_plan(io.BytesIO(await content(request, _LARGEST_PLAN_BYTES)))
        plan = StoredPlan(msgspec.structs.replace(plan.header, id=new_id()), plan.items)
        if plan.header.zone not in self._sweepers:
            raise PlanError(f"the plan is for the zone {plan.header.zone}, which this daemon does not have")
        await trio.to_thread.run_sync(self._upkeep.plan_store.put, plan)
        return reply(self._info(plan, 0))

    async def _execute(self, request: Request) -> Response:
        wanted = await body(request, ExecuteRequest)
        plan = await self._stored(wanted.plan)
        sweeper = self._sweepers.get(plan.header.zone, self._sweeps)
        return await stream(_progress(sweeper.execute(plan, at_once=wanted.at_once)))

    async def _stored(self, plan_id: str) -> StoredPlan:
        return await trio.to_thread.run_sync(self._upkeep.plan_store.get, plan_id)

    def _info(self, plan: StoredPlan, limit: int | None) -> PlanInfo:
        header = plan.header
        outcome = self._upkeep.plan_store.outcome(header.id)
        return PlanInfo(
            id=header.id,
            kind=header.kind,
            path=self._paths.of_object(header.zone, header.root),
            made=header.made_ns / 1e9,
            checkpoints=[self._paths.of_object(header.zone, header.root, name) for name in header.checkpoints],
            grace_seconds=header.policy.grace_seconds,
            count=header.count,
            size_bytes=header.size_bytes,
            by_reason=dict(Counter(item.reason for item in plan.items)),
            kept=[
                KeptInfo(path=self._paths.of_object(header.zone, header.root, each.scope), why=shown(each.why.encode()))
                for each in header.kept
            ],
            state=outcome.state,
            removed=outcome.removed,
            removed_bytes=outcome.removed_bytes,
            gone=outcome.gone,
            in_use=outcome.in_use,
            items=[self._item(plan, item) for item in plan.items[:limit]],
        )

    def _item(self, plan: StoredPlan, item: Item) -> PlanItem:
        return PlanItem(
            path=self._paths.of_object(plan.header.zone, plan.header.root, item.name),
            reason=item.reason,
            why=item.why,
            size_bytes=item.size_bytes,
            modified=item.mtime_ns / 1e9,
        )


async def _progress(steps: AsyncIterator[Step]) -> AsyncIterator[SweepProgress]:
    async for step in steps:
        yield SweepProgress(
            done=step.done,
            total=step.total,
            removed=step.outcome.removed,
            removed_bytes=step.outcome.removed_bytes,
            gone=step.outcome.gone,
            in_use=step.outcome.in_use,
            finished=step.outcome.state == "done",
        )
