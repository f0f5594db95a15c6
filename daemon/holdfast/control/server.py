"""The routes, and the two sockets that serve them.

``control.sock`` (0660, of the control group) allows changes and shows file names. ``status.sock`` beside it (0666) tells
everybody the daemon's state, but no names of files or objects, which its users may have no right to list. Rights are the
file modes of the sockets: nothing is checked per request, because a request does not say who sent it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec
import trio
from hypercorn.config import Config as HypercornConfig
from hypercorn.trio import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from holdfast.control.actions import Actions
from holdfast.control.inspect import Inspector
from holdfast.control.listeners import listening
from holdfast.control.messages import AcquireRequest, EventInfo, PathRequest, ReleaseRequest
from holdfast.control.replies import body, guarded, number, reply, required_path, stream
from holdfast.control.status import StatusReport
from holdfast.control.sweeping import SweepRoutes
from holdfast.errors import ConfigurationError, WithheldError
from holdfast.telemetry import Event, EventLog
from holdfast.workdirs import Workdirs

_LARGEST_PAGE = 1000


class Restartable(Protocol):
    """The daemon, as far as it can be replaced under its mount."""

    def check_restart(self) -> None:
        """Raise ``NotRestartableError`` if it can't be restarted."""

    def restart(self) -> None:
        """End soon; another daemon follows."""


class ControlServer:
    """Serves the control sockets until cancelled."""

    def __init__(
        self,
        report: StatusReport,
        inspector: Inspector,
        actions: Actions,
        workdirs: Workdirs,
        sweeps: SweepRoutes,
        daemon: Restartable,
        events: EventLog,
    ) -> None:
        self._report = report
        self._inspector = inspector
        self._daemon = daemon
        self._actions = actions
        self._workdirs = workdirs
        self._sweeps = sweeps
        self._events = events

    async def run(
        self, control_socket: Path, group: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve on ``control_socket`` and on ``status.sock`` beside it. Started once both accept connections.

        Raises ``ConfigurationError``, and ``StoreInUseError`` if another daemon answers there.
        """
        status_socket = control_socket.with_name("status.sock")
        with listening(control_socket, 0o660, group) as control, listening(status_socket, 0o666, group) as status:
            async with trio.open_nursery() as nursery:
                for routes, listener in ((self._all_routes(), control), (self._public_routes(), status)):
                    config = HypercornConfig()
                    config.bind = [f"fd://{os.dup(listener.fileno())}"]
                    config.loglevel = "WARNING"
                    config.graceful_timeout = 1.0
                    await nursery.start(_serve, Starlette(routes=routes), config)
                task_status.started()

    def _public_routes(self) -> list[Route]:
        served = [
            Route("/v1/status", guarded(self._public_status)),
            Route("/v1/workdirs", guarded(self._list_workdirs)),
        ]
        return [*served, Route("/{anything:path}", guarded(self._withheld), methods=["GET", "POST"])]

    def _all_routes(self) -> list[Route]:
        reading = {
            "/v1/status": self._status,
            "/v1/workdirs": self._list_workdirs,
            "/v1/entries": self._entries,
            "/v1/entry": self._entry,
            "/v1/why": self._why,
            "/v1/events": self._list_events,
            **self._sweeps.reading,
        }
        changing = {
            "/v1/workdirs/acquire": self._acquire,
            "/v1/workdirs/release": self._release,
            "/v1/verify": self._verify,
            "/v1/prefetch": self._prefetch,
            "/v1/evict": self._evict,
            "/v1/pin": self._pin,
            "/v1/unpin": self._unpin,
            **self._sweeps.changing,
            "/v1/restart": self._restart,
        }
        return [
            *(Route(path, guarded(handler)) for path, handler in reading.items()),
            *(Route(path, guarded(handler), methods=["POST"]) for path, handler in changing.items()),
        ]

    async def _withheld(self, request: Request) -> Response:
        raise WithheldError(
            f"{request.url.path} is not for everybody, because it names files: ask on control.sock, as root or as a member "
            "of its group"
        )

    async def _public_status(self, request: Request) -> Response:
        del request
        status = await self._report.status()
        remotes = {
            name: msgspec.structs.replace(remote, problem=remote.problem and "control.sock tells why")
            for name, remote in status.remotes.items()
        }
        return reply(msgspec.structs.replace(status, unsent=[], remotes=remotes))

    async def _status(self, request: Request) -> Response:
        del request
        return reply(await self._report.status())

    async def _restart(self, request: Request) -> Response:
        del request
        self._daemon.check_restart()
        status = await self._report.status()
        return reply(status, then=self._daemon.restart)

    async def _list_workdirs(self, request: Request) -> Response:
        del request
        return reply(self._report.workdirs())

    async def _entries(self, request: Request) -> Response:
        query = request.query_params
        limit = max(1, min(_LARGEST_PAGE, number(query.get("limit", "200"), "limit")))
        return reply(await self._inspector.page(required_path(request), query.get("after", ""), limit))

    async def _entry(self, request: Request) -> Response:
        return reply(await self._inspector.entry(required_path(request)))

    async def _why(self, request: Request) -> Response:
        return reply(await self._inspector.why(required_path(request)))

    async def _list_events(self, request: Request) -> Response:
        since = number(request.query_params.get("since", "0"), "since")
        if "text/event-stream" in request.headers.get("accept", ""):
            return StreamingResponse(self._event_stream(since), media_type="text/event-stream")
        return reply([_event(event) for event in self._events.since(since)])

    async def _event_stream(self, since: int) -> AsyncIterator[bytes]:
        while True:
            for event in self._events.since(since):
                since = event.number
                yield b"id: %d\ndata: %s\n\n" % (event.number, msgspec.json.encode(_event(event)))
            await self._events.wait_beyond(since)

    async def _acquire(self, request: Request) -> Response:
        wanted = await body(request, AcquireRequest)
        owner = (wanted.uid, wanted.gid)
        workdir = await self._workdirs.acquire(wanted.role, wanted.id, wanted.pid, owner, wanted.pid_namespace)
        return reply(self._report.workdir(workdir))

    async def _release(self, request: Request) -> Response:
        wanted = await body(request, ReleaseRequest)
        return reply(self._report.workdir(self._workdirs.release(wanted.role, wanted.id)))

    async def _verify(self, request: Request) -> Response:
        return await stream(self._actions.verify((await body(request, PathRequest)).path))

    async def _prefetch(self, request: Request) -> Response:
        return await stream(self._actions.prefetch(await _required_path(request)))

    async def _evict(self, request: Request) -> Response:
        return await stream(self._actions.evict(await _required_path(request)))

    async def _pin(self, request: Request) -> Response:
        self._actions.pin(await _required_path(request))
        return reply({})

    async def _unpin(self, request: Request) -> Response:
        path = await _required_path(request)
        if not self._actions.unpin(path):
            raise ConfigurationError(f"{path} is not pinned")
        return reply({})


async def _serve(
    app: Starlette, config: HypercornConfig, *, task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED
) -> None:
    await serve(cast(Any, app), config, mode="asgi", task_status=task_status, shutdown_trigger=trio.sleep_forever)


async def _required_path(request: Request) -> str:
    path = (await body(request, PathRequest)).path
    if path is None:
        raise ConfigurationError("the request's body: Object missing required field `path`")
    return path


def _event(event: Event) -> EventInfo:
    return EventInfo(number=event.number, time=event.time, kind=event.kind, fields=event.fields)
