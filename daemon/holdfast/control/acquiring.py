"""Working directories through the control sockets: listing, acquiring and releasing them, as far as the caller may."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from holdfast.control.callers import Caller
from holdfast.control.http_connection import CALLER
from holdfast.control.messages import AcquireRequest, ReleaseRequest, WorkdirInfo
from holdfast.control.operations import PAGE, Operation, RouteGroup
from holdfast.control.replies import LARGEST_PAGE, body, page_size, reply
from holdfast.control.status import StatusReport
from holdfast.errors import WithheldError
from holdfast.workdirs import Volume, Workdirs, is_own_namespace


class WorkdirRoutes(RouteGroup):
    """The routes by path."""

    def __init__(self, report: StatusReport, workdirs: Workdirs) -> None:
        self._report = report
        self._workdirs = workdirs
        self.for_pods = {
            "/v1/workdirs/acquire": Operation(self._acquire, WorkdirInfo, body=AcquireRequest),
            "/v1/workdirs/release": Operation(self._release, WorkdirInfo, body=ReleaseRequest),
        }
        self.operations = {"/v1/workdirs": Operation(self._list, list[WorkdirInfo], PAGE), **self.for_pods}
        self.public = {"/v1/workdirs": Operation(self._own, list[WorkdirInfo], PAGE)}

    async def _own(self, request: Request) -> Response:
        """Reply with a page of the caller's working directories; with all of them to root."""
        caller: Caller = request.scope[CALLER]
        return await self._page(request, None if caller.is_root else caller.uid)

    async def _list(self, request: Request) -> Response:
        return await self._page(request, None)

    async def _page(self, request: Request, owner: int | None) -> Response:
        after = request.query_params.get("after", "")
        return reply(await self._report.workdirs(after, page_size(request, LARGEST_PAGE), owner))

    async def _acquire(self, request: Request) -> Response:
        wanted = await body(request, AcquireRequest)
        caller = request.scope[CALLER]
        owner = _owner_for(caller, wanted)
        if caller.is_in_pod and not wanted.volume and is_own_namespace(wanted.pid_namespace):
            raise WithheldError("a pod acquires working directories for its own processes, and not for the node's")
        if wanted.volume:
            if not caller.is_root:
                raise WithheldError("only root may acquire a working directory for a volume")
            held = await self._workdirs.acquire_for_volume(wanted.role, wanted.id, Volume(wanted.volume, wanted.pod), owner)
            return reply(self._report.workdir(held))
        workdir = await self._workdirs.acquire(
            wanted.role,
            wanted.id,
            wanted.pid,
            owner,
            None if caller.is_root else caller.uid,
            wanted.pid_namespace,
            adopts=wanted.adopt,
        )
        return reply(self._report.workdir(workdir))

    async def _release(self, request: Request) -> Response:
        wanted = await body(request, ReleaseRequest)
        caller = request.scope[CALLER]
        if not caller.is_root and caller.uid != self._workdirs.owner(wanted.role, wanted.id):
            raise WithheldError("only root may release a working directory of another user")
        return reply(self._report.workdir(self._workdirs.release(wanted.role, wanted.id, wanted.volume)))


def _owner_for(caller: Caller, wanted: AcquireRequest) -> tuple[int, int]:
    """Return uid and gid of a new working directory: of the caller, if that is not root. Raises ``WithheldError``."""
    if caller.is_root:
        return wanted.uid, wanted.gid
    if wanted.adopt:
        raise WithheldError("only root may adopt a working directory of another user")
    if wanted.uid not in (-1, caller.uid) or wanted.gid not in (-1, caller.gid, *caller.groups):
        raise WithheldError("only root may acquire a working directory for another user")
    return caller.uid, caller.gid if wanted.gid == -1 else wanted.gid
