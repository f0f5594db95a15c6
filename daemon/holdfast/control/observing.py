"""Watching the daemon at work: the page of metrics, and the kernel's requests as they are answered.

The page is for whoever may use ``control.sock``; others get what tells nothing of what users do. The requests name files,
and are only on ``control.sock``.
"""

from __future__ import annotations

import errno
import grp
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

import trio
from starlette.requests import Request
from starlette.responses import Response

from holdfast.control.callers import Caller
from holdfast.control.http_connection import CALLER
from holdfast.control.messages import OperationInfo, OperationsInfo
from holdfast.control.metrics import MetricsReport
from holdfast.control.operations import Operation, RouteGroup
from holdfast.control.paths import Paths
from holdfast.control.replies import STREAM, number, reply, stream
from holdfast.control.status import StatusReport
from holdfast.telemetry import Observed, OperationFeed
from holdfast.telemetry.metrics import CONTENT_TYPE
from holdfast.zones import is_at_or_below

_BATCH_SECONDS = 0.1
_QUIET_SECONDS = 1.0
_US = 1000
_NS = 1_000_000_000


class ObservingRoutes(RouteGroup):
    """The routes by path. ``group`` is the group that may use the control socket."""

    def __init__(self, metrics: MetricsReport, feed: OperationFeed, report: StatusReport, paths: Paths, group: str) -> None:
        self._metrics = metrics
        self._feed = feed
        self._report = report
        self._paths = paths
        self._trusted_group = _gid_of(group)
        self.operations = {
            "/metrics": Operation(self.page, str, content=CONTENT_TYPE),
            "/v1/operations": Operation(self._operations, OperationsInfo, {"path": "string", "min_microseconds": "number"}),
        }
        self.public = {"/metrics": Operation(self._public_page, str, content=CONTENT_TYPE)}

    async def page(self, request: Request) -> Response:
        """Reply with all metrics."""
        del request
        return Response(await self._metrics.page(), media_type=CONTENT_TYPE)

    async def _public_page(self, request: Request) -> Response:
        """Reply with all metrics to whoever may use the control socket; with those for everybody to others."""
        caller: Caller = request.scope[CALLER]
        if self._is_trusted(caller):
            return await self.page(request)
        shown = self._metrics.public_page(lambda zone: self._report.may_search(caller, zone))
        return Response(shown, media_type=CONTENT_TYPE)

    def _is_trusted(self, caller: Caller) -> bool:
        if caller.is_root or caller.uid == os.geteuid():
            return True
        return self._trusted_group is not None and self._trusted_group in (caller.gid, *caller.groups)

    async def _operations(self, request: Request) -> Response:
        path = request.query_params.get("path")
        below = self._paths.relative(path) if path is not None else b""
        least_ns = number(request.query_params.get("min_microseconds", "0"), "min_microseconds") * _US
        observed = self._observed(below, least_ns)
        if STREAM in request.headers.get("accept", ""):
            return await stream(observed)
        async with aclosing(observed):
            await anext(observed)
            return reply(await anext(observed))

    async def _observed(self, below: bytes, least_ns: int) -> AsyncGenerator[OperationsInfo, None]:
        """Yield what is observed, at once, after a tenth of a second, and then at least each second."""
        with self._feed.watched() as more:
            yield OperationsInfo(operations=[], lost=0)
            is_first, quiet_until = True, trio.current_time() + _QUIET_SECONDS
            while True:
                await trio.sleep(_BATCH_SECONDS)
                lost, found = more()
                shown = [
                    self._info(each)
                    for each in found
                    if each.duration_ns >= least_ns
                    and (is_at_or_below(each.path, below) or is_at_or_below(each.target, below))
                ]
                if shown or lost or is_first or trio.current_time() >= quiet_until:
                    is_first = False
                    quiet_until = trio.current_time() + _QUIET_SECONDS
                    yield OperationsInfo(operations=shown, lost=lost)

    def _info(self, each: Observed) -> OperationInfo:
        cache = ("miss" if each.notes.is_miss else "hit") if each.is_object else ""
        return OperationInfo(
            time=each.time_ns / _NS,
            operation=each.operation,
            zone=each.zone,
            path=self._paths.absolute(each.path),
            target=self._paths.absolute(each.target) if each.target else "",
            pid=each.pid,
            uid=each.uid,
            seconds=each.duration_ns / _NS,
            error=errno.errorcode.get(each.errno, str(each.errno)) if each.errno else "",
            cache=cache,
            data_bytes=each.data_bytes,
            fetched_bytes=each.notes.fetched_bytes,
            store_requests=each.notes.store_requests,
            store_seconds=each.notes.store_seconds,
        )


def _gid_of(group: str) -> int | None:
    with suppress(KeyError):
        if os.geteuid() == 0:  # else the socket has the group of the daemon's user
            return grp.getgrnam(group).gr_gid
    return None
