"""Servers of the tests: each in a directory and on a port of the loopback of its own, ended with the test."""

from __future__ import annotations

import os
import random
import select
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes.children import DIES_WITH_US

_START_SECONDS = 60.0
_ATTEMPT_SECONDS = 0.02
_PORTS = range(10_000, 2**16)


@contextmanager
def directory_of_server(base: Path | None = None) -> Iterator[Path]:
    """A directory on a real disk: versitygw keeps metadata in extended attributes, which not every tmpfs has."""
    base = base or Path(os.environ.get("HOLDFAST_TEST_DIRECTORY", "/var/tmp"))
    with tempfile.TemporaryDirectory(prefix="holdfast-server-", dir=base) as directory:
        yield Path(directory)


@contextmanager
def running(command: list[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``command`` until the block ends."""
    with output.open("wb") as file:
        process = subprocess.Popen([*DIES_WITH_US, *command], stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def served_by(command: Callable[[int], list[str]], output: Path) -> Iterator[tuple[int, int]]:
    """Run ``command(port)`` until the block ends; yield port and process once it is answered there."""
    port = free_port()
    with running(command(port), output) as process:
        _await_answer(process, port, output)
        yield port, process.pid


def reserved_port() -> socket.socket:
    """Return a socket that is bound and never listens: it keeps a port for a server that comes and goes."""
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind(("127.0.0.1", 0))
    return reservation


def free_port() -> int:
    """Return a TCP port of the loopback that nobody has, and that nobody is given before it is used.

    It is none of those that the kernel gives to whoever connects or asks for any, where there are others. A name in the
    kernel, which this process has to its end, keeps it from other tests.
    """
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = [port for port in _PORTS if not first <= port <= last] or list(_PORTS)
    for port in random.sample(ports, len(ports)):
        name, listener = socket.socket(socket.AF_UNIX), socket.socket()
        try:
            name.bind(f"\0holdfast-test-port-{port}")
            listener.bind(("127.0.0.1", port))
        except OSError:
            name.close()
        else:
            name.detach()
            return port
        finally:
            listener.close()
    raise AssertionError(f"all ports of {len(ports)} are taken")


def _await_answer(process: subprocess.Popen[bytes], port: int, output: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    ended = os.pidfd_open(process.pid)
    try:
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except OSError:
                if select.select([ended], [], [], _ATTEMPT_SECONDS)[0]:
                    break
            else:
                return
    finally:
        os.close(ended)
    raise AssertionError(f"{process.args!r} does not answer on port {port}:\n{output.read_text(errors='replace')}")
