"""A namenode and a datanode for tests that answer by a script, so that what a real one rarely says is said."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest


class Scripted(BaseHTTPRequestHandler):
    """A namenode and the datanode beside it. ``answers`` has status and text by operation; the datanode's is ``DATA``."""

    answers: dict[str, tuple[int, str]]
    asked: list[str]
    lines: list[str] = []  # noqa: RUF012
    ticket = ""
    """The ticket that a client without the cookie must send; "": none."""
    missing_bytes = 0
    """So many bytes of each answer are announced and not sent."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        op = "DATA" if url.path == "/data" else parse_qs(url.query)["op"][0]
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.asked.append(op)
        self.lines.append(self.path)
        if self.ticket and "hadoop.auth=yes" not in self.headers.get("cookie", ""):
            is_theirs = self.headers.get("authorization") == f"Negotiate {self.ticket}"
            self.send_response(200 if is_theirs else 401)
            self.send_header(
                *(("set-cookie", "hadoop.auth=yes; Path=/") if is_theirs else ("www-authenticate", "Negotiate"))
            )
            status, text = self.answers[op] if is_theirs else (401, "")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())
            return
        place = json.dumps({"Location": f"http://{self.headers['host']}/data"})
        status, text = self.answers.get(op, (200, place))
        self.send_response(status)
        self.send_header("content-length", str(len(text) + self.missing_bytes))
        self.end_headers()
        self.wfile.write(text.encode())

    do_PUT = do_DELETE = do_GET  # noqa: N815 the names are http.server's

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Say nothing."""


STATUS = json.dumps({"FileStatus": {"type": "FILE", "length": 10, "modificationTime": 1, "fileId": 7, "pathSuffix": ""}})


def failure(exception: str, message: str = "no") -> str:
    return json.dumps({"RemoteException": {"exception": exception, "message": message}})


@pytest.fixture
def scripted() -> Iterator[tuple[type[Scripted], str]]:
    """The server's class, and its address. It has one file of ten bytes, under each name."""

    class Server(Scripted):
        answers = {"GETFILESTATUS": (200, STATUS), "GETXATTRS": (200, '{"XAttrs": []}'), "DATA": (200, "0123456789")}  # noqa: RUF012
        asked: list[str] = []  # noqa: RUF012
        lines: list[str] = []  # noqa: RUF012

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield Server, f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
