"""Turns for requests that anybody may make, so that they leave the event loop to the mount."""

from __future__ import annotations

import trio
from starlette.requests import Request
from starlette.responses import Response

from holdfast.control.replies import Handler

_SHORTEST_PAUSE_SECONDS = 0.01


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
