"""Suites of the file-system world: pjdfstest for the calls, fsx for the data."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.daemons.node import Node
from tests.support.tools.cargo import installed
from tests.support.users.privileges import needs_root

FSX_STEPS = 3000
CONFIGURATION = """
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
allow_remount = false
expected_failures = []
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"""


@needs_root
def test_pjdfstest_in_a_working_directory(node: Node, workspace: Path) -> None:
    program = installed("pjdfstest", "0.2.2")
    configuration = workspace / "pjdfstest.toml"
    configuration.write_text(CONFIGURATION)
    directory = node.work / "posix_1" / "suite"
    directory.mkdir(parents=True)
    directory.chmod(0o777)
    with tempfile.TemporaryDirectory() as short:  # the path of a socket may have 107 bytes
        Path(short).chmod(0o755)
        path = Path(short, "suite")
        path.symlink_to(directory)
        done = subprocess.run([program, "-c", configuration, "-p", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, "\n".join(line for line in done.stdout.splitlines() if "FAILED" in line) or done.stderr
    assert " 0 failed" in done.stdout


@pytest.mark.parametrize("zone", ["work/posix_1", "checkpoints", "blobs"])
def test_fsx(node: Node, workspace: Path, zone: str) -> None:
    program = installed("fsx", "0.3.2")
    directory = node.mountpoint / zone / "suite"
    directory.mkdir(parents=True)
    command: list[str | Path] = [program, "-N", str(FSX_STEPS), "-S", "1", "-P", workspace, directory / "file"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
