"""Replies: messages as JSON, errors as refusals, long actions as streams of lines."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import ContextVar
from itertools import islice
from typing import TypeVar

import msgspec
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from holdfast.control.messages import Failure, Message
from holdfast.errors import ConfigurationError, HoldfastError, RequestTooLargeError
from holdfast.system.text import shown

_log = logging.getLogger("holdfast.control")
_HTTP_STATUS = {
    errno.ENOENT: 404,
    errno.EINVAL: 400,
    errno.ENAMETOOLONG: 400,
    errno.EACCES: 403,
    errno.EFBIG: 413,
}  # others: 409
LARGEST_PAGE = 1000
STREAM = "application/x-ndjson"
"""The media type of a stream of messages, one on each line."""
_LARGEST_MESSAGE_BYTES = 65_536
_LONGEST_NUMBER = 18  # digits: below 2**63
M = TypeVar("M", bound=Message)
MOUNT_HEADER = "Holdfast-Mount"
"""The header by which a client says where it has the mount, as in a pod; paths in requests and replies are below that."""
SEEN_AT: ContextVar[str] = ContextVar("mount as the client sees it", default="")
Handler = Callable[[Request], Awaitable[Response]]


def guarded(handler: Handler) -> Handler:
    """Return a handler that replies to errors with a refusal, and logs bugs."""

    async def answer(request: Request) -> Response:
        try:
            SEEN_AT.set(_mount_seen_by(request))
            return await handler(request)
        except HoldfastError as problem:
            return failure(problem)
        except OSError as problem:
            return failure(HoldfastError(str(problem)))
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except Exception:  # noqa: BLE001 the boundary of the control socket
            _log.exception("%s failed: this is a fault of Holdfast's, please report it", request.url.path)
            return failure(HoldfastError("the daemon failed at this request; its log has the details"))

    return answer


def _mount_seen_by(request: Request) -> str:
    """Return where the client has the mount; "": where the daemon has it. Raises ``ConfigurationError``."""
    path = request.headers.get(MOUNT_HEADER, "")
    if path and not (path.isprintable() and path.startswith("/") and path == os.path.normpath(path) != "/"):
        raise ConfigurationError(f"HOLDFAST_MOUNT: {path!r} is not the path of a mount: /mnt/holdfast would be one")
    return path


def failure(problem: HoldfastError) -> Response:
    """Return the reply that refuses a request."""
    status = _HTTP_STATUS.get(problem.errno, 409)
    return Response(msgspec.json.encode(_failure_of(problem)), status_code=status, media_type="application/json")


def reply(message: object, then: Callable[[], None] | None = None) -> Response:
    """Return a reply with a message or a list of them. ``then`` is called on the event loop after it is sent."""
    background = BackgroundTask(_at_once, then) if then else None
    return Response(msgspec.json.encode(message), media_type="application/json", background=background)


async def _at_once(function: Callable[[], None]) -> None:
    """Call ``function`` on the event loop; Starlette would run a plain function in a thread."""
    function()


def listed(messages: Iterator[Message]) -> Response:
    """Return a reply with a list of messages, each page of it encoded when the one before has been taken."""

    async def parts() -> AsyncIterator[bytes]:
        before = b"["
        while page := list(islice(messages, LARGEST_PAGE)):
            yield before + msgspec.json.encode(page)[1:-1]
            before = b","
        yield b"]" if before == b"," else b"[]"

    return StreamingResponse(parts(), media_type="application/json")


async def stream(progress: AsyncIterator[Message]) -> Response:
    """Reply with one JSON line per step. An error before the first step is the whole reply; a later one is the last line."""
    first = await anext(progress)

    async def lines() -> AsyncIterator[bytes]:
        yield msgspec.json.encode(first) + b"\n"
        try:
            async for step in progress:
                yield msgspec.json.encode(step) + b"\n"
        except (HoldfastError, OSError) as error:
            problem = error if isinstance(error, HoldfastError) else HoldfastError(str(error))
            yield json.dumps({"failure": msgspec.to_builtins(_failure_of(problem))}).encode() + b"\n"

    return StreamingResponse(lines(), media_type=STREAM)


async def no_such_route(request: Request, problem: Exception) -> Response:
    """Reply to a path that is not served, or not with this method."""
    assert isinstance(problem, HTTPException)
    refusal = Failure(code="no-such-route", errno=errno.ENOSYS, message=f"{request.method}: {problem.detail}")
    return Response(msgspec.json.encode(refusal), problem.status_code, problem.headers, media_type="application/json")


async def content(request: Request, most_bytes: int) -> bytes:
    """Return the body of the request. Raises ``RequestTooLargeError``."""
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > most_bytes:
            raise RequestTooLargeError(f"the request's body has more than the {most_bytes} bytes allowed here")
    return bytes(found)


async def body(request: Request, kind: type[M]) -> M:
    """Return the message in the request. Raises ``ConfigurationError`` if it is malformed, ``RequestTooLargeError``."""
    try:
        return msgspec.json.decode(await content(request, _LARGEST_MESSAGE_BYTES) or b"{}", type=kind)
    except msgspec.DecodeError as problem:
        raise ConfigurationError(f"the request's body: {problem}") from None


def required_path(request: Request) -> str:
    """Return the path in a query. Raises ``ConfigurationError`` if there is none."""
    path = request.query_params.get("path")
    if path is None:
        raise ConfigurationError("the request's query: missing path=/absolute/path")
    return path


def number(text: str, name: str) -> int:
    """Return a number in a query. Raises ``ConfigurationError``."""
    if not text.isdecimal() or len(text) > _LONGEST_NUMBER:
        raise ConfigurationError(f"the request's query: {name} must be a number, not {text[:_LONGEST_NUMBER]!r}")
    return int(text)


def page_size(request: Request, default: int) -> int:
    """Return how many entries the reply may have: ``limit`` of the query, within bounds. Raises ``ConfigurationError``."""
    return max(1, min(LARGEST_PAGE, number(request.query_params.get("limit", str(default)), "limit")))


def _failure_of(problem: HoldfastError) -> Failure:
    return Failure(code=problem.code, errno=problem.errno, message=shown(os.fsencode(str(problem))))
