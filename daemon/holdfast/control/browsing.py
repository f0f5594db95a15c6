"""Looking at single files, and at events, through the control socket."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.control.callers import UserNames
from holdfast.control.inspect import Inspector
from holdfast.control.messages import EntryInfo, EntryPage, EventInfo, Explanation
from holdfast.control.operations import PAGE, Operation
from holdfast.control.replies import LARGEST_PAGE, number, page_size, reply, required_path
from holdfast.telemetry import Event, EventLog


class BrowsingRoutes:
    """The routes by path."""

    def __init__(self, inspector: Inspector, events: EventLog) -> None:
        self._inspector = inspector
        self._events = events
        self._users = UserNames()
        path = {"path": "string"}
        self.operations = {
            "/v1/entries": Operation(self._entries, EntryPage, {**path, **PAGE}, ("path",)),
            "/v1/entry": Operation(self._entry, EntryInfo, path, ("path",)),
            "/v1/why": Operation(self._why, Explanation, path, ("path",)),
            "/v1/events": Operation(self._list_events, list[EventInfo], {"since": "number", "limit": "number"}),
        }

    async def _entries(self, request: Request) -> Response:
        after = request.query_params.get("after", "")
        return reply(await self._inspector.page(required_path(request), after, page_size(request, 200)))

    async def _entry(self, request: Request) -> Response:
        return reply(await self._inspector.entry(required_path(request)))

    async def _why(self, request: Request) -> Response:
        return reply(await self._inspector.why(required_path(request)))

    async def _list_events(self, request: Request) -> Response:
        since = number(request.query_params.get("since", "0"), "since")
        if "text/event-stream" in request.headers.get("accept", ""):
            return StreamingResponse(self._event_stream(since), media_type="text/event-stream")
        return reply(await self._with_users(self._events.since(since, page_size(request, LARGEST_PAGE))))

    async def _event_stream(self, since: int) -> AsyncIterator[bytes]:
        while True:
            for event in await self._with_users(self._events.since(since, LARGEST_PAGE)):
                since = event.number
                yield b"id: %d\ndata: %s\n\n" % (event.number, msgspec.json.encode(event))
            await self._events.wait_beyond(since)

    async def _with_users(self, events: list[Event]) -> list[EventInfo]:
        """Return the events with the names of the users that they are about."""
        uids = {event.number: uid for event in events if isinstance(uid := event.fields.get("uid"), int)}
        names = await self._users.of(uids.values())
        return [
            EventInfo(
                number=event.number,
                time=event.time,
                kind=event.kind,
                fields=event.fields,
                user=names.get(uids.get(event.number, -1), ""),
            )
            for event in events
        ]
