"""A driver that loses one of its three executors, of a core each, in the middle of a job.

Its arguments: ``kill`` or ``decommission``; ``python`` or ``companion``, the way in which the scheduler is told; a path.
Each executor is home to four of twelve tasks, and has one in hand then. Prints a line of JSON: the executors that each task
ran on, in turn.

The scheduler knows where the first executor's tasks go then: to the third executor, but for the last one of them, which goes
to an executor that is not there, or else to the second.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from holdfast_spark.placement.cluster import Cluster
from holdfast_spark.placement.driver import Executor, words_of_further_places
from holdfast_spark.placement.fetch_ahead import on_hosts
from tests.cluster.occupying import elements
from tests.support.daemons.node import wait_until

_RUN = "a-run"
_START_SECONDS = 480.0
_POLL_SECONDS = 0.05
_EXECUTORS, _TASKS = 3, 12


def main() -> None:
    how, by, directory = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    spark = SparkSession.builder.getOrCreate()
    context: Any = spark.sparkContext
    cluster = Cluster(spark)
    wait_until(lambda: len(cluster.executors()) == _EXECUTORS, _START_SECONDS)
    lost, second, third = (executor._replace(node=f"node-{executor.id}") for executor in sorted(cluster.executors()))
    homes = [lost, second, third] * (_TASKS // _EXECUTORS)
    nobody = Executor("nobody", "127.0.0.1", 1)
    places = [[home.place, third.place] for home in homes]
    places[-_EXECUTORS] = [lost.place, nobody.place, second.place, third.place]
    if by == "python":
        cluster.tell_further_places(_RUN, [lost, second, third, nobody], {_TASKS: places})
    else:
        _tell_as_companion(context, words_of_further_places(_RUN, [lost, second, third, nobody], {_TASKS: places}))
    (directory / "hold").touch()
    job = threading.Thread(target=_run, args=(spark, homes, directory))
    job.start()
    wait_until(lambda: len(list(directory.glob("waits-*"))) == _EXECUTORS, _START_SECONDS)
    if how == "decommission":
        why = context._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("a test", context._jvm.scala.Option.empty())
        assert context._jsc.sc().schedulerBackend().decommissionExecutor(lost.id, why, False, False)
    else:
        cluster.prepare()
        assert context._jsc.sc().killExecutor(lost.id)
        wait_until(lambda: cluster.lost(0) == lost.id, _START_SECONDS)
    (directory / "hold").unlink()
    job.join()
    print(json.dumps({"executors": [lost.id, second.id, third.id], "ran": _ran(context)}), flush=True)
    spark.stop()


def _tell_as_companion(context: Any, words: Iterable[str]) -> None:
    """Let the plugin's class answer what the process beside a driver without Python asks."""
    jvm, gateway = context._jvm, context._gateway
    internals = jvm.java.lang.Class.forName("io.holdfast.spark.SparkInternals")
    (constructor,) = internals.getDeclaredConstructors()
    (answer,) = (method for method in internals.getDeclaredMethods() if method.getName() == "answer")
    constructor.setAccessible(True)
    answer.setAccessible(True)
    made = constructor.newInstance(_array(gateway, jvm.Object, [context._jsc.sc()]))
    about = _array(gateway, jvm.String, list(words))
    assert list(answer.invoke(made, _array(gateway, jvm.Object, ["further-places", about]))) == [str(_TASKS)]


def _array(gateway: Any, kind: Any, elements: list[Any]) -> Any:
    array = gateway.new_array(kind, len(elements))
    for number, element in enumerate(elements):
        array[number] = element
    return array


def _run(spark: SparkSession, homes: list[Executor], directory: Path) -> None:
    """Run a task for each element of ``homes``, which has its location there."""
    context: Any = spark.sparkContext
    context.setJobGroup(_RUN, "a test")  # of this thread
    rdd = on_hosts(spark, [(number, f"executor_{home.host}_{home.id}") for number, home in enumerate(homes)])
    assert rdd.mapPartitions(lambda numbers: _wait(numbers, directory)).count() == len(homes)


def _wait(numbers: Iterable[int], directory: Path) -> Iterator[int]:
    """Tell that a task waits, and wait while there is a file ``hold``."""
    for number in numbers:
        (directory / f"waits-{number}").touch()
        while (directory / "hold").exists():
            time.sleep(_POLL_SECONDS)
        yield number


def _ran(context: Any) -> list[list[str]]:
    (job,) = context.statusTracker().getJobIdsForGroup(_RUN)
    (stage,) = context.statusTracker().getJobInfo(job).stageIds
    tasks = elements(context._jsc.sc().statusStore().taskList(int(stage), 0, 2 * _TASKS))
    ran: list[list[str]] = [[] for _ in range(_TASKS)]
    for task in sorted(tasks, key=lambda task: int(task.attempt())):
        ran[int(task.index())].append(str(task.executorId()))
    return ran


if __name__ == "__main__":
    main()
