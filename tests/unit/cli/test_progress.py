"""Bars and rates at a terminal, and nothing of the kind anywhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

import pytest

_SCRIPT = """
import sys
from holdfast.cli.output import say
from holdfast.cli.progress import bar, waiting
as_json = len(sys.argv) > 1
with bar("fetching", as_json=as_json) as update:
    update(5, 10, 5 * 2**20)
with waiting("listing [the] store", as_json=as_json):
    pass
say("ended")
"""


def at_terminal(*arguments: str) -> str:
    """Return what the script writes to a terminal."""
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    command = [sys.executable, "-c", _SCRIPT, *arguments]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        said = b""
        with suppress(OSError):  # EIO: nobody has the other side open any more
            while part := os.read(ours, 65_536):
                said += part
        os.close(ours)
        assert process.wait(60) == 0
    return said.decode()


def test_a_terminal_shows_how_far_it_is_how_fast_and_how_long_still() -> None:
    said = at_terminal()
    for word in ("fetching", "5/10", "5.0 MiB", "/s", "listing [the] store", "0:00:0", "ended"):
        assert word in said


def test_a_terminal_shows_no_bar_around_json() -> None:
    assert at_terminal("--json") == "ended\r\n"


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_a_pipe_gets_the_result_alone(arguments: list[str]) -> None:
    said = subprocess.run([sys.executable, "-c", _SCRIPT, *arguments], capture_output=True, text=True, check=True)
    assert (said.stdout, said.stderr) == ("ended\n", "")
