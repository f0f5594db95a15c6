"""Commands with odd outputs and terminals: none ends in a traceback, and the exit status tells what went wrong."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from holdfast.cli.exit_status import ExitStatus
from holdfast.cli.output import NOBODY_READS
from tests.support.daemons.node import Node

INTERRUPTED = 130
COMMANDS = (
    ["status"],
    ["config", "show"],
    ["verify", "--all"],
    ["stats", "--count", "1", "--interval", "0.1"],
    ["--help"],
)
HOLDFAST = (sys.executable, "-P", "-m", "holdfast")


def commands() -> Iterator[list[str]]:
    for words in COMMANDS:
        yield [*HOLDFAST, *words]
        if words != ["--help"]:
            yield [*HOLDFAST, *words, "--json"]


def run(command: list[str], node: Node, stdout: int | None = None, **environment: str) -> subprocess.CompletedProcess[bytes]:
    variables = {**os.environ, "HOLDFAST_SOCKET": str(node.socket), **environment}
    where = subprocess.PIPE if stdout is None else stdout
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=where, stderr=subprocess.PIPE, check=False, env=variables
    )


def test_nobody_reads_the_output(node: Node) -> None:
    for command in commands():
        reader, writer = os.pipe()
        os.close(reader)
        told = run(command, node, writer)
        os.close(writer)
        assert (command, told.returncode, told.stderr) == (command, NOBODY_READS, b"")


def test_the_output_can_not_be_written(node: Node) -> None:
    for command in commands():
        with open("/dev/full", "wb") as full:
            told = run(command, node, full.fileno())
        assert (command, told.returncode) == (command, ExitStatus.STORE_OR_DISK)
        assert told.stderr.count(b"\n") == 1
        assert b"No space left on device" in told.stderr


def test_the_streams_are_closed(node: Node) -> None:
    for command in commands():
        told = run(["sh", "-c", '"$@" >&-', "sh", *command], node)
        assert (command, told.returncode) == (command, ExitStatus.STORE_OR_DISK)
        assert told.stderr.count(b"\n") == 1
        assert b"the output can't be written: Bad file descriptor" in told.stderr
        all_closed = run(["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *command], node)
        assert (command, all_closed.returncode) == (command, ExitStatus.STORE_OR_DISK)


def test_the_encoding_has_none_of_our_signs(node: Node) -> None:
    for command in commands():
        told = run(command, node, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii")
        assert (command, told.returncode, told.stderr) == (command, 0, b"")
        assert told.stdout.isascii()


def test_the_environment_is_empty(node: Node) -> None:
    for command in commands():
        variables = {"HOLDFAST_SOCKET": str(node.socket), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        told = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, env=variables)
        assert (command, told.returncode, told.stderr) == (command, 0, b"")


def test_the_daemons_own_program_tells_of_its_output_in_the_same_way() -> None:
    for words in (["--help"], ["--version"]):
        daemon = [sys.executable, "-P", "-m", "holdfast.daemon", *words]
        for script, status in (('"$@" >/dev/full', 74), ('"$@" >&-', 74), ('"$@" <&- >&- 2>&-', 74)):
            told = subprocess.run(["sh", "-c", script, "sh", *daemon], capture_output=True, check=False)
            assert (words, script, told.returncode) == (words, script, status)
            assert b"Traceback" not in told.stderr
        reader, writer = os.pipe()
        os.close(reader)
        told = subprocess.run(daemon, stdout=writer, stderr=subprocess.PIPE, check=False)
        os.close(writer)
        assert (words, told.returncode, told.stderr) == (words, NOBODY_READS, b"")


def on_terminal(command: list[str], node: Node, columns: int, name: str, until: bytes = b"") -> tuple[int, bytes]:
    """Run a command on a terminal; return its status and output. Ctrl-C is typed when ``until`` has been printed."""
    with ExitStack() as closing:
        ours, theirs = pty.openpty()
        closing.callback(os.close, ours)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        variables = {**os.environ, "HOLDFAST_SOCKET": str(node.socket), "TERM": name, "COLUMNS": str(columns)}
        started = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *command], stdin=theirs, stdout=theirs, stderr=theirs, env=variables
        )
        os.close(theirs)
        output = b""
        with suppress(OSError):  # EIO when all of its side is closed
            while part := os.read(ours, 65536):
                output += part
                if until and until in output:
                    os.write(ours, b"\x03")
                    until = b""
        return started.wait(), output


@pytest.mark.parametrize("columns", [10, 1])
def test_the_terminal_is_narrow(columns: int, node: Node) -> None:
    for command in commands():
        status, output = on_terminal(command, node, columns, "xterm")
        assert (command, status) == (command, 0)
        assert b"Traceback" not in output


@pytest.mark.parametrize("name", ["dumb", ""])
def test_the_terminal_takes_no_escape_sequences(name: str, node: Node) -> None:
    for command in commands():
        status, output = on_terminal(command, node, 80, name)
        assert (command, status) == (command, 0)
        assert b"\x1b" not in output


def test_ctrl_c_ends_what_goes_on_without_a_traceback(node: Node) -> None:
    for words, until, status in (
        (["events", "--follow"], b"mounted", INTERRUPTED),
        (["stats", "--interval", "0.1"], b"calls/s", 0),
        (["ui", "--no-open"], b"ends with this command", 0),
    ):
        ended, output = on_terminal([*HOLDFAST, *words], node, 80, "xterm", until)
        assert (words, ended) == (words, status)
        assert b"Traceback" not in output
        assert b"KeyboardInterrupt" not in output
