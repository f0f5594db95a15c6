"""The requests of WebHDFS, the HTTP interface of HDFS's namenodes and datanodes, and what their answers mean.

A namenode answers all but the reads and writes of bytes, for which it names a datanode. Only names that we have made
ourselves, and numbers of files, go to datanodes: Hadoop garbles some names on the way there.
"""

from __future__ import annotations

import errno
import http
import http.client
import ssl
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

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
from holdfast.remote.hdfs_options import HdfsAccess
from holdfast.remote.life_signs import sign_of_life
from holdfast.remote.redaction import masked
from holdfast.system.text import printable

if TYPE_CHECKING:
    import httpx

_BUFFER_BYTES = 1 << 20
_LONGEST_TEXT = 300
_STANDBY = "StandbyException"
_INVALID_TOKEN = "InvalidToken"
_NO_ATTRIBUTES = "The XAttr operation has been rejected"

T = TypeVar("T")


class NotDirectoryError(NameNotStorableError):
    """An object is where the path has a directory."""


class DeniedError(RemoteRefusedError):
    """The rights of a file or directory keep us out; below a file, HDFS may say so too."""


class HdfsIOError(RemoteUnavailableError):
    """HDFS has no better word for it than IOException."""


class _Exception(msgspec.Struct):
    exception: str
    message: str = ""


class _Failure(msgspec.Struct, rename="pascal"):
    remote_exception: _Exception


class _Location(msgspec.Struct, rename="pascal"):
    location: str


class HdfsClient:
    """The servers of one HDFS. Safe to use from several threads; nothing is sent or loaded before the first request."""

    def __init__(
        self, access: HdfsAccess, secrets: frozenset[str], request_timeout_seconds: float, connect_timeout_seconds: float
    ) -> None:
        self._access = access
        self._secrets = secrets
        self._request_timeout_seconds = request_timeout_seconds
        self._connect_timeout_seconds = connect_timeout_seconds
        self._active = 0

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
        """Send a request to the namenode that is active; where one says that it is not, or does not answer, to the next."""
        import httpx

        token = self._token(what)
        identity = {"delegation": token} if token else {"user.name": self._access.user}
        if self._access.kerberos:
            identity.pop("user.name", None)
        query = urlencode({"op": op, **parameters, **identity}, quote_via=quote)
        problem: HoldfastError | None = None
        for _ in self._access.origins:
            sign_of_life()
            active = self._active
            try:
                response = self._http.request(method, f"{self._access.origins[active]}/webhdfs/v1{quote(path)}?{query}")
            except httpx.TransportError as failed:
                self._active = (active + 1) % len(self._access.origins)
                problem = self._unanswered(what, failed)
                if not isinstance(failed, httpx.ConnectError | httpx.ConnectTimeout):
                    raise problem from None  # it may have been carried out
                continue
            if response.status_code < http.HTTPStatus.BAD_REQUEST:
                return response
            failure = _failure_in(response.status_code, response.content)
            if failure.exception != _STANDBY:
                raise self._translated(what, response.status_code, failure)
            self._active = (active + 1) % len(self._access.origins)
            problem = RemoteUnavailableError(f"{what}: no namenode is active")
        assert problem is not None
        raise problem

    def _token(self, what: str) -> str:
        if not self._access.token_file:
            return self._access.token
        try:
            return Path(self._access.token_file).read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as problem:
            raise RemoteUnavailableError(f"{printable(what)}: token_file {self._access.token_file}: {problem}") from None

    @cached_property
    def _http(self) -> httpx.Client:
        import httpx

        auth = None
        if self._access.kerberos and not (self._access.token or self._access.token_file):
            from holdfast.remote.hdfs_kerberos import Negotiate

            auth = Negotiate()
        timeout = httpx.Timeout(self._request_timeout_seconds, connect=self._connect_timeout_seconds)
        trusted = self._trusted if self._access.origins[0].startswith("https") else False
        client = httpx.Client(auth=auth, timeout=timeout, verify=trusted, trust_env=False)
        weakref.finalize(self, client.close)
        return client

    @cached_property
    def _trusted(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._access.ca_file or None)

    def _connected(self, what: str, location: str) -> http.client.HTTPConnection:
        options: dict[str, Any] = {"timeout": self._connect_timeout_seconds, "blocksize": _BUFFER_BYTES}
        server = ""
        try:
            parts = urlsplit(location)
            server = parts.netloc
            if not server:
                raise http.client.InvalidURL("the namenode names no datanode")
            connection: http.client.HTTPConnection
            if parts.scheme == "https":
                connection = http.client.HTTPSConnection(server, context=self._trusted, **options)
            else:
                connection = http.client.HTTPConnection(server, **options)
            connection.connect()
        except (OSError, ValueError, http.client.HTTPException) as problem:
            raise self._unanswered(f"{what}: datanode {server}", problem) from None
        connection.sock.settimeout(self._request_timeout_seconds)
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
        raise self._translated(what, response.status, _failure_in(response.status, content))

    def _decoded(self, what: str, content: bytes, answer: type[T] | None) -> T:
        try:
            return msgspec.json.decode(content, type=answer)
        except msgspec.DecodeError as problem:
            raise RemoteUnavailableError(f"{what}: the answer is not WebHDFS's: {problem}") from None

    def _unanswered(self, what: str, problem: Exception) -> RemoteUnavailableError:
        text = masked(str(problem), self._secrets) or type(problem).__name__
        return RemoteUnavailableError(f"{printable(what)}: {text}")

    def _translated(self, what: str, status: int, failure: _Exception) -> HoldfastError:
        """Return the error for an answer that is one."""
        kind = failure.exception
        said = printable(masked(failure.message.partition("\n")[0][:_LONGEST_TEXT], self._secrets))
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
        if self._access.token_file:
            return RemoteUnavailableError(f"{text}; a new one in {self._access.token_file} is waited for")
        return CredentialsExpiredError(f"{text}; it comes from the option token, which nothing renews")


def _failure_in(status: int, content: bytes) -> _Exception:
    """Return the error that an answer is."""
    try:
        return msgspec.json.decode(content, type=_Failure).remote_exception
    except msgspec.DecodeError:  # of a proxy, or of the web server before Hadoop saw the request
        return _Exception(f"HTTP status {status}", content[:_LONGEST_TEXT].decode(errors="replace"))
