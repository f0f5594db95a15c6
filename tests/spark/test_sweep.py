"""A real query under sweeps: after a kill, while it runs, before another node takes over. The answer stays right."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from holdfast.control.messages import DropRequest, PlanInfo, SweepRequest
from tests.conftest import NodeFactory
from tests.mount.test_checkpoint_hooks import execute
from tests.support.daemons.node import Node
from tests.support.spark import garbage as spark_garbage
from tests.support.spark.flights_job import ROWS_OF_A_FILE, Job

pytestmark = pytest.mark.timeout(900)  # a minute each where nobody else is at work
GRACE_SECONDS = 120.0
"""Longer than a batch of this job takes on any machine that runs these tests."""


def sweep(node: Node, grace_seconds: float) -> PlanInfo:
    with node.client() as client:
        request = SweepRequest(path=str(node.checkpoints), grace_seconds=grace_seconds, abandoned_seconds=grace_seconds)
        return execute(client, client.plan_sweep(request), at_once=True)


def test_a_query_goes_on_through_sweeps_whenever_they_come(job: Job, make_node: NodeFactory, remote_files: Path) -> None:
    node = make_node("first").start()
    job.arrive(0, 2)
    job.run(node, 8, kill_in=2)
    planted = spark_garbage.plant(remote_files / "flights", 0)
    first = sweep(node, 0.0)
    assert first.kept == []
    assert not [path for path in planted if path.exists()]

    job.arrive(3, 5)
    planted = spark_garbage.plant(remote_files / "flights", 0, age_days=1)
    ended = threading.Event()
    sweeps: list[PlanInfo] = []

    def keep_sweeping() -> None:
        while not ended.is_set():
            sweeps.append(sweep(node, GRACE_SECONDS))

    sweeper = threading.Thread(target=keep_sweeping)
    sweeper.start()
    try:
        job.run(node, 5)
    finally:
        ended.set()
        sweeper.join()
    assert len(sweeps) > 1
    assert sum(each.removed for each in sweeps) == len(planted)
    assert not [path for path in planted if path.exists()]

    node.kill()
    node.lose_disk()
    other = make_node("other").start()
    assert sweep(other, 0.0).kept == []
    job.arrive(6, 8)
    job.run(other, 8)
    answer = job.differences()
    assert answer["flights"] == ROWS_OF_A_FILE * 9
    assert (answer["missing"], answer["wrong"]) == (0, 0)
    sweep(other, 0.0)
    assert sweep(other, 0.0).count == 0, "nothing is left for a second one"


def test_a_query_goes_on_after_batches_were_dropped(job: Job, make_node: NodeFactory, remote_files: Path) -> None:
    node = make_node("first").start()
    job.arrive(0, 7)
    job.run(node, 7)
    with node.client() as client:
        commit = node.checkpoints / "flights/commits/3"
        plan = client.plan_drop(DropRequest(path=str(commit), up_to=True))
        execute(client, plan)
    there = sorted(int(name) for name in os.listdir(remote_files / "flights/commits") if name.isdigit())
    assert there == [4, 5, 6, 7]
    sweep(node, 0.0)
    node.stop()
    node.lose_disk()
    other = make_node("other").start()
    job.arrive(8, 8)
    job.run(other, 8)
    answer = job.differences()
    assert answer["flights"] == ROWS_OF_A_FILE * 9
    assert (answer["missing"], answer["wrong"]) == (0, 0)
