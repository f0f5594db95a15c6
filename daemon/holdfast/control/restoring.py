"""Going on from checkpoints, through the control socket: verifying and copying them, and undoing rewinds."""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import AsyncIterator

import trio
from starlette.requests import Request
from starlette.responses import Response

from holdfast.checkpoints.formats.interface import Restore
from holdfast.checkpoints.restoring.cloning import Clones
from holdfast.checkpoints.restoring.rewinding import Undoing
from holdfast.checkpoints.restoring.verifying import StoreVerification
from holdfast.control.callers import Caller
from holdfast.control.http_connection import CALLER
from holdfast.control.messages import (
    CloneProgress,
    CloneRequest,
    FaultInfo,
    RestoreInfo,
    UndoProgress,
    UndoRequest,
    VerifyProgress,
    VerifyRequest,
)
from holdfast.control.operations import Operation, RouteGroup
from holdfast.control.paths import Paths
from holdfast.control.replies import body, stream
from holdfast.errors import PlanError, WithheldError
from holdfast.fs.inodes.object_rights import READ, ObjectRights
from holdfast.store import Tree
from holdfast.system.text import shown
from holdfast.zones import ZoneMap, ZonePath

_MOST_FAULTS = 20
"""The limit of faults that are reported for one batch, and of remarks: a lost disk leaves thousands of faults."""


class RestoreRoutes(RouteGroup):
    """The routes by path."""

    def __init__(
        self, verification: StoreVerification, clones: Clones, undoing: Undoing, rights: CopyRights, paths: Paths
    ) -> None:
        self._verification = verification
        self._clones = clones
        self._undoing = undoing
        self._rights = rights
        self._paths = paths
        self.operations = {
            "/v1/checkpoints/verify": Operation(self._verify, VerifyProgress, body=VerifyRequest, streams=True),
            "/v1/checkpoints/clone": Operation(self._clone, CloneProgress, body=CloneRequest, streams=True),
            "/v1/checkpoints/undo-rewind": Operation(self._undo, UndoProgress, body=UndoRequest, streams=True),
        }

    async def _verify(self, request: Request) -> Response:
        wanted = await body(request, VerifyRequest)
        zone, key = self._paths.in_zone(wanted.path, self._verification.zones)
        return await stream(self._progress(zone, key, wanted))

    async def _progress(self, zone: str, key: str, wanted: VerifyRequest) -> AsyncIterator[VerifyProgress]:
        major, _, minor = wanted.spark.partition(".")
        engine = (int(major), int(minor)) if wanted.spark else None
        async for step in self._verification.verify(zone, key, wanted.batch, deep=wanted.deep, engine=engine):
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
        await self._rights.check(zone, source, target, request.scope[CALLER])
        return await stream(self._cloned(zone, source, target, wanted))

    async def _cloned(self, zone: str, source: str, target: str, wanted: CloneRequest) -> AsyncIterator[CloneProgress]:
        async for step in self._clones.clone(zone, source, target, wanted.batch, keep_id=wanted.keep_id):
            yield CloneProgress(
                done=step.done, total=step.total, batch=step.batch, finished=step.finished, bytes_done=step.bytes_done
            )

    async def _undo(self, request: Request) -> Response:
        wanted = await body(request, UndoRequest)
        zone, location = self._paths.in_zone(wanted.path, self._verification.zones)
        return await stream(self._undone(zone, location, max(0.0, wanted.idle_seconds)))

    async def _undone(self, zone: str, location: str, idle_seconds: float) -> AsyncIterator[UndoProgress]:
        async for step in self._undoing.undo(zone, location, idle_seconds):
            yield UndoProgress(
                done=step.done, total=step.total, plan=step.plan, bytes_done=step.bytes_done, finished=step.finished
            )

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


class CopyRights:
    """Rights of members of the control group to copy within a store: those that they have to the objects' own paths.

    The daemon copies in the store, with its own rights, so it has to be asked here what the kernel would have decided about
    ``cp -r``. Names are no secret to members of the group; bytes are, and nobody makes anything in a directory of others.
    """

    def __init__(self, rights: ObjectRights, tree: Tree, zones: ZoneMap) -> None:
        self._rights = rights
        self._tree = tree
        self._zones = zones

    async def check(self, zone: str, source: str, target: str, caller: Caller) -> None:
        """Raise ``WithheldError`` unless the caller may read all at ``source`` and create ``target``. Root may."""
        if caller.is_root:
            return
        if not await trio.to_thread.run_sync(self._may_read, zone, source, caller):
            raise WithheldError(f"user {caller.uid} may not read all of {source}, and so may not copy it")
        if not self._may_create(zone, target, caller):
            raise WithheldError(f"user {caller.uid} may not create {target}")

    def _may_read(self, zone: str, source: str, caller: Caller) -> bool:
        """Say whether all that this node has there may be read. What only the store has is all alike (``ObjectRights``)."""
        top = self._place(zone, source)
        if not (self._rights.may_list(top, caller) and self._rights.may_access(top, b"metadata", READ, caller)):
            return False
        for path, stat in self._tree.walk(top.path, directories=True):
            parent, _, name = path.rpartition(b"/")
            if stat_module.S_ISDIR(stat.st_mode):
                may = self._rights.may_list(ZonePath(top.zone, path), caller)
            else:
                may = self._rights.may_access(ZonePath(top.zone, parent), name, READ, caller)
            if not may:
                return False
        return True

    def _may_create(self, zone: str, target: str, caller: Caller) -> bool:
        parent, _, name = target.rpartition("/")
        above, place = self._place(zone, parent), self._place(zone, target)
        is_free = self._rights.may_put(above, os.fsencode(name), caller)
        return is_free and self._rights.may_put(place, b"metadata", caller)

    def _place(self, zone: str, key: str) -> ZonePath:
        place = self._zones.place_of(os.fsencode(f"{zone}/{key}".rstrip("/")))
        assert place is not None
        return place
