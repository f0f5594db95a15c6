"""The exchange of messages with a daemon: requests, answers and streams as typed messages, and what is wrong if none comes.

Whatever goes wrong is one of our errors with a sentence that says what to do: anything may listen on the socket.
"""

from __future__ import annotations

import grp
import os
import socket as sockets
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from holdfast.control import messages
from holdfast.control.unix_http import ERRORS, LARGEST_BYTES, SilentServerError, UnixHttp, content_of, lines_of
from holdfast.errors import (
    ConfigurationError,
    DaemonSilentError,
    DaemonUnreachableError,
    HoldfastError,
    SocketForbiddenError,
)
from holdfast.system.text import printable

_T = TypeVar("_T")
Query = Mapping[str, str | int | None]
"""The parameters of a request; None is left out."""
ANSWER_SECONDS = 150.0
"""The time that a client waits for an answer: a cache miss may wait for the store until its deadline."""
_LARGEST_PLAN_BYTES = 2**30
_STRANGE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""The errors of decoding what is no message of ours."""
_LONGEST_REASON = 100  # characters
_STOPPED = ("T", "t")
_WAITS_IN_KERNEL = "D"


class RefusedError(HoldfastError):
    """The daemon refused the request; ``failure`` has its code and errno."""

    def __init__(self, failure: messages.Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Exchange:
    """Exchanges messages with the daemon behind ``socket``. Calls raise ``RefusedError`` and ``DaemonUnreachableError``.

    ``timeout_seconds`` limits the time until an answer, but not of those that are asked for patiently, and of streams: these
    end when the daemon gives no sign of life. ``headers`` go with each request.
    """

    def __init__(self, socket: Path | str, timeout_seconds: float, headers: Mapping[str, str]) -> None:
        self._socket = Path(socket)
        self._timeout_seconds = timeout_seconds
        self._http = UnixHttp(str(socket), headers)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def get(self, route: str, kind: type[_T], *, patient: bool = False, **query: str | int | None) -> _T:
        """Ask for a message."""
        return self._decoded(*self._ask("GET", _target(route, query), patient=patient), kind)

    def post(self, route: str, body: messages.Message | bytes, kind: type[_T], *, patient: bool = False) -> _T:
        """Ask for a change; return the daemon's answer."""
        return self._decoded(*self._ask("POST", route, _encoded(body), patient=patient), kind)

    def text(self, route: str) -> str:
        """Ask for a text."""
        status, content = self._ask("GET", route)
        with self._reading():
            return content.decode() if status == HTTPStatus.OK else self._decoded(status, content, str)

    def steps(self, route: str, body: messages.Message, kind: type[_T]) -> Iterator[_T]:
        """Ask for an action; yield its steps, of which there is at least one."""
        return self._stream("POST", route, kind, content=_encoded(body))

    def lines(self, route: str, kind: type[_T], query: Query, *, accept: str = "*/*", prefix: bytes = b"") -> Iterator[_T]:
        """Ask for messages that come without end, on lines that begin with ``prefix``."""
        return self._stream("GET", _target(route, query), kind, accept=accept, prefix=prefix)

    def _ask(self, method: str, target: str, content: bytes | None = None, *, patient: bool = False) -> tuple[int, bytes]:
        seconds, most_bytes = (None, _LARGEST_PLAN_BYTES) if patient else (self._timeout_seconds, LARGEST_BYTES)
        with self._asking():
            return self._http.ask(method, target, content, seconds, most_bytes)

    def _stream(
        self,
        method: str,
        target: str,
        kind: type[_T],
        *,
        content: bytes | None = None,
        accept: str = "*/*",
        prefix: bytes = b"",
    ) -> Iterator[_T]:
        with self._asking(), self._http.asking(method, target, content, None, {"Accept": accept}) as reply:
            if reply.status != HTTPStatus.OK:
                self._decoded(reply.status, content_of(reply), kind)
            is_empty = True
            for line in lines_of(reply):
                if line and line.startswith(prefix):
                    is_empty = False
                    yield self._step(line.removeprefix(prefix), kind)
            if is_empty:
                raise self._strange("nothing")

    def _step(self, line: bytes, kind: type[_T]) -> _T:
        with self._reading():
            step: Any = msgspec.json.decode(line)
            if isinstance(step, dict) and "failure" in step:
                raise RefusedError(msgspec.convert(step["failure"], messages.Failure))
            return msgspec.convert(step, kind)

    def _decoded(self, status: int, content: bytes, kind: type[_T]) -> _T:
        with self._reading():
            if status == HTTPStatus.OK:
                return msgspec.json.decode(content, type=kind)
            raise RefusedError(msgspec.json.decode(content, type=messages.Failure))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn the error of decoding an answer into ours."""
        try:
            yield
        except _STRANGE as problem:
            raise self._strange(str(problem)) from None

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Turn the errors of a request into ours."""
        try:
            yield
        except ERRORS as problem:
            raise self._unreachable(problem) from None

    def _unreachable(self, problem: Exception) -> DaemonUnreachableError:
        socket = self._socket
        if os.access(socket, os.F_OK) and not os.access(socket, os.W_OK):
            return SocketForbiddenError(
                f"this user may not use {socket}: that takes root, or membership in the group {_group_of(socket)}"
            )
        if isinstance(problem, SilentServerError):
            return _silent(socket, "does not answer")
        if isinstance(problem, TimeoutError):
            return _silent(socket, f"has not answered within {self._timeout_seconds:g} s")
        if isinstance(problem, ConnectionResetError | BrokenPipeError | IncompleteRead):  # before HTTPException
            return DaemonUnreachableError(
                f"the daemon behind {socket} closed the connection before it had answered: it has ended, or another one "
                "takes its place; ask again"
            )
        if isinstance(problem, HTTPException):
            return self._strange(f"{type(problem).__name__}: {problem}")
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        return DaemonUnreachableError(
            f"no daemon answers on {socket} ({reason}); start one with 'holdfast mount', "
            "or name its socket with --socket or $HOLDFAST_SOCKET"
        )

    def _strange(self, reason: str) -> DaemonUnreachableError:
        shown = printable(reason.strip()) if len(reason) <= _LONGEST_REASON else f"{printable(reason[:_LONGEST_REASON])}…"
        return DaemonUnreachableError(
            f"what answers on {self._socket} is no Holdfast daemon, or one of another version ({shown}); name the daemon's "
            "socket with --socket or $HOLDFAST_SOCKET"
        )


