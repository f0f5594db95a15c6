"""Commands of jobs, and streams, run within the tests' session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.checkpoints.sweeps.plan_format import StoredPlan, read_plan
from holdfast_spark.jobs import orphans


def run(job: ModuleType, spark: SparkSession, *arguments: object) -> None:
    """Run a job's command, which must succeed."""
    assert SparkSession.getActiveSession() is spark
    assert job.main([str(argument) for argument in arguments]) == 0


def plan_of(spark: SparkSession, url: str, inventory: Path, directory: Path, *options: str) -> StoredPlan:
    """Run the job ``orphans`` and read its plan from ``directory``, which it makes."""
    run(orphans, spark, url, inventory, "--plans", directory, *options)
    (file,) = directory.iterdir()
    with file.open("rb") as stream:
        return read_plan(stream)


def started(start: Callable[[], StreamingQuery], wait: Callable[[StreamingQuery], object]) -> StreamingQuery:
    """Start a stream and wait; once more if Spark has given up on a Python: it has ten seconds to start, not to be set."""
    while True:
        query = start()
        try:
            wait(query)
        except StreamingQueryException as problem:
            if "Python worker failed to connect back" not in str(problem):
                raise
        else:
            return query
