"""What a command exits with, by kind of error."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.cli.exit_status import ExitStatus, exit_status
from holdfast.control.client import RefusedError
from holdfast.control.messages import Failure
from holdfast.errors import HoldfastError

PAGE = (Path(__file__).parents[3] / "docs/operations.md").read_text()
KINDS = {
    errors.DaemonUnreachableError: ExitStatus.NO_DAEMON,
    errors.NotInstalledError: ExitStatus.NO_DAEMON,
    errors.SocketForbiddenError: ExitStatus.NO_RIGHT,
    errors.WithheldError: ExitStatus.NO_RIGHT,
    errors.NoSuchEntryError: ExitStatus.NOT_THERE,
    errors.OutsideMountError: ExitStatus.NOT_THERE,
    errors.LeaseHeldError: ExitStatus.BUSY,
    errors.FileBusyError: ExitStatus.BUSY,
    errors.PlanOutdatedError: ExitStatus.BUSY,
    errors.ConfigurationError: ExitStatus.CONFIGURATION,
    errors.RemoteUnavailableError: ExitStatus.STORE_OR_DISK,
    errors.ObjectMissingError: ExitStatus.STORE_OR_DISK,
    errors.CacheFullError: ExitStatus.STORE_OR_DISK,
    errors.DrainingError: ExitStatus.STORE_OR_DISK,
    HoldfastError: ExitStatus.FAILED,
}


_CTRL_C_WHILE_IT_WAITS = """
import os, signal, sys
from holdfast.cli import app

def look(_, frame):
    while frame and not frame.f_code.co_filename.endswith("cli/waiting.py"):
        frame = frame.f_back
    if frame:
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.kill(os.getpid(), signal.SIGINT)

sys.argv = ["holdfast", *sys.argv[1:]]
signal.signal(signal.SIGALRM, look)
signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
app.main()
"""


@pytest.mark.parametrize(("kind", "status"), KINDS.items(), ids=lambda each: getattr(each, "__name__", str(each)))
def test_each_kind_has_its_status_whoever_raises_it(kind: type[HoldfastError], status: ExitStatus) -> None:
    assert exit_status(kind("why")) is status
    assert exit_status(RefusedError(Failure(code=kind.code, errno=kind.errno, message="why"))) is status


def test_the_page_has_a_row_for_each_status() -> None:
    table = PAGE[PAGE.index("## Exit statuses") :].partition("\n## ")[0]
    named = {int(number) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for number in row.split(",")}
    assert named == {0, 2, 3, 4, 130, 141, *map(int, ExitStatus)}


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_output_that_nobody_reads_ends_the_command(form: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as unread:
        command = [sys.executable, "-m", "holdfast", "config", "show", *form]
        ended = subprocess.run(command, stdout=unread, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (141, "")


def test_a_wrong_command_line_and_ctrl_c_have_theirs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast"]
    assert subprocess.run([*command, "status", "--no-such"], capture_output=True, check=False).returncode == 2
    waits = [*command, "wait", "--timeout", "60", "--socket", str(tmp_path / "none.sock")]
    ended = subprocess.run(
        [sys.executable, "-c", _CTRL_C_WHILE_IT_WAITS, *waits[3:]], capture_output=True, check=False, timeout=60
    )
    assert ended.returncode == 130, ended.stderr
