"""An S3 server that lies: it answers what the test says, whatever was asked, and headers need not fit their bodies.

Without a lie it has the objects that it was given, takes PUTs, and lists them page by page. A lie gets the request and
returns the answer, or None to tell the truth.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from holdfast.digest import fingerprint_of_buffer
from tests.support.stores.s3 import S3Server

BUCKET = "bucket"
GOOD = b"what was stored"
"""The content of the one object that such a server has at first, ``good/file`` of its store ``checkpoints``."""
MODIFIED = "Tue, 01 Jul 2025 10:00:00 GMT"
MODIFIED_IN_LISTS = "2025-07-01T10:00:00.000Z"
_RANGE = re.compile(r"bytes=([0-9]+)-([0-9]+)")


@dataclass(frozen=True)
class Asked:
    """A request: ``key`` is of an object, without the bucket; ``query`` has the first value of each name."""

    method: str
    key: str
    query: Mapping[str, str]
    headers: Message
    body: bytes = b""

    @property
    def to_delete(self) -> list[str]:
        """The keys of a bulk deletion."""
        return [unescape(key) for key in re.findall("<Key>(.*?)</Key>", self.body.decode())]

    @property
    def is_list(self) -> bool:
        """Whether this asks for a page of a listing."""
        return "list-type" in self.query

    @property
    def range(self) -> tuple[int, int] | None:
        """The bytes that are asked for: the first, and the one after the last."""
        match = _RANGE.fullmatch(self.headers.get("Range", ""))
        return None if match is None else (int(match[1]), int(match[2]) + 1)


@dataclass(frozen=True)
class Answer:
    """What the server sends, byte for byte; without a length in ``headers`` the body is sent in chunks."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Iterable[bytes] = ()


@dataclass(frozen=True)
class Planted:
    """An object; what is None is as it should be."""

    content: bytes = b""
    etag: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    listed_bytes: int | None = None
    modified: str = MODIFIED
    modified_in_lists: str = MODIFIED_IN_LISTS

    @property
    def tag(self) -> str:
        """The etag with its quotes."""
        return self.etag if self.etag is not None else f'"{hashlib.md5(self.content).hexdigest()}"'

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a GET and a HEAD."""
        named = {f"x-amz-meta-{name}": value for name, value in self.metadata.items()}
        return {"ETag": self.tag, "Last-Modified": self.modified, **named}


def digested(content: bytes) -> Planted:
    """Return an object with its digest, as a node has stored it."""
    return Planted(content, metadata=fingerprint_of_buffer(content).metadata())


Lie: TypeAlias = Callable[[Asked], Answer | None]


def page(keys: Mapping[str, Planted], directories: Iterable[str] = (), following: str = "") -> Answer:
    """Return a page of a listing; ``following`` is the token of the next one."""
    contents = "".join(
        f"<Contents><Key>{escape(key)}</Key><LastModified>{found.modified_in_lists}</LastModified>"
        f"<ETag>{escape(found.tag)}</ETag><Size>{len(found.content) if found.listed_bytes is None else found.listed_bytes}"
        "</Size><StorageClass>STANDARD</StorageClass></Contents>"
        for key, found in keys.items()
    )
    prefixes = "".join(f"<CommonPrefixes><Prefix>{escape(each)}/</Prefix></CommonPrefixes>" for each in directories)
    more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{following}</NextContinuationToken>" if following else ""
    return xml(f"<ListBucketResult><Name>{BUCKET}</Name>{more}{contents}{prefixes}</ListBucketResult>")


def xml(text: str) -> Answer:
    """Return an answer of XML."""
    body = text.encode()
    return Answer(200, {"Content-Type": "application/xml", "Content-Length": str(len(body))}, [body])


def refusal(code: str, status: int = 403) -> Answer:
    """Return an error of S3's."""
    return replace(xml(f"<Error><Code>{code}</Code><Message>no</Message></Error>"), status=status)


def endless(block: bytes = bytes(2**16)) -> Iterable[bytes]:
    """Return a body without an end."""
    return itertools.repeat(block)


