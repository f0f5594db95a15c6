"""A driver that loses one of its three executors, of a core each, in the middle of a streaming query's batch.

Its arguments: the scenario; ``python`` or ``companion``, the way in which the scheduler is told; a path. Each executor is
home to four of the state's twelve partitions, and has a task in hand then. Prints a line of JSON: the executors, the one
that is lost first; those that the task of each partition ran on, in turn; and how often the stage was begun.

- ``kill``, ``decommission``: the scheduler knows where the tasks of the lost executor go. That is to the third executor, but
  for its last two: nobody else has the state of the one, and the other goes to an executor that is not there, or else to the
  second.
- ``again``: what is killed has the only output of the stage before, so Spark runs both stages again.
- ``undivided``: a second operator has one partition, and its stage one task; its executor is killed.
- ``busy``: none is lost, but one is busy with its first task, and the others have nothing to do.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from holdfast_spark.placement.cluster import Cluster
from holdfast_spark.placement.driver import Executor, FurtherPlaces, Instance, words_of_further_places
from holdfast_spark.placement.fetch_ahead import on_hosts
from tests.cluster.occupying import elements
from tests.support.daemons.node import wait_until

_START_SECONDS = 480.0
_POLL_SECONDS = 0.05
_EXECUTORS, _PARTITIONS = 3, 12
_KEYS = 600
_LONG_SECONDS = 3600


def main() -> None:
    scenario, by, directory = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    spark = SparkSession.builder.getOrCreate()
    cluster = Cluster(spark)
    wait_until(lambda: len(cluster.executors()) == _EXECUTORS, _START_SECONDS)
    executors = [_alone(executor) for executor in sorted(cluster.executors())]
    homes = executors * (_PARTITIONS // _EXECUTORS)
    (directory / "input").mkdir()
    rows = spark.readStream.schema("k int").csv(str(directory / "input")).dropDuplicates(["k"])
    rows = rows.limit(_KEYS) if scenario == "undivided" else rows
    writer = rows.writeStream.foreachBatch(partial(_work, directory))
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).start()
    known = cluster.query(str(query.id))
    assert known is not None
    places = [Instance(operator, number, "default", home) for operator in (0, 1) for number, home in enumerate(homes)]
    cluster.tell(known, str(query.runId), places)
    stage = _Stage(spark, str(query.runId))
    if scenario == "busy":
        (lost, *others) = executors
        places_alone = [[home.place] for home in homes]
        cluster.tell_further_places(stage.run, FurtherPlaces(executors, [_PARTITIONS], places_alone, _LONG_SECONDS))
        _leave_idle(spark, lost, directory)
    else:
        (directory / "hold").touch()
        _put_input(directory)
        held = 1 if scenario == "undivided" else _EXECUTORS
        wait_until(lambda: len(list(directory.glob("waits-*"))) == held, _START_SECONDS)
        (before,) = (executor for executor in executors if executor.id == stage.ran_before())
        lost = {"again": before, "undivided": homes[0]}.get(scenario) or next(each for each in executors if each != before)
        others = [executor for executor in executors if executor != lost]
        _tell(spark, cluster, by, stage.run, _places(executors, homes, lost))
        _lose(spark, cluster, lost, is_killed=scenario != "decommission")
        (directory / "hold").unlink()
    query.processAllAvailable()
    ran, attempts = stage.ran()
    print(json.dumps({"executors": [each.id for each in (lost, *others)], "ran": ran, "attempts": attempts}), flush=True)
    query.stop()
    spark.stop()


def _alone(executor: Executor) -> Executor:
    """Return an executor on a host of its own, as Spark is told.

    They are all on one, and where a task without a location waits, Spark offers those of a host to any executor there.
    """
    return executor._replace(host=f"host-{executor.id}", node=f"node-{executor.id}")


def _work(directory: Path, frame: DataFrame, number: int) -> None:
    frame.rdd.mapPartitions(partial(_wait, directory)).count()


def _wait(directory: Path, rows: Iterable[Any]) -> Iterator[Any]:
    """Tell that a task waits, and wait while there is a file ``hold``, or one for this task alone."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    number = context.partitionId()
    (directory / f"waits-{number}").touch()
    while (directory / "hold").exists() or (directory / f"hold-{number}").exists():
        time.sleep(_POLL_SECONDS)
    yield from rows
    (directory / f"done-{number}").touch()


def _put_input(directory: Path) -> None:
    hidden = directory / "input/.first"
    hidden.write_text("".join(f"{key}\n" for key in range(_KEYS)))
    hidden.rename(directory / "input/first.csv")


