"""One connection of HTTP/1.1: requests in, answers of an ASGI application out, one after the other.

The protocol is h11's. What this module adds are bounds, because anybody may be at the other end: of the size of a head, of
the time that head and body may take to arrive, and of the time without progress after which an answer is given up. No more
is read ahead of an answer than fits into a buffer. A connection whose peer does not keep to the bounds,
or is gone, is closed; the handler of its request is cancelled.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import h11
import trio
from starlette.types import ASGIApp, Message, Scope

from holdfast.control.callers import Caller

_log = logging.getLogger("holdfast.control")
_READ_BYTES = 65_536
_WRITE_BYTES = 65_536
_HEAD_BYTES = 16_384
_VERSIONS = (b"1.0", b"1.1")
_JSON = (b"content-type", b"application/json")
CALLER = "holdfast.caller"
"""The key of the ``Caller`` in an ASGI scope."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one connection. A head has ``head_seconds`` from the end of the last answer, idleness included."""

    stall_seconds: float
    head_seconds: float = 5.0
    body_seconds: float = 60.0


class Connection:
    """A connection to ``app``. ``serve`` closes it."""

    def __init__(self, app: ASGIApp, stream: trio.SocketStream, caller: Caller, bounds: Bounds) -> None:
        self._app = app
        self._stream = stream
        self._caller = caller
        self._bounds = bounds
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
        self._scope = trio.CancelScope()
        self._body_deadline = 0.0
        self._is_body_read = False
        self._is_head_only = False
        self._head: h11.Response | None = None
        self._is_last = False

    async def serve(self) -> None:
        """Serve until the peer, a bound or a fault ends the connection."""
        try:
            with self._scope:
                while await self._exchange():
                    self._protocol.start_next_cycle()
        finally:
            self._stream.socket.close()

    async def _exchange(self) -> bool:
        """Answer one request; say whether another may follow."""
        try:
            with trio.fail_after(self._bounds.head_seconds):
                event = await self._next_event()
        except h11.RemoteProtocolError as problem:
            await self._refuse(problem.error_status_hint, str(problem))
            return False
        except trio.TooSlowError:
            return False
        if not isinstance(event, h11.Request):
            return False
        if event.http_version not in _VERSIONS:
            await self._refuse(505, "this is HTTP/1.1")
            return False
        self._body_deadline = trio.current_time() + self._bounds.body_seconds
        self._is_body_read = False
        self._is_head_only = event.method == b"HEAD"
        try:
            await self._app(self._scope_of(event), self._receive, self._send)
        except Exception:  # noqa: BLE001 one request's fault must not end the daemon
            _log.exception("%s failed: this is a fault of Holdfast's, please report it", event.target.decode())
            return False
        if not self._is_body_read and not self._ends_here():
            return False
        is_done = self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE
        return is_done and not self._is_last

    def _ends_here(self) -> bool:
        """Say whether an unread request has no body, or all of it is here. If not, the connection has to end."""
        try:
            return isinstance(self._protocol.next_event(), h11.EndOfMessage)
        except h11.RemoteProtocolError:
            return False

    async def _next_event(self) -> h11.Event | type[h11.PAUSED]:
        """Return what comes next; ``ConnectionClosed`` if the peer is gone. Raises ``h11.RemoteProtocolError``."""
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            self._protocol.receive_data(await self._read())
        return event  # type: ignore[return-value]  # h11's type has NEED_DATA still

    async def _read(self) -> bytes:
        try:
            return bytes(await self._stream.receive_some(_READ_BYTES))
        except trio.BrokenResourceError:
            return b""

    def _scope_of(self, request: h11.Request) -> Scope:
        path, _, query = request.target.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},  # 2.3: a client that is gone is told by receive
            "http_version": request.http_version.decode(),
            "method": request.method.decode(),
            "scheme": "http",
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": list(request.headers),
            "client": None,
            "server": None,
            CALLER: self._caller,
        }

    # --- the application's side ---------------------------------------------------------------------------------------

    async def _receive(self) -> Message:
        """Return the next part of the body; after the last one wait until the peer is gone.

        A body that is malformed, late or cut off counts as the end of the connection. The handler bounds how much is kept.
        """
        if self._is_body_read:
            if ahead := await self._read():
                self._protocol.receive_data(ahead)  # the next request: it does not wait for the answer
                await trio.sleep_forever()
            return {"type": "http.disconnect"}
        try:
            if self._protocol.they_are_waiting_for_100_continue:
                await self._write(h11.InformationalResponse(status_code=100, headers=[]))
            with trio.fail_at(self._body_deadline):
                event = await self._next_event()
        except (h11.RemoteProtocolError, trio.TooSlowError):
            event = h11.ConnectionClosed()
        if isinstance(event, h11.Data):
            return {"type": "http.request", "body": bytes(event.data), "more_body": True}
        if isinstance(event, h11.EndOfMessage):
            self._is_body_read = True
            return {"type": "http.request", "body": b"", "more_body": False}
        self._is_last = True
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        """Send a part of the answer: an answer of one part in one piece, a stream part by part."""
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ())]
            head = h11.Response(status_code=message["status"], headers=headers)
            if any(name == b"content-length" for name, _ in headers):
                self._head = head
            else:
                await self._write(head)
            return
        parts: list[h11.Event] = [self._head] if self._head else []
        self._head = None
        if (body := message.get("body")) and not self._is_head_only:
            parts.append(h11.Data(data=body))
        if not message.get("more_body", False):
            parts.append(h11.EndOfMessage())
        await self._write(*parts)

    async def _refuse(self, status: int, why: str) -> None:
        """Answer bytes that are no request. ``why`` is h11's text, which repeats nothing of them."""
        body = b'{"code":"protocol","errno":71,"message":"' + why.encode("ascii", "replace").replace(b'"', b"'") + b'"}'
        headers = [_JSON, (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
        head = h11.Response(status_code=status, headers=headers)
        await self._write(head, h11.Data(data=body), h11.EndOfMessage())

    async def _write(self, *events: h11.Event) -> None:
        """Send events. If the peer does not take them in time, or is gone, the connection and its handler end here."""
        data = memoryview(b"".join(self._protocol.send(event) or b"" for event in events))
        try:
            for start in range(0, len(data), _WRITE_BYTES):
                with trio.fail_after(self._bounds.stall_seconds):
                    await self._stream.send_all(data[start : start + _WRITE_BYTES])
        except (trio.BrokenResourceError, trio.TooSlowError):
            self._scope.cancel()
            await trio.lowlevel.checkpoint()