def _target(route: str, query: Query) -> str:
    """Return the target of a request. Raises ``ConfigurationError`` for a name that is not UTF-8."""
    given = {name: value for name, value in query.items() if value is not None}
    with _in_utf8():
        return f"{route}?{urlencode(given, quote_via=quote)}" if given else route


def _encoded(body: messages.Message | bytes) -> bytes:
    """Return a message as JSON. Raises ``ConfigurationError`` for a name that is not UTF-8."""
    if isinstance(body, bytes):
        return body
    with _in_utf8():
        return msgspec.json.encode(body)


@contextmanager
def _in_utf8() -> Iterator[None]:
    """Turn the error of a name that JSON and URLs can't hold into ours."""
    try:
        yield
    except UnicodeEncodeError as problem:
        raise ConfigurationError(
            f"{problem.object!r} is not UTF-8: the control socket can't name it; name the directory above it"
        ) from None


def _group_of(path: Path) -> str:
    gid = path.stat().st_gid
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _silent(socket: Path, what: str) -> DaemonSilentError:
    pid = _listener_of(socket)
    named = f"the daemon {pid} behind {socket}" if pid else f"the daemon behind {socket}"
    return DaemonSilentError(f"{named} {what}: {_why_silent(pid)}")


def _why_silent(pid: int) -> str:
    """Say what a daemon that does not answer may be at, and what to do; ``pid`` is 0 if it is not known."""
    state = _state_of(pid)
    if state in _STOPPED:
        return f"it is stopped (SIGSTOP, or a debugger); 'kill -CONT {pid}' lets it go on"
    if state == _WAITS_IN_KERNEL:
        return "it waits in the kernel, mostly for a disk; 'dmesg' may say for which"
    end = f"; else 'kill -ABRT {pid}' ends it, and its log says where it hung" if pid else ""
    return (
        "it hangs, or has too much to do; under systemd or 'holdfast mount --supervise' one that hangs is replaced by "
        f"itself{end}"
    )


def _listener_of(socket: Path) -> int:
    """Return the process that listens on ``socket``, as the kernel knows it; 0 if that can't be told."""
    with sockets.socket(sockets.AF_UNIX) as connection:
        connection.setblocking(False)
        try:
            connection.connect(str(socket))
            credentials = connection.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return 0
    return int(struct.unpack("3i", credentials)[0])


def _state_of(pid: int) -> str:
    """Return the state of a process as in proc_pid_stat(5); empty if it can't be told."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
