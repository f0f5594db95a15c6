"""The files of the page, as routes of a control socket. They name nothing of this node: what they show they ask for.

The page takes nothing from elsewhere, and a browser holds it to that: its Content-Security-Policy forbids other origins,
scripts and styles within the document, plug-ins, frames and text made into HTML.
"""

from __future__ import annotations

import mimetypes
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

PLACE = "/ui/"
_DOCUMENT = "index.html"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
"""The headers of all parts of the page. Without a referrer, its address, which has a token in it, stays here."""


def page_routes() -> list[Route]:
    """Return a route for each file of the page, and for ``/ui/`` itself. Reads the files."""
    found = _static(files("holdfast.ui") / "static", PLACE)
    return [_route(PLACE, found[PLACE + _DOCUMENT], _DOCUMENT), *(_route(path, each, path) for path, each in found.items())]


def _static(directory: Traversable, prefix: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for each in directory.iterdir():
        if each.is_dir():
            found |= _static(each, f"{prefix}{each.name}/")
        else:
            found[prefix + each.name] = each.read_bytes()
    return found


def _route(path: str, content: bytes, name: str) -> Route:
    kind = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0]

    async def answer(request: Request) -> Response:
        del request
        return Response(content, media_type=kind, headers=HEADERS)

    return Route(path, answer, methods=["GET"])
