"""Replies that come later, past pyfuse3: requests that had to wait, each finished by a task of its own.

pyfuse3 would parse such a request again and pass it to one of its workers, which costs about 100 µs of processor time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import trio

from holdfast.fs.fuse.error_replies import errno_of
from holdfast.fs.fuse.request_observer import Observation, Request, RequestObserver, errno_in, name_of
from holdfast.kernel import Connection
from holdfast.system.waits import marked
from holdfast.telemetry import OBSERVED, Counters


class LaterReplies:
    """Starts a task for each request that is to be replied to later."""

    def __init__(self, connection: Connection, observer: RequestObserver, counters: Counters) -> None:
        self._connection = connection
        self._observer = observer
        self._counters = counters
        self._tasks: trio.Nursery | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Allow tasks while the context lasts. It ends when all requests have their replies."""
        async with trio.open_nursery() as self._tasks:
            yield

    def begin(self, request: Request, work: Coroutine[Any, Any, bytes | int | None]) -> bool:
        """Reply to ``request`` with the body or errno that ``work`` returns, or the errno of its error. Returns True."""
        assert self._tasks is not None, "requests are answered while the session serves"
        self._tasks.start_soon(self._reply, request.unique, work, self._observer.begin_later(request))
        return True

    async def _reply(self, request: int, work: Coroutine[Any, Any, bytes | int | None], observation: Observation) -> None:
        OBSERVED.set(observation.notes)
        try:
            answer = await marked(work, self._connection.executing, request)
            assert answer is not None, "only a request that has not waited may be left to pyfuse3"
        except Exception as problem:  # noqa: BLE001 the boundary is where all else ends
            answer = errno_of(problem, name_of(observation.opcode), self._counters)
        if isinstance(answer, int):
            self._connection.reply(request, answer)
        else:
            self._connection.reply(request, 0, answer)
        try:
            observation.end(errno_in(observation.opcode, answer))
        except Exception as problem:  # noqa: BLE001 the request has its reply; only its description is missing
            errno_of(problem, name_of(observation.opcode), self._counters)
