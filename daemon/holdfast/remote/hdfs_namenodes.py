"""Which namenode of an HDFS answers: one of several (HA) is active, and which one changes while a store is in use.

A namenode that does not serve us is left for the next one: it is on standby, still starts, can't be connected to, or is
unknown to Kerberos. An observer answers reads, but may be behind the active one. So whether a namenode takes writes is asked
before it is believed, and again from time to time.
"""

from __future__ import annotations

import http
import ssl
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import msgspec

from holdfast.errors import HoldfastError, RemoteRefusedError, RemoteUnavailableError
from holdfast.remote.hdfs_options import HdfsAccess
from holdfast.remote.life_signs import sign_of_life
from holdfast.remote.redaction import masked
from holdfast.system.text import printable

if TYPE_CHECKING:
    import httpx

_LONGEST_TEXT = 300
_WHY = {
    "StandbyException": "no namenode is active",
    "ObserverRetryOnActiveException": "no namenode is active",
    "RetriableException": "the namenode starts",
}
"""The reasons by which a namenode says that it does not serve."""
_IN_SAFE_MODE = "SafeModeException"
_NO_SUCH_FILE = "/.reserved/.inodes/0"
"""To set this file's times changes nothing, and only the active namenode says that there is no such file."""
_BELIEVED_SECONDS = 10.0


class NoPrincipalError(RemoteRefusedError):
    """Kerberos does not know this namenode."""


class Failure(msgspec.Struct):
    """An error that WebHDFS answers with."""

    exception: str
    message: str = ""
    is_hadoops: bool = True

    @property
    def first_line(self) -> str:
        return self.message.partition("\n")[0][:_LONGEST_TEXT]


class _FailedAnswer(msgspec.Struct, rename="pascal"):
    remote_exception: Failure


