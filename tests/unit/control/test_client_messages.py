"""A client says in one line what is wrong if something else than a daemon that answers is behind the socket."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from holdfast.control import client_messages, unix_http
from holdfast.control.client import ControlClient, RefusedError
from holdfast.errors import DaemonSilentError, DaemonUnreachableError
from tests.support.daemons.other_servers import answer, request, server

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LARGE = bytes(4 * 2**20)
"""A content that fits into no socket's buffer."""
NEITHER = "is no Holdfast daemon, or one of another version"
CLOSED = "closed the connection before it had answered"
LISTENING = """import socket, sys
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen(int(sys.argv[2]))
    print(flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "socket"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix_http, "_QUIET_SECONDS", 0.05)
    monkeypatch.setattr(unix_http, "_LIFE_SECONDS", 0.2)


@contextmanager
def listening(path: Path, *, backlog: int) -> Iterator[subprocess.Popen[bytes]]:
    """Let another process listen on ``path``, and answer nobody."""
    command = [sys.executable, "-c", LISTENING, str(path), str(backlog)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def says(said: bytes, path: Path) -> AbstractContextManager[list[int]]:
    """Answer each request with ``said``."""

    def serve(connection: socket.socket, _: int) -> None:
        request(connection)
        with suppress(BrokenPipeError, ConnectionResetError):  # the client has heard enough
            connection.sendall(said)

    return server(path, serve)


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (answer(b"<html>"), NEITHER),
        (answer(b"<html>", "404 Not Found"), NEITHER),
        (answer(b""), NEITHER),
        (answer(b"[1, 2]"), NEITHER),
        (answer(b'{"pid":"many"}'), NEITHER),
        (answer(b"[" * 100_000), NEITHER),
        (answer(b'"\xff"'), NEITHER),
        (b"220 mail.example.org ESMTP\r\n", NEITHER),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n", NEITHER),
        (b"x" * 2**20, NEITHER),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", NEITHER),
        (CHUNKED + b"fffffffffffffffffffff\r\n", CLOSED),
        (CHUNKED + b"what?\r\n", CLOSED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", CLOSED),
        (b"", CLOSED),
    ],
    ids=range(15),
)
def test_an_answer_of_another_program_is_one_sentence(said: bytes, told: str, path: Path) -> None:
    with says(said, path), ControlClient(path) as client, pytest.raises(DaemonUnreachableError, match=told) as problem:
        client.status()
    assert "\n" not in str(problem.value)
    assert len(str(problem.value)) < 400


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (answer(b"1\n"), NEITHER),
        (answer(b"[]\n"), NEITHER),
        (answer(b'{"failure":1}\n'), NEITHER),
        (answer(b"<html>\n"), NEITHER),
        (answer(b""), NEITHER),
        (CHUNKED + chunk(b'{"done":0,"total":1,"bytes_done":0}\n'), CLOSED),
        (CHUNKED + chunk(b'{"done":0,') + chunk(b""), NEITHER),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n", CLOSED),
    ],
)
def test_steps_of_another_program_are_one_sentence(said: bytes, told: str, path: Path) -> None:
    with says(said, path), ControlClient(path) as client, pytest.raises(DaemonUnreachableError, match=told):
        list(client.verify(None))


def test_a_line_or_an_answer_without_end_is_not_read_to_the_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_messages, "LARGEST_BYTES", 2**22)
    monkeypatch.setattr(unix_http, "LARGEST_BYTES", 2**22)

    def serve(connection: socket.socket, _: int) -> None:
        request(connection)
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                connection.sendall(bytes(2**20))

    with server(path, serve), ControlClient(path) as client:
        for ask in (client.status, lambda: list(client.follow_events())):
            with pytest.raises(DaemonUnreachableError, match=f"{NEITHER} .AnswerTooLargeError: a"):
                ask()


def test_a_text_that_is_none_is_one_sentence(path: Path) -> None:
    with says(answer(b"\xff"), path), ControlClient(path) as client, pytest.raises(DaemonUnreachableError, match=NEITHER):
        client.metrics()


@pytest.mark.usefixtures("soon")
def test_a_daemon_that_is_stopped_is_not_waited_for_whatever_is_asked(path: Path) -> None:
    with listening(path, backlog=100) as process:
        os.kill(process.pid, signal.SIGSTOP)
        for ask in (
            lambda client: client.status(),
            lambda client: client.checkpoints("/"),
            lambda client: list(client.verify(None)),
            lambda client: list(client.follow_events()),
            lambda client: client.submit(LARGE),
        ):
            with ControlClient(path) as client, pytest.raises(DaemonSilentError) as problem:
                ask(client)
            assert str(problem.value) == (
                f"the daemon {process.pid} behind {path} does not answer: it is stopped (SIGSTOP, or a debugger); "
                f"'kill -CONT {process.pid}' lets it go on"
            )


@pytest.mark.usefixtures("soon")
def test_a_daemon_that_accepts_no_more_connections_is_not_waited_for(path: Path) -> None:
    with listening(path, backlog=0), socket.socket(socket.AF_UNIX) as only:
        only.connect(str(path))
        with (
            ControlClient(path) as client,
            pytest.raises(DaemonSilentError, match=f"behind {path} does not answer: it hangs"),
        ):
            client.checkpoints("/")


def test_long_work_is_waited_for_as_long_as_the_daemon_answers_others(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix_http, "_QUIET_SECONDS", 0.05)
    others = 0

    def serve(connection: socket.socket, number: int) -> None:
        nonlocal others
        asked = request(connection)
        if number == 0:
            assert asked.startswith(b"GET /v1/checkpoints?")
            working.append(connection.dup())
            return
        assert asked.startswith(b"OPTIONS /v1/status ")
        others += 1
        connection.sendall(answer(b"{}", "405 Method Not Allowed"))
        if others == 3:  # more may be asked before the answer is read
            working[0].sendall(answer(b"[]"))

    working: list[socket.socket] = []
    with server(path, serve), ControlClient(path) as client:
        assert client.checkpoints("/") == []
    working[0].close()
    assert others >= 3


@pytest.mark.parametrize("refusal", [answer(b"{}", "503 Service Unavailable"), b""])
def test_a_daemon_that_refuses_one_more_connection_is_waited_for(
    refusal: bytes, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gain: a user with 64 connections was told that the daemon hangs, if it was faster to refuse than he to ask."""
    monkeypatch.setattr(unix_http, "_QUIET_SECONDS", 0.05)
    connect, working, refused = unix_http._PatientSocket.connect_to, list[socket.socket](), 0

    def connect_late(connection: unix_http._PatientSocket, to: str) -> None:
        connect(connection, to)
        if working:
            closed = select.poll()
            closed.register(connection, select.POLLHUP)
            closed.poll()

    def serve(connection: socket.socket, number: int) -> None:
        nonlocal refused
        if number == 0:
            request(connection)
            working.append(connection.dup())
            return
        with suppress(BrokenPipeError):
            connection.sendall(refusal)
        refused += 1
        if refused == 3:
            working[0].sendall(answer(b"[]"))

    monkeypatch.setattr(unix_http._PatientSocket, "connect_to", connect_late)
    with server(path, serve), ControlClient(path) as client:
        assert client.checkpoints("/") == []
    working[0].close()
    assert refused >= 3


def test_a_refusal_is_told_as_it_is(path: Path) -> None:
    refusal = answer(b'{"code":"busy","errno":16,"message":"not now"}', "409 Conflict")
    with says(refusal, path), ControlClient(path) as client, pytest.raises(RefusedError, match="not now") as problem:
        client.status()
    assert problem.value.failure.code == "busy"