class LyingS3:
    """The server. ``objects`` by key and ``lie`` may be changed at any time. Use it as a context manager."""

    def __init__(self) -> None:
        self.objects = {"checkpoints/good/file": digested(GOOD)}
        self.lie: Lie = lambda _: None
        self.asked: list[Asked] = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.lying = self

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.cut()
        self._server.server_close()

    @property
    def place(self) -> S3Server:
        """The bucket as nodes know it."""
        return S3Server(f"http://127.0.0.1:{self._server.server_address[1]}", BUCKET, "", "KEY", "SECRET")

    @property
    def stores(self) -> dict[str, str]:
        """The URLs of a node's stores on this server."""
        return {name: self.place.below(name).url for name in ("checkpoints", "blobs")}

    def answer(self, asked: Asked) -> Answer:
        """Return the answer to a request."""
        return self.lie(asked) or self._truth(asked)

    def _truth(self, asked: Asked) -> Answer:
        if asked.is_list:
            return self._listed(asked)
        if asked.method == "DELETE":
            self.objects.pop(asked.key, None)
            return Answer(204)
        if "delete" in asked.query:
            return self._deleted(asked)
        found = self.objects.get(asked.key)
        if found is None:
            return Answer(404, {"Content-Length": "0"})
        start, end = asked.range or (0, len(found.content))
        if asked.range is None:
            return Answer(200, {**found.headers, "Content-Length": str(len(found.content))}, [found.content])
        part = found.content[start:end]
        where = f"bytes {start}-{start + len(part) - 1}/{len(found.content)}"
        return Answer(206, {**found.headers, "Content-Length": str(len(part)), "Content-Range": where}, [part])

    def _listed(self, asked: Asked) -> Answer:
        prefix, delimiter = asked.query.get("prefix", ""), asked.query.get("delimiter", "")
        below = {key: found for key, found in sorted(self.objects.items()) if key.startswith(prefix)}
        if not delimiter:
            return page(below)
        rest = {key: key[len(prefix) :] for key in below}
        directories = sorted({prefix + name.partition("/")[0] for name in rest.values() if "/" in name})
        return page({key: found for key, found in below.items() if "/" not in rest[key]}, directories)

    def _deleted(self, asked: Asked) -> Answer:
        """Delete in bulk, as S3 does: a body with a character that XML 1.0 does not have is refused as a whole."""
        if re.search("[\ufffe\uffff]", asked.body.decode()):
            return refusal("MalformedXML", 400)
        for key in asked.to_delete:
            self.objects.pop(key, None)
        return xml(
            "<DeleteResult>"
            + "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in asked.to_delete)
            + "</DeleteResult>"
        )

    def store(self, asked: Asked, body: bytes) -> Answer:
        """Take a PUT, unless there is a lie about it."""
        lie = self.lie(asked)
        if lie is not None:
            return lie
        if asked.headers.get("If-None-Match") == "*" and asked.key in self.objects:
            return Answer(412, {"Content-Length": "0"})
        prefix = "x-amz-meta-"
        metadata = {name[len(prefix) :]: value for name, value in asked.headers.items() if name.startswith(prefix)}
        self.objects[asked.key] = planted = Planted(body, metadata=metadata)
        return Answer(200, {"ETag": planted.tag, "Content-Length": "0"})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    lying: LyingS3

    def __init__(self, *arguments: Any) -> None:
        self._connections: set[socket.socket] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients go when they like, from a liar most of all."""

    def cut(self) -> None:
        """End all connections, also those on which an endless answer is being sent."""
        for connection in list(self._connections):
            with suppress(OSError):  # it has ended
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _handle(self) -> None:
        lying = self.server.lying
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) < length:  # the client has died meanwhile: this is no request
            self.close_connection = True
            return
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        key = unquote(parts.path).removeprefix(f"/{BUCKET}").lstrip("/")
        asked = Asked(self.command, key, query, self.headers, body)
        lying.asked.append(asked)
        self._send(lying.store(asked, body) if self.command == "PUT" else lying.answer(asked))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815 the names are http.server's

    def _send(self, answer: Answer) -> None:
        names = {name.lower() for name in answer.headers}
        is_chunked = "content-length" not in names and answer.status != 204
        lines = [f"HTTP/1.1 {answer.status} Lie", *(f"{name}: {value}" for name, value in answer.headers.items())]
        if is_chunked:
            lines.append("Transfer-Encoding: chunked")
        self.wfile.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        if self.command == "HEAD":
            return
        for block in answer.body:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(block), block) if is_chunked else block)
        if is_chunked:
            self.wfile.write(b"0\r\n\r\n")
