"""The daemon itself through the control sockets: its status, its configuration, and its restart."""

from __future__ import annotations

from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response

from holdfast.config import Reloaded
from holdfast.control.http_connection import CALLER
from holdfast.control.messages import Message, PublicStatus, ReloadInfo, Status
from holdfast.control.operations import Operation, RouteGroup
from holdfast.control.replies import body, reply
from holdfast.control.status import StatusReport
from holdfast.errors import WithheldError


class Restartable(Protocol):
    """The daemon, as far as it can be replaced under its mount."""

    async def check_restart(self) -> None:
        """Raise ``NotRestartableError`` if it can't be restarted, ``ConfigurationError`` if the next one would not start."""

    def restart(self) -> None:
        """End soon; another daemon follows."""


class Reloading(Protocol):
    """The configuration of the daemon, read again. Both raise ``HoldfastError`` if a daemon could not start with it."""

    async def now(self) -> Reloaded:
        """Put in force what can be."""

    async def compared(self) -> Reloaded:
        """Return what ``now`` would do, and change nothing."""


class DaemonRoutes(RouteGroup):
    """The routes by path."""

    def __init__(self, report: StatusReport, daemon: Restartable, configuration: Reloading) -> None:
        self._report = report
        self._daemon = daemon
        self._configuration = configuration
        self.operations = {
            "/v1/status": Operation(self._status, Status),
            "/v1/config/check": Operation(self._check, ReloadInfo),
            "/v1/config/reload": Operation(self._reload, ReloadInfo, body=Message),
            "/v1/restart": Operation(self._restart, Status, body=Message),
        }
        self.public = {"/v1/status": Operation(self._public_status, PublicStatus)}

    async def _public_status(self, request: Request) -> Response:
        return reply(self._report.public_status(request.scope[CALLER]))

    async def _status(self, request: Request) -> Response:
        del request
        return reply(await self._report.status())

    async def _restart(self, request: Request) -> Response:
        await body(request, Message)
        await self._daemon.check_restart()
        status = await self._report.status()
        return reply(status, then=self._daemon.restart)

    async def _reload(self, request: Request) -> Response:
        if not request.scope[CALLER].is_root:
            raise WithheldError("only root may reload the configuration")
        await body(request, Message)
        return _compared(await self._configuration.now())

    async def _check(self, request: Request) -> Response:
        del request
        return _compared(await self._configuration.compared())


def _compared(found: Reloaded) -> Response:
    return reply(ReloadInfo(taken=found.taken, needs_restart=found.left))
