"""The writes of Google's XML API before a server that has them in the JSON API alone (``fake_gcs``).

A PUT, a copy and an upload in parts become one upload of the JSON API, with its condition and metadata; everything else goes
to the server as it is. So what is stored, listed, read and refused is the server's; the form of the answers to writes is
ours.
"""

from __future__ import annotations

import http.client
import itertools
import json
import threading
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree import ElementTree

_METADATA = "x-goog-meta-"
_CONDITION = "x-goog-if-generation-match"
_SOURCE = "x-goog-copy-source"
_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "host", "date", "server"}
_BUFFER_BYTES = 2**20


@dataclass
class _Upload:
    """An upload in parts: the metadata that its beginning had, and its parts and their etags by their numbers."""

    metadata: dict[str, str]
    parts: dict[int, tuple[str, bytes]] = field(default_factory=dict)

    def chosen(self, listed: ElementTree.Element) -> list[bytes]:
        """Return the parts of the list that completes the upload. Raises ``_BadListError``."""
        chosen: list[bytes] = []
        last = 0
        for each in listed.iterfind("{*}Part"):
            number, etag = int(each.findtext("{*}PartNumber", "0")), each.findtext("{*}ETag", "")
            kept_etag, body = self.parts.get(number, ("", b""))
            if not kept_etag or etag.strip('"') != kept_etag.strip('"'):
                raise _BadListError("InvalidPart")
            if number <= last:
                raise _BadListError("InvalidPartOrder")
            last = number
            chosen.append(body)
        if not chosen:
            raise _BadListError("MalformedXML")
        return chosen


class _BadListError(Exception):
    """The list of parts is not of an upload's parts, each once and in their order. The message is Google's code."""


