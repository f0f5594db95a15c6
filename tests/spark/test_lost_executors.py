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
    "spark.sql.shuffle.partitions": "12",
    "spark.ui.enabled": "false",
}
PATIENT = {"spark.locality.wait": "3600s"}
"""So a task that waits for an executor which is gone would wait until the test is given up."""


def ran(workspace: Path, how: str, by: str = "python", **more: str) -> tuple[list[str], list[list[str]], int]:
    """Return the executors, the one that is lost first, those that each task ran on, and how often the stage was begun."""
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
    return found["executors"], found["ran"], found["attempts"]


def of(executor: str, executors: list[str], tasks: list[list[str]]) -> list[list[str]]:
    """Return what the tasks ran on that belong to an executor: each has every third partition."""
    return tasks[sorted(executors).index(executor) :: len(executors)]


@pytest.mark.parametrize(("mode", "by"), [("FIFO", "python"), ("FAIR", "companion")])
def test_tasks_of_an_executor_that_is_killed_go_where_they_were_told(workspace: Path, mode: str, by: str) -> None:
    executors, tasks, attempts = ran(workspace, "kill", by, **{"spark.scheduler.mode": mode}, **PATIENT)
    lost, second, third = executors
    in_hand, waiting, with_nobody, last = of(lost, executors, tasks)
    assert (in_hand, waiting, last) == ([lost, third], [third], [second])
    assert with_nobody in ([second], [third]), "its state is nowhere else: it waits for nobody"
    assert of(second, executors, tasks) == [[second]] * 4
    assert of(third, executors, tasks) == [[third]] * 4
    assert attempts == 1


def test_those_that_wait_for_an_executor_that_is_decommissioned_do_so_too(workspace: Path) -> None:
    executors, tasks, _ = ran(workspace, "decommission", **PATIENT)
    lost, second, third = executors
    in_hand, waiting, with_nobody, last = of(lost, executors, tasks)
    assert (in_hand, waiting, last) == ([lost], [third], [second]), "what is in hand may end"
    assert with_nobody in ([second], [third])
    assert of(second, executors, tasks) == [[second]] * 4
    assert of(third, executors, tasks) == [[third]] * 4


def test_a_stage_that_is_run_again_begins_where_its_state_is(workspace: Path) -> None:
    executors, tasks, attempts = ran(workspace, "again", **PATIENT)
    lost, second, third = executors
    in_hand, waiting, with_nobody, last = (each[-1] for each in of(lost, executors, tasks))
    assert attempts > 1
    assert (in_hand, waiting, last) == (third, third, second)
    assert with_nobody in (second, third)
    assert {each[-1] for each in of(second, executors, tasks)} == {second}
    assert {each[-1] for each in of(third, executors, tasks)} == {third}


def test_the_one_task_of_an_operator_that_is_not_divided_goes_with_the_first_partition(workspace: Path) -> None:
    (lost, _, third), (task,), attempts = ran(workspace, "undivided", **PATIENT)
    assert attempts > 1, "the stage before has lost a part of its output"
    assert task[0] == lost
    assert set(task[1:]) == {third}


def test_a_task_is_not_taken_by_an_idle_executor_while_the_one_that_has_its_state_is_busy(workspace: Path) -> None:
    executors, tasks, _ = ran(workspace, "busy")
    for executor in executors:
        assert of(executor, executors, tasks) == [[executor]] * 4


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
