"""Requests passed on to the daemon's control socket, with the rights of this process."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import httpx
import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from holdfast.control.messages import Failure
from holdfast.control.replies import content
from holdfast.errors import DaemonUnreachableError
from holdfast.ui.page import HEADERS, PLACE

_KEPT_SECONDS = 2.0  # less than the daemon keeps an idle connection
_MOST_BODY_BYTES = 65_536
_PASSED_ON = ("accept", "content-type")
_OF_A_CONNECTION = {"connection", "keep-alive", "transfer-encoding"}
_WAITING = b"""<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="2; url=./">
<title>Holdfast</title><h1>No daemon answers</h1><p>This page tries again every two seconds.</p></html>
"""


class Forwarder:
    """An ASGI application that asks the daemon behind ``socket``."""

    def __init__(self, socket: Path) -> None:
        limits = httpx.Limits(keepalive_expiry=_KEPT_SECONDS)
        transport = httpx.AsyncHTTPTransport(uds=str(socket), verify=False, limits=limits)
        self._http = httpx.AsyncClient(transport=transport, base_url="http://holdfast", timeout=None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and its answer back, part by part. An answer that breaks off ends early."""
        request = Request(scope, receive)
        target = scope["raw_path"].decode("ascii")
        if scope["query_string"]:
            target += "?" + scope["query_string"].decode("ascii", "replace")
        body = await content(request, _MOST_BODY_BYTES) if request.method == "POST" else None
        headers = {name: value for name in _PASSED_ON if (value := request.headers.get(name)) is not None}
        # As it came: httpx would take "/ui/../v1/x" for "/v1/x", past whoever has judged the path (ui.tcp).
        extensions = {"target": target.encode()}
        wanted = self._http.build_request(request.method, "/", headers=headers, content=body, extensions=extensions)
        try:
            answer = await self._http.send(wanted, stream=True)
        except httpx.TransportError:
            await _unavailable(scope["path"])(scope, receive, send)
            return
        try:
            passed = {name: value for name, value in answer.headers.items() if name not in _OF_A_CONNECTION}
            response = StreamingResponse(_parts(answer), answer.status_code, {**HEADERS, **passed})
            await response(scope, receive, send)
        finally:
            await answer.aclose()


async def _parts(answer: httpx.Response) -> AsyncIterator[bytes]:
    with suppress(httpx.TransportError):  # the daemon has ended; who reads a stream misses its last line
        async for part in answer.aiter_raw():
            yield part


def _unavailable(path: str) -> Response:
    if path == PLACE:
        return Response(_WAITING, 503, HEADERS, "text/html")
    code = DaemonUnreachableError.code
    refusal = Failure(code=code, errno=errno.ECONNREFUSED, message="no daemon answers; it may be starting again")
    return Response(msgspec.json.encode(refusal), 503, HEADERS, "application/json")
