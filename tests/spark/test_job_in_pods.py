"""The demo's job with its driver in a container: whichever pod is killed in the middle of a batch, the answer is right."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.support.daemons.node import wait_until
from tests.support.kernel.needs import needs_takeover
from tests.support.kubernetes.container_node import container_node
from tests.support.kubernetes.holdfast_pods import HoldfastPods
from tests.support.spark.flights_job import ROWS_OF_A_FILE, Job

_LAST = 9
_GRACE_SECONDS = 60
_PATIENCE_SECONDS = 300.0


@pytest.fixture
def pods() -> Iterator[HoldfastPods]:
    with container_node() as node:
        yield HoldfastPods(node)


class DriverPod:
    """A driver of ``job`` in a pod of its own."""

    def __init__(self, pods: HoldfastPods, job: Job) -> None:
        command = [sys.executable, "-P", "-m", "holdfast_spark.pipeline", "--input", str(job.input)]
        command += ["--output", str(job.output), "--until", str(_LAST)]
        job.output.mkdir(exist_ok=True)
        self.pod = pods.spark(command, job.input.parent)

    def comes_to(self, batch: int) -> None:
        """Wait until it is in the middle of this batch, or of a later one."""
        self._wait_until(lambda: self._entered() >= batch)

    def ends(self) -> None:
        """Wait until it has done all batches."""
        self._wait_until(lambda: not self.pod.runs)
        assert self.pod.exit_code == 0, self.pod.log[-3000:]

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        wait_until(lambda: condition() or not self.pod.runs, _PATIENCE_SECONDS)
        assert condition(), self.pod.log[-3000:]

    def _entered(self) -> int:
        facts = (json.loads(line) for line in self.pod.output if line.endswith("}"))
        return max((int(fact.get("entered", -1)) for fact in facts), default=-1)


@needs_takeover
def test_the_answer_is_right_whichever_pod_is_killed_in_the_middle_of_a_batch(pods: HoldfastPods, job: Job) -> None:
    job.arrive(0, _LAST)
    keeper, daemon = pods.keeper(), pods.daemon()
    driver = DriverPod(pods, job)
    driver.comes_to(1)
    pods.kill_container(daemon)
    driver.comes_to(3)
    keeper.stop(0)
    keeper.remove()
    wait_until(lambda: not pods.is_kept())
    pods.keeper()
    wait_until(pods.is_kept)
    driver.comes_to(4)
    daemon.stop(_GRACE_SECONDS)
    daemon.remove()
    daemon = pods.daemon()
    driver.comes_to(6)
    driver.pod.stop(0)
    driver.pod.remove()
    driver = DriverPod(pods, job)
    driver.comes_to(7)
    pods.kill_daemon(daemon)
    driver.ends()
    assert pods.faults() == []
    answer = job.differences()
    assert answer["flights"] == ROWS_OF_A_FILE * (_LAST + 1)
    assert (answer["missing"], answer["wrong"]) == (0, 0)
