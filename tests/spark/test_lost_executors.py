"""Tasks of an executor that is lost in mid-batch go where they were told to go, though another executor is free.

With standby copies that is where their state is, so it is not fetched.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pyspark
import pytest

from holdfast_spark.linking import jar_path
from tests.cluster.cluster import Cluster
from tests.cluster.settings import Settings
from tests.histories import lost_node
from tests.histories.placement import STANDBYS, build
from tests.support.spark import lost_executors_job
from tests.support.spark.programs import SHORT_JOBS, environment

pytestmark = pytest.mark.timeout(1200)

_KIND, _STATE_BYTES = "aggregation", 30_000_000
SETTINGS = {
    "spark.driver.extraClassPath": str(jar_path()),
    "spark.driver.extraJavaOptions": SHORT_JOBS,
    "spark.executor.extraJavaOptions": SHORT_JOBS,
    "spark.executor.memory": "512m",
    "spark.locality.wait": "120s",
    "spark.ui.enabled": "false",
}


def ran(workspace: Path, how: str, by: str, **more: str) -> tuple[list[str], list[list[str]]]:
    """Return the executors, the one that is lost first, and for each task those that it ran on."""
    words = [word for key, value in {**SETTINGS, **more}.items() for word in ("--conf", f"{key}={value}")]
    submit = [f"{Path(pyspark.__file__).parent}/bin/spark-submit", "--master", "local-cluster[3,1,640]", *words]
    result = subprocess.run(
        [*submit, lost_executors_job.__file__, how, by, str(workspace)],
        env=environment({}),
        cwd=workspace,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    found = json.loads(result.stdout.splitlines()[-1])
    return found["executors"], found["ran"]


@pytest.mark.parametrize(("mode", "by"), [("FIFO", "python"), ("FAIR", "companion")])
def test_tasks_of_an_executor_that_is_killed_go_where_they_were_told(workspace: Path, mode: str, by: str) -> None:
    (lost, second, third), tasks = ran(workspace, "kill", by, **{"spark.scheduler.mode": mode})
    assert tasks[0] == [lost, third], "it was in hand"
    assert tasks[3::3] == [[third], [third], [second]], "they waited"
    assert tasks[1::3] == [[second]] * 4
    assert tasks[2::3] == [[third]] * 4


def test_those_that_wait_for_an_executor_that_is_decommissioned_do_so_too(workspace: Path) -> None:
    (lost, second, third), tasks = ran(workspace, "decommission", "python")
    assert tasks[0] == [lost], "it may end"
    assert tasks[3::3] == [[third], [third], [second]]
    assert tasks[1::3] == [[second]] * 4
    assert tasks[2::3] == [[third]] * 4


def test_the_state_of_a_node_that_is_lost_in_mid_batch_is_not_fetched(disk: Path) -> None:
    patient = (("spark.locality.wait", "60s"),)  # or an executor that is idle takes tasks of a busy one
    settings = Settings(nodes=3, partitions=12, options=(*lost_node.FASTER, *STANDBYS), spark=patient)
    with Cluster.running(disk, settings) as cluster:
        build(cluster, _KIND, _STATE_BYTES)
        with lost_node.Follower.running(cluster, _KIND, every_seconds=5.0) as follower:
            follower.wait_for(2)
            turn = lost_node.turn(cluster, follower, lost_node.LOST, cluster.nodes[-1])
            assert turn.share_bytes > _STATE_BYTES / 4
            assert turn.part <= lost_node.MOST_FETCHED
