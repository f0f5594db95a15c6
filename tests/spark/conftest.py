"""One small Spark for all tests of the jobs: starting one costs more than most of them; and what they work on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast_spark.pipeline.local import stay_on_this_machine
from tests.support.spark.flights_job import Job


@pytest.fixture
def job(workspace: Path) -> Job:
    """The flights job, with files of its own."""
    return Job(workspace)


@pytest.fixture
def store_directory(workspace: Path) -> Path:
    """An empty directory that is to be a store."""
    directory = workspace / "store"
    directory.mkdir()
    return directory


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    before = dict(os.environ)
    stay_on_this_machine()
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in (
        ("spark.driver.memory", "512m"),
        ("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),  # halves what short jobs take
        ("spark.sql.codegen.wholeStage", "false"),
        ("spark.sql.shuffle.partitions", "4"),
        ("spark.ui.enabled", "false"),
        ("spark.ui.showConsoleProgress", "false"),
        ("spark.log.level", "ERROR"),
    ):
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    os.environ.clear()  # other tests start Sparks of their own
    os.environ.update(before)
    yield session
    session.stop()
