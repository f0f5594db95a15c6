"""Names that a hostile user chose, on the terminal of an administrator: nothing that a terminal obeys reaches it."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemons.node import Node, wait_until
from tests.support.processes.programs import holdfast
from tests.support.users.privileges import MALLORY

_NAMES = [
    "\x1b]0;owned\x07",
    "\x1b[2J\x1b[31mred",
    "\x9b31mc1",
    "first\n2026-01-01 00:00:00,000 ERROR holdfast: forged",
    "right\u202eto\u2066left",
    "[bold]markup[bold] :skull:",
    "zero\u200bwidth\u2028line",
]
_PR_SET_NAME = 15  # linux/prctl.h
_COMMAND = "\x1b[31mevil"


@pytest.fixture
def hostile(node: Node) -> Path:
    """A directory of Mallory's with her names in it, and a working directory that a process of her name holds."""
    directory = node.work / "plain"

    def prepare() -> None:
        directory.mkdir()
        for name in _NAMES:
            (directory / name).write_bytes(b"x")
        ctypes.CDLL(None).prctl(_PR_SET_NAME, _COMMAND.encode())
        (node.work / "driver_x").mkdir()

    MALLORY.do(prepare)
    node.wait_event("workdir-released", path="work/driver_x")
    return directory


def check(said: str) -> None:
    unprintable = {character for character in said if not character.isprintable()} - {"\n"}
    assert not unprintable, said
    assert not any(line.startswith("2026-01-01 00:00:00,000") for line in said.splitlines()), said


@pytest.mark.promise("terminals")
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_no_command_prints_what_a_terminal_obeys(node: Node, hostile: Path, options: tuple[str, ...]) -> None:
    """Gain: an administrator's terminal runs the attacker's sequences, or shows lines that Holdfast never wrote."""
    each = [hostile / name for name in _NAMES]
    commands: list[tuple[object, ...]] = [
        ("status",),
        ("events",),
        ("workdir", "ls"),
        ("ls", hostile),
        ("verify", hostile),
        ("prefetch", hostile),
        *(("stat", path) for path in each),
        *((verb, path) for path in each[:2] for verb in ("why", "pin", "unpin")),
    ]
    said = [holdfast(*command, *options, "--socket", node.socket) for command in commands]
    for text in said:
        check(text)
    assert "evil" in said[1]
    assert "markup[bold] :skull:" in said[3], "and names are not taken for markup"
    if options:
        shown = {entry["path"].rpartition("/")[2] for entry in json.loads(said[3])}
        assert shown == set(_NAMES), "JSON says the names as they are, by its escapes"


@pytest.mark.promise("terminals")
@pytest.mark.parametrize("name", [*_NAMES, "\x7f"])
def test_no_error_prints_what_a_terminal_obeys(node: Node, hostile: Path, name: str) -> None:
    """Gain: as above, where somebody runs a command on all that a pattern of the shell finds."""
    socket = ("--socket", node.socket)
    check(holdfast("evict", hostile / name, *socket, status=1) if name in _NAMES else "")
    check(holdfast("stat", hostile / f"missing{name}", *socket, status=1))
    check(holdfast("unpin", hostile / f"missing{name}", *socket, status=1))
    check(holdfast("checkpoint", "show", name, *socket, status=1))
    check(holdfast("workdir", "release", "--role", name, "--id", name, *socket, status=1))
    check(holdfast("pin", hostile / name, name, status=2))
    check(holdfast(name, status=2))
    check(holdfast("mount", "--set", name, status=1))
    check(holdfast("config", "show", environment={"HOLDFAST_CONFIG": f"/nowhere/{name}"}, status=1))
    if "\0" not in name:
        check(holdfast("config", "show", environment={"HOLDFAST_LOG__FILE": f"/tmp/{name}"}))
    daemon = subprocess.run(
        [sys.executable, "-m", "holdfast.daemon", name], capture_output=True, text=True, check=False, env=os.environ
    )
    check(daemon.stderr.replace(name, ""))


@pytest.mark.promise("terminals")
def test_a_name_forges_no_line_of_the_log(node: Node, hostile: Path) -> None:
    """Gain: the log says what never happened, or hides what did."""
    before = len(node.log.read_text().splitlines())
    MALLORY.do(lambda: os.rename(hostile, f"{hostile}-2"))
    with node.client() as client:
        for name in _NAMES:
            list(client.verify(f"{hostile}-2/{name}"))
    wait_until(lambda: len(node.log.read_text().splitlines()) >= before)
    check(node.log.read_text())
