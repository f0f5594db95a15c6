"""The routes, and the two sockets that serve them.

``control.sock`` (0660, of the control group) allows changes and shows file names. ``status.sock`` beside it (0666) tells
everybody the daemon's state, but nothing that others do: of the stores those whose zones the caller may search, of the
working directories the caller's own, and no names of files or objects. Rights are the file modes of the sockets, and on
``status.sock`` the user that the kernel names (``callers``).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from holdfast.config import Reloaded, TcpAddress
from holdfast.control.actions import Actions
from holdfast.control.admission import Caps
from holdfast.control.batches import BatchRoutes
from holdfast.control.callers import Caller
from holdfast.control.holdings import HoldingsRoutes
from holdfast.control.http_connection import CALLER, Bounds
from holdfast.control.http_server import HttpServer, Terms
from holdfast.control.inspect import Inspector
from holdfast.control.listeners import listening
from holdfast.control.messages import (
    AcquireRequest,
    DrainRequest,
    EntryInfo,
    EntryPage,
    EventInfo,
    Explanation,
    FlushRequest,
    Message,
    PathRequest,
    Progress,
    PublicStatus,
    ReleaseRequest,
    ReloadInfo,
    Status,
    WorkdirInfo,
)
from holdfast.control.metrics_listener import MetricsListener
from holdfast.control.observing import ObservingRoutes
from holdfast.control.operations import Operation, openapi, routes
from holdfast.control.replies import (
    LARGEST_PAGE,
    body,
    guarded,
    no_such_route,
    number,
    page_size,
    reply,
    required_path,
    stream,
)
from holdfast.control.restoring import RestoreRoutes
from holdfast.control.status import StatusReport
from holdfast.control.surveys import SurveyRoutes
from holdfast.control.sweeping import SweepRoutes
from holdfast.control.turns import Turns
from holdfast.errors import ConfigurationError, WithheldError
from holdfast.telemetry import Event, EventLog
from holdfast.telemetry.metrics import CONTENT_TYPE
from holdfast.workdirs import Workdirs

_PAGE = {"after": "string", "limit": "number"}
_ON_CONTROL = Terms(
    "control.sock",
    Caps(total=128, each_user=64, for_root=32),
    Bounds(stall_seconds=300.0, body_seconds=600.0),  # a plan made elsewhere is large
)
_ON_STATUS = Terms(
    "status.sock",
    Caps(total=64, each_user=16, for_root=16),
    Bounds(stall_seconds=10.0),
    pause_seconds=0.001,
)


class Restartable(Protocol):
    """The daemon, as far as it can be replaced under its mount."""

    def check_restart(self) -> None:
        """Raise ``NotRestartableError`` if it can't be restarted."""

    def restart(self) -> None:
        """End soon; another daemon follows."""


