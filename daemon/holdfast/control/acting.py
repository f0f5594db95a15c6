"""The routes of actions on files: verify, prefetch, evict, flush, drain, pin."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response

from holdfast.control.actions import Actions
from holdfast.control.http_connection import CALLER
from holdfast.control.messages import DrainRequest, FlushRequest, PathRequest, PinInfo, PinRequest, Progress
from holdfast.control.operations import Operation
from holdfast.control.replies import body, reply, stream
from holdfast.errors import ConfigurationError, NotPinnedError, WithheldError


class ActionRoutes:
    """The routes by path."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self.operations = {
            "/v1/verify": Operation(self._verify, Progress, body=PathRequest, streams=True),
            "/v1/prefetch": Operation(self._prefetch, Progress, body=PathRequest, streams=True),
            "/v1/evict": Operation(self._evict, Progress, body=PathRequest, streams=True),
            "/v1/flush": Operation(self._flush, Progress, body=FlushRequest, streams=True),
            "/v1/drain": Operation(self._drain, Progress, body=DrainRequest, streams=True),
            "/v1/pins": Operation(self._pins, list[PinInfo]),
            "/v1/pin": Operation(self._pin, dict[str, str], body=PinRequest),
            "/v1/unpin": Operation(self._unpin, dict[str, str], body=PathRequest),
        }

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
        wanted = await body(request, PinRequest)
        path = _given(wanted.path)
        await self._actions.pin(path, request.scope[CALLER].uid, must_exist=not wanted.future)
        return reply({})

    async def _pins(self, request: Request) -> Response:
        del request
        return reply([PinInfo(path=path) for path in self._actions.pins()])

    async def _unpin(self, request: Request) -> Response:
        path = await _required_path(request)
        if not await self._actions.unpin(path):
            raise NotPinnedError(f"{path} is not pinned; 'holdfast pins' lists what is")
        return reply({})


async def _nothing_more() -> AsyncIterator[Progress]:
    yield Progress(done=0, total=0, bytes_done=0, finished=True)


async def _required_path(request: Request) -> str:
    return _given((await body(request, PathRequest)).path)


def _given(path: str | None) -> str:
    if path is None:
        raise ConfigurationError("the request's body: Object missing required field `path`")
    return path
