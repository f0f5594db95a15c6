"""A query whose node has its state on several disks: Spark's links between them fail, so it copies, and goes on right."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.disks.mounts import mounted_image
from tests.support.spark.flights_job import ROWS_OF_A_FILE, Job

LAST = 5


@pytest.mark.timeout(900)
def test_a_killed_job_goes_on_with_its_state_on_several_disks(job: Job, make_node: NodeFactory, workspace: Path) -> None:
    with ExitStack() as stack:
        first, *others = (
            stack.enter_context(mounted_image("ext4", workspace / name, size << 20))
            for name, size in (("disk1", 512), ("disk2", 2048), ("disk3", 2048))
        )
        for disk in others:
            (disk / "holdfast").mkdir()
        node = make_node(
            store__directory=first / "store",
            store__other_disks=",".join(str(disk / "holdfast") for disk in others),
            store__spread_cache=True,
        )
        stack.callback(node.start().clean_up)
        job.arrive(0, 2)
        job.run(node, LAST, kill_in=2)
        node.kill()
        node.start()
        job.arrive(3, LAST)
        job.run(node, LAST)
        assert all(os.listdir(disk / "holdfast/partitions") for disk in others)
        assert node.status().counters["misses"] == 0
        answer = job.differences()
        assert answer["flights"] == ROWS_OF_A_FILE * (LAST + 1)
        assert (answer["missing"], answer["wrong"]) == (0, 0)
