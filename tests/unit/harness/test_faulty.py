"""The launcher of daemons with faults."""

from __future__ import annotations

import subprocess
import sys


def test_a_fault_that_does_not_exist_is_refused() -> None:
    command = [sys.executable, "-m", "tests.support.daemons.faulty", "no_prune,no_such", "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("there is no fault no_such; there are crash_at_point, ")


def test_the_arguments_after_the_faults_are_the_daemons() -> None:
    command = [sys.executable, "-m", "tests.support.daemons.faulty", "no_prune,no_mount_beneath", "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0
    assert ended.stdout.startswith("holdfastd ")
