"""The requests of WebHDFS, the HTTP interface of HDFS's namenodes and datanodes, and what their answers mean.

A namenode answers all but the reads and writes of bytes, for which it names a datanode. Only names that we have made
ourselves, and numbers of files, go to datanodes: Hadoop garbles some names on the way there.
"""

from __future__ import annotations

import errno
import http
import http.client
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from holdfast.errors import (
    CredentialsExpiredError,
    HoldfastError,
    NameNotStorableError,
    ObjectExistsError,
    ObjectMissingError,
    RemoteRefusedError,
    RemoteUnavailableError,
)
from holdfast.remote.hdfs_namenodes import Failure, Namenodes, failure_in, unanswered
from holdfast.remote.life_signs import sign_of_life
from holdfast.remote.redaction import masked
from holdfast.system.text import printable

if TYPE_CHECKING:
    import httpx

_BUFFER_BYTES = 1 << 20
_INVALID_TOKEN = "InvalidToken"
_NO_ATTRIBUTES = "The XAttr operation has been rejected"

T = TypeVar("T")


class NotDirectoryError(NameNotStorableError):
    """An object is where the path has a directory."""


class DeniedError(RemoteRefusedError):
    """The rights of a file or directory keep us out; below a file, HDFS may say so too."""


class HdfsIOError(RemoteUnavailableError):
    """HDFS has no better word for it than IOException."""


class _Location(msgspec.Struct, rename="pascal"):
    location: str


