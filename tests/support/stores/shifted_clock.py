"""An S3 server whose clock is wrong: a proxy that shifts the times of all objects in the server's answers."""

from __future__ import annotations

import http.client
import re
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

from tests.support.stores.s3 import S3Server

_LISTED = re.compile(rb"<LastModified>([^<]+)</LastModified>")
_ONE_CONNECTION_ONLY = {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"}


class ShiftedClock:
    """The place ``upstream`` as a server would have it whose clock is ahead by ``seconds``. Use it as a context manager."""

    def __init__(self, upstream: S3Server, seconds: float) -> None:
        self._upstream = upstream
        self._shift = timedelta(seconds=seconds)
        self._proxy = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server = upstream.through(f"http://127.0.0.1:{self._proxy.server_address[1]}")

    def __enter__(self) -> Self:
        threading.Thread(target=self._proxy.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._proxy.shutdown()
        self._proxy.server_close()

    def last_modified(self, name: str) -> int:
        """Return the time of the object ``name`` by this clock, in seconds since the epoch."""
        found = self._upstream.client().head_object(Bucket=self._upstream.bucket, Key=self._upstream.key(name))
        moment: datetime = found["LastModified"] + self._shift
        return int(moment.timestamp())

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        parts, shift = urlsplit(self._upstream.endpoint), self._shift

        def shifted(match: re.Match[bytes]) -> bytes:
            moment = datetime.fromisoformat(match[1].decode()) + shift
            return b"<LastModified>%s</LastModified>" % moment.strftime("%Y-%m-%dT%H:%M:%S.000Z").encode()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
                connection.request(self.command, self.path, body, dict(self.headers.items()))
                answer = connection.getresponse()
                data = _LISTED.sub(shifted, answer.read())
                length = answer.getheader("content-length") if self.command == "HEAD" else len(data)
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() == "last-modified":
                        moment = parsedate_to_datetime(value).astimezone(UTC) + shift
                        self.send_header(name, format_datetime(moment, usegmt=True))
                    elif name.lower() not in _ONE_CONNECTION_ONLY:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(length or 0))
                self.end_headers()
                self.wfile.write(data)
                connection.close()

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815 the names that http.server calls

        return Handler