@dataclass(eq=False)
class Namenodes:
    """The namenodes of one HDFS. Safe to use from several threads; nothing is sent or loaded before the first request.

    ``secrets`` are not shown in messages.
    """

    access: HdfsAccess
    secrets: frozenset[str]
    request_timeout_seconds: float
    connect_timeout_seconds: float
    _active: int = field(default=0, init=False)
    _believed: tuple[int, float] = field(default=(0, 0.0), init=False)
    """A namenode, and until when (monotonic) it is taken for the active one without being asked."""

    def send(self, what: str, method: str, path: str, op: str, parameters: Mapping[str, str]) -> httpx.Response:
        """Return the answer of the namenode that is active, which may be an error about ``path``.

        Raises ``RemoteUnavailableError``; ``RemoteRefusedError`` if Kerberos gives no ticket for any. ``what`` names the
        request in their messages.
        """
        reasons: list[HoldfastError] = []
        for _ in self.access.origins:
            sign_of_life()
            active = self._active
            answer = self._tried(what, active, method, path, op, parameters, reasons)
            if answer is not None:
                return answer
            self._leave(active)
        raise _why_none_serves(reasons)

    @cached_property
    def trusted(self) -> ssl.SSLContext:
        """The certificates that are trusted with HTTPS."""
        return ssl.create_default_context(cafile=self.access.ca_file or None)

    def _tried(
        self,
        what: str,
        number: int,
        method: str,
        path: str,
        op: str,
        parameters: Mapping[str, str],
        reasons: list[HoldfastError],
    ) -> httpx.Response | None:
        """Return the answer of one namenode. If it does not serve us, return None and add the reason to ``reasons``."""
        import httpx

        try:
            answer = None if self._is_believed(number) else self._request(what, number, "PUT", _NO_SUCH_FILE, "SETTIMES", {})
            if answer is None or _is_serving(answer):
                if answer is not None:
                    self._believed = (number, time.monotonic() + _BELIEVED_SECONDS)
                answer = self._request(what, number, method, path, op, parameters)
        except NoPrincipalError as problem:
            reasons.append(problem)
            return None
        except httpx.TransportError as problem:
            reasons.append(unanswered(what, problem, self.secrets))
            if isinstance(problem, httpx.ConnectError | httpx.ConnectTimeout):
                return None
            self._leave(number)
            raise reasons[-1] from None  # it may have been carried out
        if _is_serving(answer):
            return answer
        failure = failure_in(answer.status_code, answer.content)
        said = f"{_WHY.get(failure.exception, failure.exception)}: {failure.first_line}"
        reasons.append(RemoteUnavailableError(printable(masked(f"{what}: {said}", self.secrets))))
        return None

    def _is_believed(self, number: int) -> bool:
        believed, until = self._believed
        return len(self.access.origins) == 1 or (believed == number and time.monotonic() < until)

    def _request(
        self, what: str, number: int, method: str, path: str, op: str, parameters: Mapping[str, str]
    ) -> httpx.Response:
        token = self._token(what)
        identity = {"delegation": token} if token else {"user.name": self.access.user}
        if self.access.kerberos:
            identity.pop("user.name", None)
        query = urlencode({"op": op, **parameters, **identity}, quote_via=quote)
        return self._http.request(method, f"{self.access.origins[number]}/webhdfs/v1{quote(path)}?{query}")

    def _leave(self, number: int) -> None:
        if self._active == number:
            self._active = (number + 1) % len(self.access.origins)
        self._believed = (number, 0.0)

    def _token(self, what: str) -> str:
        if not self.access.token_file:
            return self.access.token
        try:
            return Path(self.access.token_file).read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as problem:
            raise RemoteUnavailableError(f"{printable(what)}: token_file {self.access.token_file}: {problem}") from None

    @cached_property
    def _http(self) -> httpx.Client:
        import httpx

        auth = None
        if self.access.kerberos and not (self.access.token or self.access.token_file):
            from holdfast.remote.hdfs_kerberos import Negotiate

            auth = Negotiate()
        timeout = httpx.Timeout(self.request_timeout_seconds, connect=self.connect_timeout_seconds)
        trusted = self.trusted if self.access.origins[0].startswith("https") else False
        client = httpx.Client(auth=auth, timeout=timeout, verify=trusted, trust_env=False)
        weakref.finalize(self, client.close)
        return client


def unanswered(what: str, problem: Exception, secrets: frozenset[str]) -> RemoteUnavailableError:
    """Return the error for a request that has no answer."""
    text = masked(str(problem), secrets) or type(problem).__name__
    return RemoteUnavailableError(f"{printable(what)}: {text}")


def failure_in(status: int, content: bytes) -> Failure:
    """Return the error that an answer is."""
    try:
        return msgspec.json.decode(content, type=_FailedAnswer).remote_exception
    except msgspec.DecodeError:  # of a proxy, or of the web server before Hadoop saw the request
        return Failure(f"HTTP status {status}", content[:_LONGEST_TEXT].decode(errors="replace"), is_hadoops=False)


def _is_serving(answer: httpx.Response) -> bool:
    """Say whether the namenode is the active one. In safe mode, too, it answers reads.

    It is not if its web server has let nothing through to it, as with a wrong key for Kerberos.
    """
    if answer.status_code < http.HTTPStatus.BAD_REQUEST:
        return True
    failure = failure_in(answer.status_code, answer.content)
    if failure.is_hadoops:
        return failure.exception not in _WHY or _IN_SAFE_MODE in failure.first_line
    return answer.status_code in (http.HTTPStatus.BAD_REQUEST, http.HTTPStatus.UNAUTHORIZED)  # of ours, whoever is asked


def _why_none_serves(reasons: Sequence[HoldfastError]) -> HoldfastError:
    """Return the error for the reasons of all namenodes. It is final only if each of them is."""
    texts = list(dict.fromkeys(str(each) for each in reasons))
    if len(texts) > 1 and any(each.transient for each in reasons):
        return RemoteUnavailableError("; ".join(texts))
    return reasons[-1]
