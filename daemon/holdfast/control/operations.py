"""The table of a control socket's routes: each with its handler, its parameters, and the types of its request and reply.

The table is the source of the routes and of their description as an OpenAPI document, so that neither can lack what the
other has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import cleandoc
from types import MappingProxyType
from typing import Any

import msgspec
from starlette.routing import Route

from holdfast import __version__
from holdfast.control.messages import Failure
from holdfast.control.replies import Handler, guarded

_JSON = "application/json"
_SCHEMA_PLACE = "#/components/schemas/{name}"
_REFUSALS = {
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}
"""The statuses of refusals, as RFC 9110 and RFC 6585 name them. Before Python 3.13 ``http.HTTPStatus`` has another 413."""
PAGE = {"after": "string", "limit": "number"}
"""The query of a route that replies with a page of a list."""
_WORDS = {"string": {"type": "string"}, "number": {"type": "integer", "minimum": 0}}


@dataclass(frozen=True, slots=True)
class Operation:
    """One route.

    ``reply`` is the type of the answer; if it ``streams``, of each of its lines. ``content`` is its media type, if not JSON.
    ``query`` has the parameters' types, ``string`` or ``number``; those in ``required`` must be given. ``body`` is the type
    of the request's message, ``bytes`` if that is no message; a route with a body changes something, so it takes POST.
    """

    handler: Handler
    reply: Any
    query: Mapping[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    body: Any = None
    streams: bool = False
    content: str = ""

    @property
    def method(self) -> str:
        """The HTTP method."""
        return "GET" if self.body is None else "POST"


class RouteGroup:
    """Routes that belong together, by path: of ``control.sock``, of ``status.sock`` for everybody, and of ``pods.sock``."""

    operations: Mapping[str, Operation]
    public: Mapping[str, Operation] = MappingProxyType({})
    for_pods: Mapping[str, Operation] = MappingProxyType({})

    async def run(self) -> None:
        """Do what is to be done beside the requests, until cancelled."""


def routes(operations: Mapping[str, Operation]) -> list[Route]:
    """Return the routes of ``operations``, by path."""
    return [Route(path, guarded(each.handler), methods=[each.method]) for path, each in operations.items()]


def openapi(operations: Mapping[str, Operation]) -> dict[str, Any]:
    """Return the description of ``operations`` as an OpenAPI 3.1 document."""
    described = list(operations.values())
    types = [*(each.reply for each in described), *(each.body for each in described if _is_message(each.body)), Failure]
    schemas, components = msgspec.json.schema_components(types, ref_template=_SCHEMA_PLACE)
    bodies = iter(schemas[len(described) : -1])
    paths = {}
    for (path, each), reply in zip(operations.items(), schemas, strict=False):
        body = next(bodies) if _is_message(each.body) else None
        paths[path] = {each.method.lower(): _described(path, each, reply, body)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast's control socket", "version": __version__},
        "servers": [{"url": "http://holdfast"}],
        "paths": paths,
        "components": {"schemas": {name: _dedented(schema) for name, schema in components.items()}},
    }


def _dedented(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a component whose description, a docstring, has no indentation: Python keeps it before 3.13."""
    return {**schema, "description": cleandoc(schema["description"])} if "description" in schema else schema


def _described(path: str, operation: Operation, reply: Any, body: Any) -> dict[str, Any]:
    kind = operation.content or ("application/x-ndjson" if operation.streams else _JSON)
    refusal = {_JSON: {"schema": {"$ref": _SCHEMA_PLACE.format(name=Failure.__name__)}}}
    found: dict[str, Any] = {
        "operationId": path.removeprefix("/v1/").strip("/").replace("/", "-"),
        "parameters": [
            {"name": name, "in": "query", "required": name in operation.required, "schema": _WORDS[word]}
            for name, word in operation.query.items()
        ],
        "responses": {
            "200": {"description": "The answer.", "content": {kind: {"schema": reply}}},
            **{str(code): {"description": phrase, "content": refusal} for code, phrase in _REFUSALS.items()},
        },
    }
    if body is not None:
        found["requestBody"] = {"required": True, "content": {_JSON: {"schema": body}}}
    elif operation.body is bytes:
        binary = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        found["requestBody"] = {"required": True, "content": binary}
    return found


def _is_message(body: Any) -> bool:
    return body is not None and body is not bytes
