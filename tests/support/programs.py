"""Programs that run until the test has seen enough."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