class HdfsClient:
    """The servers of one HDFS. Safe to use from several threads; nothing is sent or loaded before the first request."""

    def __init__(self, namenodes: Namenodes) -> None:
        self._namenodes = namenodes

    def ask(self, what: str, method: str, path: str, op: str, answer: type[T] | None, **parameters: str) -> T:
        """Return the namenode's answer to an operation on ``path``.

        Raises the errors of ``RemoteStore``, and of those above. ``what`` names the request in their messages.
        """
        response = self._send(what, method, path, op, parameters)
        if response.status_code == http.HTTPStatus.TEMPORARY_REDIRECT:  # an old namenode does not know noredirect
            content = msgspec.json.encode({"Location": response.headers.get("location", "")})
        else:
            content = response.content or b"null"
        return self._decoded(what, content, answer)

    def read(self, what: str, path: str, start: int, end: int) -> Iterator[bytes]:
        """Open a file at a datanode, and return its bytes; what is not exactly as long as was asked for is an error."""
        place = self.ask(what, "GET", path, "OPEN", _Location, offset=f"{start}", length=f"{end - start}", noredirect="true")
        buffers = self._received(what, place.location, end - start)
        next(buffers)
        return buffers

    def _received(self, what: str, location: str, size_bytes: int) -> Iterator[bytes]:
        """Yield nothing once the datanode sends the bytes, and then the bytes."""
        with (
            closing(self._connected(what, location)) as connection,
            self._exchange(what, connection, "GET", location) as response,
        ):
            if response.length != size_bytes:
                raise RemoteUnavailableError(f"{what}: the datanode sends {response.length} bytes in place of {size_bytes}")
            yield b""
            while size_bytes:
                sign_of_life()
                try:
                    buffer = response.read(min(size_bytes, _BUFFER_BYTES))
                except (OSError, http.client.HTTPException) as problem:
                    raise self._unanswered(what, problem) from None
                if not buffer:
                    raise RemoteUnavailableError(f"{what}: the body ended {size_bytes} bytes early")
                size_bytes -= len(buffer)
                yield buffer

    def create(self, what: str, path: str, buffers: Iterable[bytes], size_bytes: int) -> None:
        """Store a new file by way of a datanode, and make the directories above it."""
        place = self.ask(what, "PUT", path, "CREATE", _Location, overwrite="false", noredirect="true")
        headers = {"Content-Type": "application/octet-stream", "Content-Length": f"{size_bytes}"}
        with closing(self._connected(what, place.location)) as connection:
            self._exchange(what, connection, "PUT", place.location, buffers, headers).close()

    def _send(self, what: str, method: str, path: str, op: str, parameters: dict[str, str]) -> httpx.Response:
        response = self._namenodes.send(what, method, path, op, parameters)
        if response.status_code >= http.HTTPStatus.BAD_REQUEST:
            raise self._translated(what, response.status_code, failure_in(response.status_code, response.content))
        return response

    def _connected(self, what: str, location: str) -> http.client.HTTPConnection:
        options: dict[str, Any] = {"timeout": self._namenodes.connect_timeout_seconds, "blocksize": _BUFFER_BYTES}
        server = ""
        try:
            parts = urlsplit(location)
            server = parts.netloc
            if not server:
                raise http.client.InvalidURL("the namenode names no datanode")
            connection: http.client.HTTPConnection
            if parts.scheme == "https":
                connection = http.client.HTTPSConnection(server, context=self._namenodes.trusted, **options)
            else:
                connection = http.client.HTTPConnection(server, **options)
            connection.connect()
        except (OSError, ValueError, http.client.HTTPException) as problem:
            raise self._unanswered(f"{what}: datanode {server}", problem) from None
        connection.sock.settimeout(self._namenodes.request_timeout_seconds)
        return connection

    def _exchange(
        self,
        what: str,
        connection: http.client.HTTPConnection,
        method: str,
        location: str,
        body: Iterable[bytes] | None = None,
        headers: Mapping[str, str] = {},
    ) -> http.client.HTTPResponse:
        """Return a datanode's answer, which is no error."""
        parts = urlsplit(location)
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # there may be an answer: a refusal before all was sent
                connection.request(method, f"{parts.path}?{parts.query}", body, headers)
            response = connection.getresponse()
            if response.status in (http.HTTPStatus.OK, http.HTTPStatus.CREATED):
                return response
            with response:
                content = response.read(_BUFFER_BYTES)
        except (OSError, http.client.HTTPException) as problem:
            raise self._unanswered(f"{what}: datanode {parts.netloc}", problem) from None
        raise self._translated(what, response.status, failure_in(response.status, content))

    def _decoded(self, what: str, content: bytes, answer: type[T] | None) -> T:
        try:
            return msgspec.json.decode(content, type=answer)
        except msgspec.DecodeError as problem:
            raise RemoteUnavailableError(f"{what}: the answer is not WebHDFS's: {problem}") from None

    def _unanswered(self, what: str, problem: Exception) -> RemoteUnavailableError:
        return unanswered(what, problem, self._namenodes.secrets)

    def _translated(self, what: str, status: int, failure: Failure) -> HoldfastError:
        """Return the error for an answer that is one."""
        kind = failure.exception
        said = printable(masked(failure.first_line, self._namenodes.secrets))
        text = f"{printable(what)}: {kind}: {said}"
        if kind in ("FileNotFoundException", "FileAlreadyExistsException"):
            return ObjectMissingError(text) if kind == "FileNotFoundException" else ObjectExistsError(text)
        if kind == "PathIsNotEmptyDirectoryException":
            return ObjectExistsError(text)
        if kind in ("ParentNotDirectoryException", "PathIsNotDirectoryException"):
            return NotDirectoryError(text)
        if kind in ("InvalidPathException", "HadoopIllegalArgumentException", "IllegalArgumentException"):
            return NameNotStorableError(text, errno.EINVAL)
        if kind == "PathComponentTooLongException" or "Pathname too long" in said:
            return NameNotStorableError(text, errno.ENAMETOOLONG)
        if kind == "AccessControlException":
            return DeniedError(text, of_store=False)
        if kind.endswith("QuotaExceededException") or kind == "MaxDirectoryItemsExceededException":
            return RemoteRefusedError(text, of_store=False)
        if _INVALID_TOKEN in (kind, *said.replace(":", " ").replace("$", " ").split()):
            return self._expired(text)
        if status == http.HTTPStatus.UNAUTHORIZED or kind in ("SecurityException", "AuthorizationException"):
            return RemoteRefusedError(text)
        if said.startswith(_NO_ATTRIBUTES):
            return RemoteRefusedError(f"{text} (digests are kept in them)")
        return HdfsIOError(text, of_store=False) if kind == "IOException" else RemoteUnavailableError(text)

    def _expired(self, text: str) -> HoldfastError:
        """Return the error for a token that has expired, or was cancelled: only the words differ."""
        if self._namenodes.access.token_file:
            return RemoteUnavailableError(f"{text}; a new one in {self._namenodes.access.token_file} is waited for")
        return CredentialsExpiredError(f"{text}; it comes from the option token, which nothing renews")