class ControlServer:
    """Serves the control sockets until cancelled. ``page`` has the files of the page for browsers, for everybody."""

    def __init__(
        self,
        report: StatusReport,
        inspector: Inspector,
        actions: Actions,
        workdirs: Workdirs,
        sweeps: SweepRoutes,
        restores: RestoreRoutes,
        surveys: SurveyRoutes,
        holdings: HoldingsRoutes,
        observing: ObservingRoutes,
        batches: BatchRoutes,
        daemon: Restartable,
        reload: Callable[[], Reloaded],
        events: EventLog,
        page: Sequence[Route],
    ) -> None:
        self._page = page
        self._report = report
        self._inspector = inspector
        self._daemon = daemon
        self._reload_now = reload
        self._actions = actions
        self._workdirs = workdirs
        self._sweeps = sweeps
        self._surveys = surveys
        self._holdings = holdings
        self._restores = restores
        self._observing = observing
        self._batches = batches
        self._events = events

    async def run(
        self,
        control_socket: Path,
        group: str,
        metrics: TcpAddress,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve on ``control_socket`` and on ``status.sock`` beside it; the metrics also on ``metrics``, unless empty.

        Started once both sockets accept connections.

        Raises ``ConfigurationError``, and ``StoreInUseError`` if another daemon answers there.
        """
        status_socket = control_socket.with_name("status.sock")
        with listening(control_socket, 0o660, group) as control, listening(status_socket, 0o666, group) as status:
            everything, public = self._operations(), self._public_operations()
            withheld = Route("/{anything:path}", guarded(self._withheld), methods=["GET", "POST"])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._surveys.run)
                nursery.start_soon(MetricsListener(metrics, Turns().in_turn(self._observing.page), self._events).run)
                for served, listener, terms in (
                    ([*routes(everything), *self._page], control, _ON_CONTROL),
                    ([*routes(public), *self._page, withheld], status, _ON_STATUS),
                ):
                    nursery.start_soon(HttpServer(_application(served), listener, terms, self._events).run)
                task_status.started()

    def _public_operations(self) -> dict[str, Operation]:
        turns = Turns()
        operations = {
            "/v1/status": Operation(turns.in_turn(self._public_status), PublicStatus),
            "/v1/workdirs": Operation(turns.in_turn(self._own_workdirs), list[WorkdirInfo], _PAGE),
            "/metrics": Operation(turns.in_turn(self._observing.public_page), str, content=CONTENT_TYPE),
        }
        return _with_description(operations)

    def _operations(self) -> dict[str, Operation]:
        path = {"path": "string"}
        page = {**path, "after": "string", "limit": "number"}
        operations = {
            "/v1/status": Operation(self._status, Status),
            "/v1/workdirs": Operation(self._list_workdirs, list[WorkdirInfo], _PAGE),
            "/v1/entries": Operation(self._entries, EntryPage, page, ("path",)),
            "/v1/entry": Operation(self._entry, EntryInfo, path, ("path",)),
            "/v1/why": Operation(self._why, Explanation, path, ("path",)),
            "/v1/events": Operation(self._list_events, list[EventInfo], {"since": "number", "limit": "number"}),
            "/v1/workdirs/acquire": Operation(self._acquire, WorkdirInfo, body=AcquireRequest),
            "/v1/workdirs/release": Operation(self._release, WorkdirInfo, body=ReleaseRequest),
            "/v1/verify": Operation(self._verify, Progress, body=PathRequest, streams=True),
            "/v1/prefetch": Operation(self._prefetch, Progress, body=PathRequest, streams=True),
            "/v1/evict": Operation(self._evict, Progress, body=PathRequest, streams=True),
            "/v1/flush": Operation(self._flush, Progress, body=FlushRequest, streams=True),
            "/v1/drain": Operation(self._drain, Progress, body=DrainRequest, streams=True),
            "/v1/pin": Operation(self._pin, dict[str, str], body=PathRequest),
            "/v1/unpin": Operation(self._unpin, dict[str, str], body=PathRequest),
            **self._observing.operations,
            **self._batches.operations,
            **self._sweeps.operations,
            **self._surveys.operations,
            **self._holdings.operations,
            **self._restores.operations,
            "/v1/config/reload": Operation(self._reload, ReloadInfo, body=Message),
            "/v1/restart": Operation(self._restart, Status, body=Message),
        }
        return _with_description(operations)

    async def _withheld(self, request: Request) -> Response:
        raise WithheldError(
            f"{request.url.path} is not for everybody, because it names files: ask on control.sock, as root or as a member "
            "of its group"
        )

    async def _public_status(self, request: Request) -> Response:
        return reply(self._report.public_status(request.scope[CALLER]))

    async def _own_workdirs(self, request: Request) -> Response:
        caller = request.scope[CALLER]
        return await self._page_of_workdirs(request, None if caller.is_root else caller.uid)

    async def _status(self, request: Request) -> Response:
        del request
        return reply(await self._report.status())

    async def _restart(self, request: Request) -> Response:
        await body(request, Message)
        self._daemon.check_restart()
        status = await self._report.status()
        return reply(status, then=self._daemon.restart)

    async def _reload(self, request: Request) -> Response:
        if not request.scope[CALLER].is_root:
            raise WithheldError("only root may reload the configuration")
        await body(request, Message)
        found = self._reload_now()
        return reply(ReloadInfo(taken=found.taken, needs_restart=found.left))

    async def _list_workdirs(self, request: Request) -> Response:
        return await self._page_of_workdirs(request, None)

    async def _page_of_workdirs(self, request: Request, owner: int | None) -> Response:
        after = request.query_params.get("after", "")
        return reply(await self._report.workdirs(after, page_size(request, LARGEST_PAGE), owner))

    async def _entries(self, request: Request) -> Response:
        after = request.query_params.get("after", "")
        return reply(await self._inspector.page(required_path(request), after, page_size(request, 200)))

    async def _entry(self, request: Request) -> Response:
        return reply(await self._inspector.entry(required_path(request)))

    async def _why(self, request: Request) -> Response:
        return reply(await self._inspector.why(required_path(request)))

    async def _list_events(self, request: Request) -> Response:
        since = number(request.query_params.get("since", "0"), "since")
        if "text/event-stream" in request.headers.get("accept", ""):
            return StreamingResponse(self._event_stream(since), media_type="text/event-stream")
        return reply([_event(event) for event in self._events.since(since, page_size(request, LARGEST_PAGE))])

    async def _event_stream(self, since: int) -> AsyncIterator[bytes]:
        while True:
            for event in self._events.since(since, LARGEST_PAGE):
                since = event.number
                yield b"id: %d\ndata: %s\n\n" % (event.number, msgspec.json.encode(_event(event)))
            await self._events.wait_beyond(since)

    async def _acquire(self, request: Request) -> Response:
        wanted = await body(request, AcquireRequest)
        caller = request.scope[CALLER]
        owner = _owner_for(caller, wanted)
        workdir = await self._workdirs.acquire(
            wanted.role, wanted.id, wanted.pid, owner, caller.uid, wanted.pid_namespace, adopts=wanted.adopt
        )
        return reply(self._report.workdir(workdir))

    async def _release(self, request: Request) -> Response:
        wanted = await body(request, ReleaseRequest)
        caller = request.scope[CALLER]
        if not caller.is_root and caller.uid != self._workdirs.owner(wanted.role, wanted.id):
            raise WithheldError("only root may release a working directory of another user")
        return reply(self._report.workdir(self._workdirs.release(wanted.role, wanted.id)))

    async def _verify(self, request: Request) -> Response:
        return await stream(self._actions.verify((await body(request, PathRequest)).path))

    async def _prefetch(self, request: Request) -> Response:
        return await stream(self._actions.prefetch(await _required_path(request)))

    async def _evict(self, request: Request) -> Response:
        return await stream(self._actions.evict(await _required_path(request)))

    async def _flush(self, request: Request) -> Response:
        wanted = await body(request, FlushRequest)
        return await stream(self._actions.flush(wanted.path, wanted.timeout_seconds))

    async def _drain(self, request: Request) -> Response:
        wanted = await body(request, DrainRequest)
        if not request.scope[CALLER].is_root:
            raise WithheldError("only root may drain a node")
        if wanted.undo:
            self._actions.end_drain()
            return await stream(_nothing_more())
        return await stream(self._actions.drain(wanted.timeout_seconds))

    async def _pin(self, request: Request) -> Response:
        await self._actions.pin(await _required_path(request))
        return reply({})

    async def _unpin(self, request: Request) -> Response:
        path = await _required_path(request)
        if not await self._actions.unpin(path):
            raise ConfigurationError(f"{path} is not pinned")
        return reply({})


async def _nothing_more() -> AsyncIterator[Progress]:
    yield Progress(done=0, total=0, bytes_done=0, finished=True)


def _application(served: list[Route]) -> Starlette:
    return Starlette(routes=served, exception_handlers={HTTPException: no_such_route})


def _with_description(operations: dict[str, Operation]) -> dict[str, Operation]:
    """Return ``operations`` and one that describes them all."""
    document = openapi(operations)

    async def described(request: Request) -> Response:
        del request
        return reply(document)

    return {**operations, "/v1/openapi.json": Operation(described, dict[str, Any])}


async def _required_path(request: Request) -> str:
    path = (await body(request, PathRequest)).path
    if path is None:
        raise ConfigurationError("the request's body: Object missing required field `path`")
    return path


def _owner_for(caller: Caller, wanted: AcquireRequest) -> tuple[int, int]:
    """Return uid and gid of a new working directory: of the caller, if that is not root. Raises ``WithheldError``."""
    if caller.is_root:
        return wanted.uid, wanted.gid
    if wanted.adopt:
        raise WithheldError("only root may adopt a working directory of another user")
    if wanted.uid not in (-1, caller.uid) or wanted.gid not in (-1, caller.gid, *caller.groups):
        raise WithheldError("only root may acquire a working directory for another user")
    return caller.uid, caller.gid if wanted.gid == -1 else wanted.gid


def _event(event: Event) -> EventInfo:
    return EventInfo(number=event.number, time=event.time, kind=event.kind, fields=event.fields)