class GcsWrites:
    """A proxy to ``port`` of the loopback. Use it as a context manager."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._uploads: dict[str, _Upload] = {}
        self._numbers = itertools.count(1)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="gcs writes", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Say nothing."""

            def do_GET(self) -> None:
                proxy.pass_on(self)

            def do_HEAD(self) -> None:
                proxy.pass_on(self)

            def do_DELETE(self) -> None:
                if upload := _query(self).get("uploadId"):
                    proxy.abort(self, upload)
                else:
                    proxy.pass_on(self)

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if upload := _query(self).get("uploadId"):
                    proxy.add_part(self, upload, int(_query(self)["partNumber"]), body)
                elif source := self.headers.get(_SOURCE):
                    proxy.copy(self, source)
                else:
                    proxy.store(self, [body], len(body), _metadata_in(self.headers))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if upload := _query(self).get("uploadId"):
                    proxy.complete(self, upload, body)
                else:
                    proxy.begin(self)

        return Handler

    def pass_on(self, request: BaseHTTPRequestHandler) -> None:
        """Send a request to the server as it is, and its answer back."""
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        with closing(self._connection()) as connection:
            connection.request(request.command, request.path, headers=headers)
            answer = connection.getresponse()
            request.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP_BY_HOP or name.lower() == "content-length":
                    request.send_header(name, value)
            if answer.length is None:
                request.close_connection = True
            with suppress(BrokenPipeError, ConnectionResetError):  # obstore ends what it no longer wants
                request.end_headers()
                while buffer := answer.read(_BUFFER_BYTES):
                    request.wfile.write(buffer)

    def store(
        self, request: BaseHTTPRequestHandler, body: Iterable[bytes], size_bytes: int, metadata: Mapping[str, str]
    ) -> None:
        """Store an object under the name and on the condition of ``request``, and answer as to a PUT."""
        status, headers, _ = self._upload(request, body, size_bytes, metadata)
        _answer(request, status, headers)

    def copy(self, request: BaseHTTPRequestHandler, source: str) -> None:
        """Store what is at ``source``, with its metadata."""
        with closing(self._connection()) as connection:
            connection.request("GET", f"/{source.lstrip('/')}")
            found = connection.getresponse()
            body = found.read()
        if found.status == HTTPStatus.OK:
            self.store(request, [body], len(body), _metadata_in(found.headers))
        else:
            _answer(request, found.status)

    def begin(self, request: BaseHTTPRequestHandler) -> None:
        """Begin an upload in parts."""
        number = f"upload-{next(self._numbers)}"
        self._uploads[number] = _Upload(_metadata_in(request.headers))
        _answer(request, HTTPStatus.OK, text=_xml("InitiateMultipartUploadResult", UploadId=number))

    def add_part(self, request: BaseHTTPRequestHandler, number: str, part: int, body: bytes) -> None:
        """Keep a part."""
        if number not in self._uploads:
            _answer(request, HTTPStatus.NOT_FOUND, text=_xml("Error", Code="NoSuchUpload"))
            return
        etag = f'"part-{next(self._numbers)}"'  # another one if the part is sent again
        self._uploads[number].parts[part] = etag, body
        _answer(request, HTTPStatus.OK, {"ETag": etag})

    def complete(self, request: BaseHTTPRequestHandler, number: str, body: bytes) -> None:
        """Store those parts of an upload as an object that the list in ``body`` names."""
        upload = self._uploads.get(number)
        if upload is None:
            _answer(request, HTTPStatus.NOT_FOUND, text=_xml("Error", Code="NoSuchUpload"))
            return
        try:
            parts = upload.chosen(ElementTree.fromstring(body))
        except (_BadListError, ElementTree.ParseError) as problem:
            code = str(problem) if isinstance(problem, _BadListError) else "MalformedXML"
            _answer(request, HTTPStatus.BAD_REQUEST, text=_xml("Error", Code=code))
            return
        self._uploads.pop(number, None)
        status, headers, etag = self._upload(request, parts, sum(map(len, parts)), upload.metadata)
        _answer(request, status, headers, _xml("CompleteMultipartUploadResult", ETag=etag) if etag else "")

    def abort(self, request: BaseHTTPRequestHandler, number: str) -> None:
        """Forget an upload."""
        self._uploads.pop(number, None)
        _answer(request, HTTPStatus.NO_CONTENT)

    def _upload(
        self, request: BaseHTTPRequestHandler, body: Iterable[bytes], size_bytes: int, metadata: Mapping[str, str]
    ) -> tuple[int, dict[str, str], str]:
        """Upload an object through the JSON API; return status and headers of the answer to a write, and the etag."""
        bucket, _, name = urlsplit(request.path).path.lstrip("/").partition("/")
        target = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(unquote(name), safe='')}"
        if condition := request.headers.get(_CONDITION):
            target += f"&ifGenerationMatch={condition}"
        headers = {"Content-Type": "application/octet-stream", "Content-Length": f"{size_bytes}", **metadata}
        with closing(self._connection()) as connection:
            connection.request("POST", target, iter(body), headers)
            answer = connection.getresponse()
            said = answer.read()
        if answer.status != HTTPStatus.OK:
            return answer.status, {}, ""
        stored = json.loads(said)
        etag = f'"{stored["etag"]}"'
        return HTTPStatus.OK, {"ETag": etag, "x-goog-generation": str(stored["generation"])}, etag

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._upstream, timeout=60, blocksize=_BUFFER_BYTES)


def _query(request: BaseHTTPRequestHandler) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}


def _metadata_in(headers: Message) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower().startswith(_METADATA)}


def _answer(request: BaseHTTPRequestHandler, status: int, headers: Mapping[str, str] = {}, text: str = "") -> None:
    body = text.encode()
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name, value)
    if status != HTTPStatus.NO_CONTENT:
        request.send_header("Content-Length", f"{len(body)}")
    request.end_headers()
    request.wfile.write(body)


def _xml(element: str, **fields: str) -> str:
    inner = "".join(f"<{name}>{value}</{name}>" for name, value in fields.items())
    return f'<?xml version="1.0" encoding="UTF-8"?><{element}>{inner}</{element}>'