def _leave_idle(spark: SparkSession, busy: Executor, directory: Path) -> None:
    """Keep one executor at its first task until the others have been idle for as long as Spark waits for an executor.

    A task of another job tells when that is: it belongs to the busy one, and waits from a later moment on.
    """
    (directory / "hold-0").touch()
    _put_input(directory)
    others = _PARTITIONS - _PARTITIONS // _EXECUTORS
    wait_until(lambda: len(list(directory.glob("done-*"))) == others, _START_SECONDS)
    assert on_hosts(spark, [(0, f"executor_{busy.host}_{busy.id}")]).count() == 1
    (directory / "hold-0").unlink()


def _places(executors: list[Executor], homes: list[Executor], lost: Executor) -> FurtherPlaces:
    second, third = (executor for executor in executors if executor != lost)
    nobody = Executor("nobody", "127.0.0.1", 1)
    places = [[home.place, third.place] for home in homes]
    *_, alone, last = (number for number, home in enumerate(homes) if home == lost)
    places[alone] = [lost.place]
    places[last] = [lost.place, nobody.place, second.place, third.place]
    return FurtherPlaces([*executors, nobody], [_PARTITIONS], places)


def _tell(spark: SparkSession, cluster: Cluster, by: str, run: str, further: FurtherPlaces) -> None:
    if by == "python":
        cluster.tell_further_places(run, further)
    else:
        _tell_as_companion(spark.sparkContext, list(words_of_further_places(run, further)))


def _tell_as_companion(context: Any, words: list[str]) -> None:
    """Let the plugin's class answer what the process beside a driver without Python asks."""
    jvm, gateway = context._jvm, context._gateway
    internals = jvm.java.lang.Class.forName("io.holdfast.spark.SparkInternals")
    (constructor,) = internals.getDeclaredConstructors()
    (answer,) = (method for method in internals.getDeclaredMethods() if method.getName() == "answer")
    constructor.setAccessible(True)
    answer.setAccessible(True)
    made = constructor.newInstance(_array(gateway, jvm.Object, [context._jsc.sc()]))
    about = _array(gateway, jvm.String, words)
    assert list(answer.invoke(made, _array(gateway, jvm.Object, ["further-places", about]))) == [str(_PARTITIONS)]


def _array(gateway: Any, kind: Any, elements: list[Any]) -> Any:
    array = gateway.new_array(kind, len(elements))
    for number, element in enumerate(elements):
        array[number] = element
    return array


def _lose(spark: SparkSession, cluster: Cluster, lost: Executor, *, is_killed: bool) -> None:
    context: Any = spark.sparkContext
    if is_killed:
        cluster.prepare()
        assert context._jsc.sc().killExecutor(lost.id)
        wait_until(lambda: cluster.lost(0) == lost.id, _START_SECONDS)
    else:
        why = context._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("a test", context._jvm.scala.Option.empty())
        assert context._jsc.sc().schedulerBackend().decommissionExecutor(lost.id, why, False, False)


class _Stage:
    """The last stage of a run's one job."""

    def __init__(self, spark: SparkSession, run: str) -> None:
        self.run = run
        self._context: Any = spark.sparkContext
        self._store: Any = self._context._jsc.sc().statusStore()

    def ran_before(self) -> str:
        """Return the executor that ran the one task of the job's first stage."""
        (task,) = self._tasks(min(self._stages()), 0)
        return str(task.executorId())

    def ran(self) -> tuple[list[list[str]], int]:
        """Return the executors that each partition's tasks ran on, in turn, and how often the stage was begun."""
        stage = max(self._stages())
        attempts = int(self._store.lastStageAttempt(stage).attemptId()) + 1
        ran: dict[int, list[str]] = {}
        for attempt in range(attempts):
            for task in sorted(self._tasks(stage, attempt), key=lambda task: int(task.attempt())):
                ran.setdefault(int(task.partitionId()), []).append(str(task.executorId()))
        return [ran[number] for number in sorted(ran)], attempts

    def _stages(self) -> list[int]:
        (job,) = self._context.statusTracker().getJobIdsForGroup(self.run)
        return [int(stage) for stage in self._context.statusTracker().getJobInfo(job).stageIds]

    def _tasks(self, stage: int, attempt: int) -> list[Any]:
        return list(elements(self._store.taskList(stage, attempt, 3 * _PARTITIONS)))


if __name__ == "__main__":
    main()
