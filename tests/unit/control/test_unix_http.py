"""The control client's side of HTTP, against servers that say what they are told to."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.control.unix_http import ERRORS, UnixHttp, lines_of
from tests.support.daemons.other_servers import answer, head, server

LARGE = bytes(4 * 2**20)
"""A content that fits into no socket's buffer."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "socket"


def test_a_connection_is_used_again_unless_the_server_has_closed_it(path: Path) -> None:
    def serve(connection: socket.socket, _: int) -> None:
        for _ in range(2):
            connection.sendall(answer(head(connection).partition(b" ")[2].partition(b" ")[0]))

    with server(path, serve) as came, closing(UnixHttp(str(path), {})) as http:
        for number, target in enumerate(("/a", "/b", "/c", "/d")):
            assert http.ask("GET", target, None, 30.0) == (200, target.encode())
            assert len(came) == number // 2 + 1


def test_an_answer_that_came_before_the_content_was_read_is_read(path: Path) -> None:
    def serve(connection: socket.socket, _: int) -> None:
        connection.sendall(answer(b"busy", "503 Busy"))

    with server(path, serve), closing(UnixHttp(str(path), {})) as http:
        assert http.ask("POST", "/", LARGE, 30.0) == (503, b"busy")


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart", b"what?\r\n\r\n"], ids=["nothing", "part", "nonsense"]
)
def test_an_answer_that_is_not_whole_is_an_error(said: bytes, path: Path) -> None:
    def serve(connection: socket.socket, _: int) -> None:
        head(connection)
        connection.sendall(said)

    http = UnixHttp(str(path), {})
    with server(path, serve), pytest.raises(ERRORS):
        http.ask("GET", "/", None, 30.0)


def test_lines_that_end_in_the_middle_are_an_error(path: Path) -> None:
    """A daemon that is killed between two steps has not carried out the rest."""

    def serve(connection: socket.socket, _: int) -> None:
        head(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")

    with server(path, serve), closing(UnixHttp(str(path), {})) as http, http.asking("GET", "/", None, 30.0) as reply:
        lines = lines_of(reply)
        assert next(lines) == b"one"
        with pytest.raises(ERRORS):
            next(lines)


def test_lines_are_whole_however_they_are_cut_into_chunks(path: Path) -> None:
    def serve(connection: socket.socket, _: int) -> None:
        head(connection)
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (b"on", b"e\ntwo", b"\n\nthree", b""))
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)

    with server(path, serve), closing(UnixHttp(str(path), {})) as http, http.asking("GET", "/", None, 30.0) as reply:
        assert list(lines_of(reply)) == [b"one", b"two", b"", b"three"]
        assert reply.isclosed()


def test_a_server_that_is_silent_is_waited_for_as_long_as_was_said(path: Path) -> None:
    def serve(connection: socket.socket, _: int) -> None:
        while head(connection):  # until the client has gone
            pass

    with server(path, serve), pytest.raises(TimeoutError):
        UnixHttp(str(path), {}).ask("GET", "/", None, 0.01)


def test_lines_come_as_they_are_sent_while_other_requests_are_answered_and_the_rest_is_not_waited_for(path: Path) -> None:
    def serve(connection: socket.socket, number: int) -> None:
        assert b"\r\nKind: test\r\n" in head(connection)
        if number == 0:
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\none\ntwo\n\r\n")
            stay_open.append(connection.dup())
        else:
            connection.sendall(answer(b"other"))

    stay_open: list[socket.socket] = []
    with server(path, serve) as came, closing(UnixHttp(str(path), {"Kind": "test"})) as http:
        with http.asking("GET", "/", None, None) as lines:
            assert next(lines) == b"one\n"
            assert http.ask("GET", "/other", None, 30.0) == (200, b"other")
            assert next(lines) == b"two\n"
        assert len(came) == 2
    for connection in stay_open:
        assert connection.recv(1) == b"", "the client has closed it"
        connection.close()
