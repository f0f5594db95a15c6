"""Going on from checkpoints, through the control socket: what can be restored, copies of checkpoints."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response

from holdfast.checkpoints.formats.interface import Restore
from holdfast.checkpoints.restoring.cloning import Clones
from holdfast.checkpoints.restoring.verifying import StoreVerification
from holdfast.control.messages import CloneProgress, CloneRequest, FaultInfo, RestoreInfo, VerifyProgress, VerifyRequest
from holdfast.control.operations import Operation
from holdfast.control.paths import Paths, shown
from holdfast.control.replies import body, stream
from holdfast.errors import PlanError

_MOST_FAULTS = 20
"""Of one batch: a lost disk leaves thousands."""


class RestoreRoutes:
    """The routes by path."""

    def __init__(self, verification: StoreVerification, clones: Clones, paths: Paths) -> None:
        self._verification = verification
        self._clones = clones
        self._paths = paths
        self.operations = {
            "/v1/checkpoints/verify": Operation(self._verify, VerifyProgress, body=VerifyRequest, streams=True),
            "/v1/checkpoints/clone": Operation(self._clone, CloneProgress, body=CloneRequest, streams=True),
        }

    async def _verify(self, request: Request) -> Response:
        wanted = await body(request, VerifyRequest)
        zone, key = self._paths.in_zone(wanted.path, self._verification.zones)
        return await stream(self._progress(zone, key, wanted))

    async def _progress(self, zone: str, key: str, wanted: VerifyRequest) -> AsyncIterator[VerifyProgress]:
        async for step in self._verification.verify(zone, key, wanted.batch, deep=wanted.deep):
            found = [self._info(zone, step.root, each) for each in step.restores or ()]
            yield VerifyProgress(
                done=step.done,
                total=step.total,
                without_digest=step.without_digest,
                finished=step.restores is not None,
                restores=found,
            )

    async def _clone(self, request: Request) -> Response:
        wanted = await body(request, CloneRequest)
        zone, source = self._paths.in_zone(wanted.path, self._verification.zones)
        other, target = self._paths.in_zone(wanted.to, self._verification.zones)
        if other != zone:
            raise PlanError(f"a copy lies in the store of its original, which is {zone}, not {other}")
        return await stream(self._cloned(zone, source, target, wanted))

    async def _cloned(self, zone: str, source: str, target: str, wanted: CloneRequest) -> AsyncIterator[CloneProgress]:
        async for step in self._clones.clone(zone, source, target, wanted.batch, keep_id=wanted.keep_id):
            yield CloneProgress(done=step.done, total=step.total, batch=step.batch, finished=step.finished)

    def _info(self, zone: str, root: str, restore: Restore) -> RestoreInfo:
        return RestoreInfo(
            path=self._paths.of_object(zone, root, shown(restore.name)),
            what=restore.what,
            restorable=restore.is_good,
            expired=restore.is_expired,
            newest=restore.is_newest,
            files=len(set(restore.files())),
            broken=len(restore.faults),
            faults=[
                FaultInfo(path=self._paths.of_object(zone, root, shown(fault.name)), why=shown(fault.why.encode()))
                for fault in restore.faults[:_MOST_FAULTS]
            ],
            remarks=[shown(remark.encode()) for remark in restore.remarks[:_MOST_FAULTS]],
        )
