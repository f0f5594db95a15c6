"""A power cut of a node with two disks, each of which may be older than the other afterwards."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node
from tests.support.disks.power_cuts import KEPT
from tests.support.disks.two_disks import TwoDisks

SEED = int(os.environ.get("HOLDFAST_TEST_SEED", "1"))
KEPT_DIRECTORIES, REMOVED_DIRECTORIES = range(6), range(6, 8)


def write(node: Node, number: int) -> None:
    """Make a working directory with a file, and sync that alone."""
    workdir = node.work / f"worker_{number}"
    workdir.mkdir()
    with (workdir / "rocksdb/file").open("wb", buffering=0) as file:
        file.write(b"%d" % number * 10_000)
        os.fsync(file.fileno())


@pytest.mark.promise("power-cut")
@pytest.mark.parametrize("kept", KEPT)
def test_what_was_synced_is_there_whichever_disk_is_older(make_node: NodeFactory, workspace: Path, kept: float) -> None:
    disks = TwoDisks(workspace)
    first, other = disks.paths
    node = make_node(store__directory=first / "store", store__other_disks=other / "holdfast")
    with disks.serving(node):
        for number in (*KEPT_DIRECTORIES, *REMOVED_DIRECTORIES):
            write(node, number)
        assert len(os.listdir(other / "holdfast/workdirs")) > 2
        for number in REMOVED_DIRECTORIES:
            subprocess.run(["rm", "-r", str(node.work / f"worker_{number}")], check=True)
        disks.cut(node, SEED, kept)
    with disks.serving(node):
        for number in KEPT_DIRECTORIES:
            assert (node.work / f"worker_{number}/rocksdb/file").read_bytes() == b"%d" % number * 10_000
        for number in REMOVED_DIRECTORIES:  # or it is as if it had not been removed
            (node.work / f"worker_{number}").mkdir(exist_ok=True)
        assert len(os.listdir(node.work)) == len(KEPT_DIRECTORIES) + len(REMOVED_DIRECTORIES)
        write(node, 100)
