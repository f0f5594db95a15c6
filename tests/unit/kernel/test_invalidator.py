"""The process that makes the kernel forget names: it is started again when it dies, and when it could not be started."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from holdfast.kernel.invalidator import Invalidator, inode_notice, notice

pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")  # it ends by itself
_LENGTH = struct.Struct("=I")


@pytest.fixture
def device() -> Iterator[tuple[socket.socket, socket.socket]]:
    """What stands for ``/dev/fuse``: the kernel's end, and the daemon's."""
    kernel, daemon = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kernel.settimeout(60)
    with kernel, daemon:
        yield kernel, daemon


def told_by(kernel: socket.socket, count: int) -> list[bytes]:
    """Return the next ``count`` messages, in any order: each directory has a thread of its own."""
    return sorted(kernel.recv(4096) for _ in range(count))


def test_a_name_is_told_as_the_kernel_wants_it(device: tuple[socket.socket, socket.socket]) -> None:
    kernel, daemon = device
    invalidator = Invalidator(daemon.fileno())
    invalidator.invalidate(7, b"name")
    told = kernel.recv(4096)
    assert told == notice(7, b"name")
    assert _LENGTH.unpack_from(told) == (len(told),)
    assert kernel.recv(4096) == inode_notice(7)  # the listing of the directory
    invalidator.invalidate_content(8)
    assert kernel.recv(4096) == inode_notice(8)
    assert _LENGTH.unpack_from(inode_notice(8)) == (len(inode_notice(8)),)
    invalidator.close()


def test_names_are_told_once_a_process_can_be_started_again(
    device: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, daemon = device
    invalidator = Invalidator(daemon.fileno())
    start, tried = invalidator._start, []

    def fails_once() -> socket.socket:
        tried.append(1)
        if len(tried) == 1:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return start()

    monkeypatch.setattr(invalidator, "_start", fails_once)
    invalidator._channel.shutdown(socket.SHUT_RDWR)  # the process ends
    for name in (b"first", b"second"):
        invalidator.invalidate(7, name)
    assert told_by(kernel, 4) == sorted([notice(7, b"first"), notice(7, b"second"), *[inode_notice(7)] * 2])
    assert len(tried) == 2
    invalidator.close()


def test_who_waits_is_told_when_there_is_no_process(
    device: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    invalidator = Invalidator(device[1].fileno())
    invalidator.close()
    with invalidator.ask(7, b"name") as answer:
        assert answer.recv(1) == b""
