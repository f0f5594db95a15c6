"""The sockets, and which routes each of them serves.

``control.sock`` (0660, of the control group) allows changes and shows file names. ``status.sock`` beside it (0666) tells
everybody the daemon's state, but nothing that others do: of the stores those whose zones the caller may search, of the
working directories the caller's own, and no names of files or objects. ``pods.sock`` (0666), if there is one, is for pods:
there a user also acquires working directories, reports batches, and asks who holds a query's state; root is a user like any
other. Rights are the file modes of the sockets, and on these two the user that the kernel names (``callers``).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.config import TcpAddress
from holdfast.control.doors import Door, PodsDoor, door_of
from holdfast.control.http_connection import Bounds
from holdfast.control.http_server import Caps, HttpServer, Terms
from holdfast.control.listeners import listening
from holdfast.control.messages import Message
from holdfast.control.metrics_listener import MetricsListener
from holdfast.control.operations import Operation, RouteGroup, openapi, routes
from holdfast.control.replies import Handler, body, guarded, no_such_route, reply
from holdfast.errors import HoldfastError, WithheldError
from holdfast.telemetry import EventLog

_ON_CONTROL = Terms(
    "control.sock",
    Caps(total=128, each_user=64, for_root=32),
    Bounds(stall_seconds=300.0, body_seconds=600.0),  # a plan made elsewhere is large
)
_ON_STATUS = Terms("status.sock", Caps(total=64, each_user=16, for_root=16), Bounds(stall_seconds=10.0), pause_seconds=0.001)
_ON_PODS = Terms("pods.sock", Caps(total=128, each_user=16, for_root=16), Bounds(stall_seconds=10.0), pause_seconds=0.001)
_SHORTEST_PAUSE_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class ControlServer:
    """Serves ``groups`` and ``page``, the files of the page for browsers, on the control sockets until cancelled.

    ``metrics`` replies with all metrics.
    """

    groups: Sequence[RouteGroup]
    page: Sequence[Route]
    metrics: Handler
    events: EventLog

    async def run(
        self,
        control_socket: Path,
        group: str,
        listen: TcpAddress,
        pods_socket: str = "",
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve on ``control_socket``, ``status.sock`` beside it, and ``pods_socket``; the metrics also on ``listen``.

        The last two may be empty. Started once the sockets accept connections.

        Raises ``ConfigurationError``, and ``StoreInUseError`` if another daemon answers there.
        """
        status_socket = control_socket.with_name("status.sock")
        with ExitStack() as sockets:
            control = sockets.enter_context(listening(control_socket, 0o660, group))
            status = sockets.enter_context(listening(status_socket, 0o666, group))
            pods = sockets.enter_context(listening(Path(pods_socket), 0o666, group)) if pods_socket else None
            everything, public = self._operations(), self._public_operations()
            withheld = Route("/{anything:path}", guarded(self._withheld), methods=["GET", "POST"])
            async with trio.open_nursery() as nursery:
                for each in self.groups:
                    nursery.start_soon(each.run)
                nursery.start_soon(MetricsListener(listen, Turns().in_turn(self.metrics), self.events).run)
                for served, listener, terms in (
                    ([*routes(everything), *self.page], control, _ON_CONTROL),
                    ([*routes(public), *self.page, withheld], status, _ON_STATUS),
                ):
                    door: Door = door_of(listener, terms.name)
                    nursery.start_soon(HttpServer(_application(served), door, terms, self.events).run)
                if pods is not None:
                    application = _application([*routes(self._operations_of_pods()), withheld])
                    door = PodsDoor(door_of(pods, _ON_PODS.name))
                    nursery.start_soon(HttpServer(application, door, _ON_PODS, self.events).run)
                task_status.started()

    def _operations(self) -> dict[str, Operation]:
        return _with_description({path: each for group in self.groups for path, each in group.operations.items()})

    def _public_operations(self) -> dict[str, Operation]:
        turns = Turns()
        operations = {path: each for group in self.groups for path, each in group.public.items()}
        in_turn = {path: replace(each, handler=turns.in_turn(each.handler)) for path, each in operations.items()}
        return _with_description(in_turn)

    def _operations_of_pods(self) -> dict[str, Operation]:
        """Return them. They take no turns: a start of a query waits for what others hold, 0.9 s at most."""
        operations = {path: each for group in self.groups for path, each in group.for_pods.items()}
        operations |= self._public_operations()
        del operations["/metrics"], operations["/v1/openapi.json"]
        return _with_description(operations)

    async def _withheld(self, request: Request) -> Response:
        with suppress(HoldfastError):
            await body(request, Message)  # a client that asks on would find the connection closed over an unread one
        raise WithheldError(
            f"{request.url.path} is not for everybody, because it names files: ask on control.sock, as root or as a member "
            "of its group"
        )


def _application(served: list[Route]) -> Starlette:
    return Starlette(routes=served, exception_handlers={HTTPException: no_such_route})


def _with_description(operations: dict[str, Operation]) -> dict[str, Operation]:
    """Return ``operations`` and one that describes them all."""
    document = openapi(operations)

    async def described(request: Request) -> Response:
        del request
        return reply(document)

    return {**operations, "/v1/openapi.json": Operation(described, dict[str, Any])}


class Turns:
    """Takes the requests of a socket that is open to everybody one after the other, with pauses.

    So all of them together take a tenth of the event loop's time at most, however many there are.
    """

    def __init__(self) -> None:
        self._lock = trio.Lock()  # fair: first come, first served

    def in_turn(self, handler: Handler) -> Handler:
        """Return ``handler`` with its requests taken in turn."""

        async def answer(request: Request) -> Response:
            async with self._lock:
                began = trio.current_time()
                response = await handler(request)
                await trio.sleep(max(_SHORTEST_PAUSE_SECONDS, 9 * (trio.current_time() - began)))
                return response

        return answer
