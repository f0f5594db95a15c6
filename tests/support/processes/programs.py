"""Programs: the holdfast command, and some that run until the test has seen enough."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from holdfast.cli.exit_status import ExitStatus
from tests.support.processes.forked_programs import forked_command


def holdfast(*arguments: object, environment: Mapping[str, str] | None = None, status: int = 0) -> str:
    """Run the command; return what it prints, also on stderr. A ``status`` of 1 stands for any kind of error."""
    words, variables = list(map(str, arguments)), {**os.environ, **(environment or {})}
    ran = forked_command(words, variables)
    if ran is None:
        command = [sys.executable, "-m", "holdfast", *words]
        result = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
        ran = result.returncode, result.stdout, result.stderr
    said = ran[1] + ran[2]
    assert is_status(ran[0], status), said
    return said


def is_status(found: int, expected: int) -> bool:
    """Say whether a command exited as expected; 1 stands for any kind of error (``holdfast.cli.exit_status``)."""
    return found == expected or (expected == 1 and found in set(ExitStatus) - {ExitStatus.USAGE})


def copied_program(path: Path) -> bytes:
    """Copy a program to ``path``, which runs for ever (``running``); return its bytes."""
    sleep = shutil.which("sleep")
    assert sleep is not None
    shutil.copy(sleep, path)
    return Path(sleep).read_bytes()


@contextmanager
def running(program: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a copied program; SIGKILL it at the end."""
    with subprocess.Popen([program, "infinity"]) as process:
        try:
            yield process
        finally:
            process.kill()
