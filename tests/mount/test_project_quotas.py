"""Project quotas of the disk limit a working directory exactly (docs/install.md, "Exact limits")."""

from __future__ import annotations

import errno
import os
import subprocess
from io import FileIO
from pathlib import Path

import pytest

from tests.support.daemons.node import Node

MIB = 2**20
LIMIT_BYTES = 20 * MIB
PROJECT = "4711"


@pytest.fixture
def quota_mountpoint(workspace: Path) -> str:
    """The mountpoint of the XFS with project quotas on which the store lies; the test is skipped where it is none."""
    found = subprocess.run(
        ["findmnt", "-no", "TARGET,FSTYPE,OPTIONS", "-T", workspace], capture_output=True, text=True, check=True
    )
    target, kind, options = found.stdout.split()
    if kind != "xfs" or "prjquota" not in options.split(","):
        pytest.skip("needs an XFS that is mounted with prjquota: ./run kernels 6.1 --disk xfs --options prjquota")
    return target


def test_a_directory_takes_no_more_than_its_project_may(node: Node, quota_mountpoint: str) -> None:
    limited, other = node.work / "worker_1", node.work / "worker_2"
    for path in (limited, other):
        path.mkdir()
    directory = node.store / "tree/work/worker_1"
    subprocess.run(["chattr", "-R", "+P", "-p", PROJECT, directory], check=True)
    limit = f"limit -p bhard={LIMIT_BYTES} {PROJECT}"
    subprocess.run(["xfs_quota", "-x", "-c", limit, quota_mountpoint], check=True)
    with (limited / "localState/file").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space") as refused:
        fill(file)
    taken = (limited / "localState/file").stat().st_size
    assert refused.value.errno == errno.ENOSPC  # XFS's word for a project that may take no more
    assert LIMIT_BYTES - MIB <= taken <= LIMIT_BYTES
    (other / "localState/file").write_bytes(os.urandom(2 * LIMIT_BYTES))
    (limited / "localState/file").unlink()
    (limited / "localState/again").write_bytes(os.urandom(LIMIT_BYTES // 2))


def fill(file: FileIO) -> None:
    """Write twice what the project may have."""
    for _ in range(2 * LIMIT_BYTES // MIB):
        file.write(os.urandom(MIB))
