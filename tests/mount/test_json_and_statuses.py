"""Each verb keeps one rule for ``--json``, errors and exit statuses: the one that docs/operations.md states."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from holdfast.cli import app as command
from holdfast.cli.app import app
from holdfast.cli.exit_status import HINTS, ExitStatus
from holdfast.control import unix_http
from tests.support.daemons.node import Node
from tests.support.users.privileges import as_nobody


class Result(NamedTuple):
    """What a command has printed, and its exit status."""

    returncode: int
    stdout: str
    stderr: str


OPERATIONS = (Path(__file__).parents[2] / "docs/operations.md").read_text()
FOLLOWS = {("stats",), ("top",), ("trace",), ("ui",)}
"""Verbs that go on until they are ended; they print one line of JSON for each thing that they tell."""
ENDS_THE_MOUNT = {("mount",), ("umount",), ("restart",), ("drain",)}
IS_A_SERVICE = {("keeper",)}
ARGUMENTS = {
    "batches": [],
    "checkpoint clone": ["{ck}/query", "{ck}/copy"],
    "checkpoint drop": ["{ck}/query/commits/0"],
    "checkpoint execute": ["{none}"],
    "checkpoint ls": ["{ck}"],
    "checkpoint plans": [],
    "checkpoint rewind": ["{ck}/query", "--to", "0"],
    "checkpoint show": ["20260101-000000-abcdef"],
    "checkpoint sweep": ["{ck}"],
    "checkpoint verify": ["{ck}/query"],
    "config reload": [],
    "config show": [],
    "doctor": [],
    "events": [],
    "evict": ["{ck}/file"],
    "flush": ["--all"],
    "holdings": [],
    "ls": ["{ck}"],
    "pin": ["{ck}/file"],
    "pins": [],
    "prefetch": ["{ck}/file"],
    "profile": ["--seconds", "0.1"],
    "stat": ["{ck}/file"],
    "status": [],
    "unpin": ["{ck}/file"],
    "verify": ["--all"],
    "wait": [],
    "why": ["{ck}/file"],
    "workdir acquire": ["--role", "worker", "--id", "1", "--pid", "{pid}"],
    "workdir ls": [],
    "workdir release": ["--role", "worker", "--id", "1"],
}
NOT_THERE = {
    "checkpoint clone": ["{ck}/none", "{ck}/copy"],
    "checkpoint drop": ["{ck}/none/commits/7"],
    "checkpoint execute": ["20260101-000000-abcdef"],
    "checkpoint rewind": ["{ck}/none", "--to", "0"],
    "checkpoint show": ["20260101-000000-abcdef"],
    "checkpoint verify": ["{ck}/none"],
    "evict": ["{none}"],
    "flush": ["{none}"],
    "holdings": ["{none}"],
    "ls": ["{none}"],
    "pin": ["{none}"],
    "prefetch": ["{none}"],
    "stat": ["{none}"],
    "umount": ["/etc"],
    "unpin": ["{none}"],
    "verify": ["{none}"],
    "why": ["{none}"],
    "workdir release": ["--role", "worker", "--id", "none"],
}


HAS_NO_DAEMON = {"config show", "doctor"}
GOES_ON = {
    "events": ["--follow"],
    "stats": [],
    "trace": ["{ck}"],
    "checkpoint execute": ["20260101-000000-abcdef"],
    "restart": [],
    "drain": [],
    "ui": ["--no-open"],
}
NO_NUMBERS = {
    "checkpoint rewind": ("--idle", ["{ck}/query", "--to", "0"]),
    "checkpoint sweep": ("--grace", ["{ck}"]),
    "drain": ("--timeout", []),
    "flush": ("--timeout", ["--all"]),
    "keeper": ("--abandon", ["{none}"]),
    "profile": ("--seconds", []),
    "stats": ("--interval", []),
    "trace": ("--slower-than", ["{ck}"]),
    "wait": ("--timeout", []),
}


def verbs(group: TyperGroup, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, each in group.commands.items():
        if isinstance(each, TyperGroup):
            yield from verbs(each, (*above, name))
        else:
            yield (*above, name)


def every_verb() -> list[tuple[str, ...]]:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    return sorted(verbs(group))


def run(*arguments: object, socket: Path) -> Result:
    """Run the command in this process, off a terminal: starting some hundred interpreters would take minutes."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        open(os.devnull) as nothing,
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", ["holdfast", *map(str, arguments)])
        patch.setattr(sys, "stdin", nothing)
        patch.setenv("HOLDFAST_SOCKET", str(socket))
        with pytest.raises(SystemExit) as ended:
            command.main()
    return Result(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def filled(arguments: list[str], node: Node) -> list[str]:
    places = {"ck": node.checkpoints, "none": node.checkpoints / "none", "pid": os.getpid()}
    return [each.format(**places) for each in arguments]


def error_of(result: Result) -> dict[str, object]:
    """Return the error that a command with ``--json`` has told, on one line of stderr and nowhere else."""
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    error: dict[str, object] = json.loads(line)["error"]
    assert error.keys() == {"code", "message", "hint", "status"}
    assert error["status"] == result.returncode
    return error


def test_every_verb_is_tried_here() -> None:
    tried = {tuple(each.split()) for each in ARGUMENTS}
    assert set(every_verb()) == tried | FOLLOWS | ENDS_THE_MOUNT | IS_A_SERVICE


@pytest.mark.parametrize("verb", every_verb(), ids=" ".join)
def test_every_verb_has_json_and_says_a_mistake_as_json(verb: tuple[str, ...], tmp_path: Path) -> None:
    result = run(*verb, "--json", "--no-such-option", socket=tmp_path / "none.sock")
    assert error_of(result)["code"] == "usage"
    assert result.returncode == ExitStatus.USAGE


def test_the_list_of_commands_cuts_no_sentence_off() -> None:
    commands = get_command(app)
    assert isinstance(commands, TyperGroup)
    for group in (commands, *commands.commands.values()):
        for name, each in getattr(group, "commands", {}).items():
            short = each.get_short_help_str(62)  # of 80 columns; the names take the others
            assert not short.endswith("..."), name


def test_every_verb_prints_one_document(node: Node) -> None:
    (node.checkpoints / "file").write_bytes(b"x")
    for verb, arguments in ARGUMENTS.items():
        result = run(*verb.split(), *filled(arguments, node), "--json", socket=node.socket)
        if result.returncode:
            assert verb.startswith("checkpoint "), f"{verb}: {result.stdout}{result.stderr}"  # there is no query yet
            error_of(result)
        else:
            json.loads(result.stdout)
            assert result.stderr == "", verb


def test_what_is_not_there_is_66_for_every_verb(node: Node) -> None:
    for verb, arguments in NOT_THERE.items():
        result = run(*verb.split(), *filled(arguments, node), "--json", socket=node.socket)
        assert result.returncode == ExitStatus.NOT_THERE, f"{verb}: {result.stderr}"
        error_of(result)
        plain = run(*verb.split(), *filled(arguments, node), socket=node.socket)
        assert (plain.returncode, plain.stdout, len(plain.stderr.splitlines())) == (66, "", 1), verb


@pytest.mark.parametrize("verb", [each for each in every_verb() if each != ("mount",)], ids=" ".join)
def test_without_a_daemon_it_is_69(verb: tuple[str, ...], tmp_path: Path) -> None:
    arguments = ARGUMENTS.get(" ".join(verb), ["/mnt/x"] if verb == ("trace",) else [])
    places = {"ck": "/mnt/x", "none": "20260101-000000-abcdef", "pid": os.getpid()}
    if verb in (("umount",), ("config", "show"), ("doctor",), ("wait",), *IS_A_SERVICE):
        return  # they go without one, or wait for it
    result = run(*verb, *(each.format(**places) for each in arguments), "--json", socket=tmp_path / "none.sock")
    assert (result.returncode, error_of(result)["code"]) == (ExitStatus.NO_DAEMON, "daemon-unreachable")


@pytest.mark.parametrize("verb", ["verify", "flush"])
def test_a_missing_argument_is_a_wrong_command_line(verb: str, tmp_path: Path) -> None:
    for arguments in ([], ["/mnt/x", "--all"]):
        result = run(verb, *arguments, "--json", socket=tmp_path / "none.sock")
        assert (result.returncode, error_of(result)["code"]) == (ExitStatus.USAGE, "usage")
        assert "give a PATH or --all" in str(error_of(result)["message"])


def test_what_cannot_be_a_mountpoint_is_a_wrong_value(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    for path, words in (("full", "is not empty"), ("full/file", "is not a directory"), ("", "no mountpoint: give one")):
        place = [tmp_path / path] if path else []
        result = run("mount", *place, "--store", tmp_path / "store", "--json", socket=tmp_path / "run/none.sock")
        assert (result.returncode, error_of(result)["code"]) == (ExitStatus.CONFIGURATION, "mountpoint-unusable"), path
        assert words in str(error_of(result)["message"])


def test_that_there_is_no_daemon_is_said_without_a_number(tmp_path: Path) -> None:
    result = run("status", socket=tmp_path / "none.sock")
    assert result.stderr.startswith(
        f"holdfast: no daemon answers on {tmp_path}/none.sock (No such file or directory); start one"
    )


def test_followed_events_are_lines(node: Node) -> None:
    following = [sys.executable, "-m", "holdfast", "events", "--follow", "--json", "--socket", str(node.socket)]
    with subprocess.Popen(following, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        first = json.loads(follower.stdout.readline())
        follower.kill()
    assert first["kind"] == "mounted"
    assert [each["kind"] for each in json.loads(run("events", "--json", socket=node.socket).stdout)] == ["mounted"]


def test_a_system_call_that_fails_is_one_line(tmp_path: Path) -> None:
    result = run("mount", "/mnt/x", "--config", tmp_path, "--json", socket=tmp_path / "none.sock")
    assert result.returncode == ExitStatus.CONFIGURATION
    assert "Traceback" not in result.stderr
    error_of(result)


def test_a_pin_is_of_something_and_is_listed(node: Node) -> None:
    path = node.checkpoints / "later"
    assert run("pins", socket=node.socket).stdout == "nothing is pinned\n"
    refused = run("pin", path, socket=node.socket)
    assert refused.stderr == (
        f"holdfast: there is no {path}; to pin it before it exists: --future ('future' in a request)\n"
    )
    assert run("pin", "--future", path, socket=node.socket).stdout == f"pinned {path}\n"
    assert run("pins", socket=node.socket).stdout == f"{path}\n"
    assert json.loads(run("pins", "--json", socket=node.socket).stdout) == [{"path": str(path)}]
    assert run("unpin", path, socket=node.socket).returncode == 0
    assert run("unpin", path, socket=node.socket).returncode == ExitStatus.NOT_THERE


def test_each_status_has_a_hint_and_a_row() -> None:
    assert HINTS.keys() == set(ExitStatus)
    table = OPERATIONS[OPERATIONS.index("## Exit statuses") :].partition("\n## ")[0]
    for status in ExitStatus:
        assert re.search(rf"^\|[ \d,]*\b{status}\b[ \d,]*\|", table, re.MULTILINE), status


def test_nobody_is_told_that_it_is_a_matter_of_rights(node: Node, capfd: pytest.CaptureFixture[str]) -> None:
    def ask() -> None:
        sys.argv = ["holdfast", "pin", str(node.checkpoints), "--json", "--socket", str(node.socket)]
        with pytest.raises(SystemExit) as ended:
            command.main()
        assert ended.value.code == ExitStatus.NO_RIGHT

    as_nobody(ask)
    assert json.loads(capfd.readouterr().err)["error"]["code"] == "socket-forbidden"


@pytest.mark.parametrize("number", ["nan", "inf", "-1", "1e12", "soon", ""])
@pytest.mark.parametrize("verb", NO_NUMBERS)
def test_a_length_of_time_that_is_none_is_told_on_one_line(verb: str, number: str, tmp_path: Path) -> None:
    option, arguments = NO_NUMBERS[verb]
    given = [each.format(ck="/mnt/checkpoints", none=tmp_path) for each in arguments]
    result = run(*verb.split(), *given, option, number, "--json", socket=tmp_path / "none.sock")
    if verb == "keeper":  # it has no --json
        result = run(*verb.split(), *given, option, number, socket=tmp_path / "none.sock")
        assert (result.returncode, result.stdout) == (ExitStatus.USAGE, "")
        assert f"{number!r} is no number from 0 to 1,000,000,000" in " ".join(result.stderr.split())
        return
    error = error_of(result)
    assert (error["code"], error["status"]) == ("usage", ExitStatus.USAGE)
    assert f"'{option}': {number!r} is no number from " in str(error["message"])


def test_no_verb_waits_for_a_daemon_that_is_stopped(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix_http, "_QUIET_SECONDS", 0.05)
    monkeypatch.setattr(unix_http, "_LIFE_SECONDS", 0.2)
    asked = {verb: arguments for verb, arguments in (ARGUMENTS | GOES_ON).items() if verb not in HAS_NO_DAEMON}
    asked["wait"] = ["--timeout", "0"]
    pid = node.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        for verb, arguments in asked.items():
            result = run(*verb.split(), *filled(arguments, node), "--json", socket=node.socket)
            error = error_of(result)
            assert (verb, error["code"], error["status"]) == (verb, "daemon-silent", ExitStatus.NO_DAEMON)
            assert f"it is stopped (SIGSTOP, or a debugger); 'kill -CONT {pid}' lets it go on" in str(error["message"])
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_mount_whose_daemon_is_stopped_is_taken_away_at_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix_http, "_QUIET_SECONDS", 0.05)
    monkeypatch.setattr(unix_http, "_LIFE_SECONDS", 0.2)
    pid = node.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        result = run("umount", "--lazy", node.mountpoint, socket=node.socket)
        assert result.returncode == 0
        assert result.stdout.startswith(f"unmounted {node.mountpoint}\n")
        assert result.stderr.startswith(f"holdfast: warning: its end is not waited for: the daemon {pid} behind ")
    finally:
        os.kill(pid, signal.SIGCONT)
    node.wait_end()
