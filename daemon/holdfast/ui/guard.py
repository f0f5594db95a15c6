"""The guard of the page over TCP: only those may use the page who have its address, which has a secret in it.

Anybody on the machine can connect to a port of the loopback interface, and so can every page that a browser shows. So each
request is refused that

- does not have the token at the beginning of its path (a cookie would go to other ports of the machine too),
- names another host than ours: then the name of an attacker's page was made to lead here (DNS rebinding),
- comes from a page of another origin, as far as the browser says so.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

_NOTHING = "There is nothing here. The address of the page is what 'holdfast ui' prints.\n"


class Guard:
    """An ASGI application: ``app`` for those who have the ``token``. ``is_ours`` judges the host of a request."""

    def __init__(self, app: ASGIApp, token: str, is_ours: Callable[[str], bool]) -> None:
        self._app = app
        self._prefix = f"/{token}"
        self._is_ours = is_ours

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, with the token taken off its path."""
        refusal = self._refusal(Request(scope))
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        skip = len(self._prefix)
        inner = {**scope, "path": scope["path"][skip:], "raw_path": scope["raw_path"][skip:]}
        await self._app(inner, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        token, slash, _ = request.scope["raw_path"][1:].partition(b"/")
        if not slash or not hmac.compare_digest(b"/" + token, self._prefix.encode()):
            return PlainTextResponse(_NOTHING, 404)
        host = request.headers.get("host", "")
        if not self._is_ours(host):
            return PlainTextResponse(f"This is not {host[:100]!a}.\n", 403)
        origin = request.headers.get("origin", f"http://{host}")
        opens_page = request.headers.get("sec-fetch-mode") == "navigate" and request.method == "GET"
        is_foreign = request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
        if origin != f"http://{host}" or (is_foreign and not opens_page):
            return PlainTextResponse("Another page may not ask here.\n", 403)
        return None
