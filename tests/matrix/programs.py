"""Jobs without a line of Holdfast's, under one Spark: by the properties file of ``docs/spark.md``, twice each.

Before the second run the driver's working directory gets the name of a class that no job needs: the driver loads it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from holdfast.errors import HoldfastError
from tests.matrix.operations import CONNECT, SUBMITTED_JAVA, SUBMITTED_PYTHON
from tests.matrix.outcomes import Outcomes
from tests.matrix.sparks import Spark
from tests.support.daemons.node import Node
from tests.support.spark import plain_job
from tests.support.spark import programs as spark_programs
from tests.support.spark.properties import documented_properties

_HAS_CONNECT = (4, 0)
_JVM_OPTIONS = "spark.driver.extraJavaOptions"
_UNNEEDED = "org.apache.spark.graphx.Edge"


class Programs:
    """Spark's own programs of one version, over ``node``. ``directory`` has what they say and the jobs' jar."""

    def __init__(self, spark: Spark, node: Node, directory: Path, outcomes: Outcomes) -> None:
        self._spark = spark
        self._node = node
        self._directory = directory / f"{spark.version}-programs"
        self._home = spark.home()
        self._outcomes = outcomes

    def run(self) -> None:
        """Run a Python job, a Java job, and one for a server of Spark Connect's, and note what came of each.

        What was there of earlier ones is removed.
        """
        for directory in (self._directory, self._node.checkpoints / self._directory.name):
            shutil.rmtree(directory, ignore_errors=True)
        self._directory.mkdir()
        self._note(SUBMITTED_PYTHON, self._submit_python)
        self._note(SUBMITTED_JAVA, self._submit_java)
        if self._spark.release >= _HAS_CONNECT:
            self._note(CONNECT, self._connect)

    def _note(self, operation: str, job: Callable[[], None]) -> None:
        try:
            job()
        except (AssertionError, HoldfastError, subprocess.SubprocessError) as problem:
            self._outcomes.note(self._spark, operation, None, str(problem)[-1500:])
        else:
            self._outcomes.note(self._spark, operation, None, "")

    def _submit_python(self) -> None:
        driver = {"spark.pyspark.driver.python": str(spark_programs.driver_python(self._directory))}
        properties = self._properties("python", driver)
        job = ["--properties-file", str(properties), plain_job.__file__]
        self._twice("python", "driver_plain-job", lambda: self._submit(*job))

    def _submit_java(self) -> None:
        properties = self._properties("java", {})
        job = ["--properties-file", str(properties), "--name", "java job", "--class", "Counts", str(self._jar()), "counts"]
        self._twice("java", "driver_java-job", lambda: self._submit(*job))

    def _connect(self) -> None:
        properties = self._properties("connect", {})

        def submit() -> str:
            with spark_programs.connect_server(self._directory, properties, self._environment(), self._home) as remote:
                return self._submit("--remote", remote, "--class", "Counts", str(self._jar()), "counts")

        self._twice("connect", "driver_Spark-Connect-server", submit)

    def _submit(self, *job: str) -> str:
        return spark_programs.run(self._directory, "bin/spark-submit", *job, home=self._home, variables=self._environment())

    def _twice(self, name: str, driver: str, submit: Callable[[], str]) -> None:
        """Run a job twice; it must go on from its state, in its driver's working directory, and be reported."""
        checkpoint = self._node.checkpoints / self._directory.name / name / "counts"
        fetched = self._node.status().counters["bytes_fetched"]
        reported = self._reported()
        names = self._node.work / driver / "classes.names"
        names.unlink(missing_ok=True)  # which another Spark has left
        for batches in (1, 2):
            said = submit().split()
            assert said[-1:] == [str(self._node.work / driver / "tmp/spark")], f"the local directory is {said[-1:]}"
            assert len(list(checkpoint.glob("commits/[0-9]*"))) == batches, "it did not go on from its checkpoint"
            assert list(checkpoint.glob("state/0/*/*.changelog")), "its state has no changelogs"
            assert self._reported() == reported + batches, "its batch was not reported"
            has_loaded = f" {_UNNEEDED} " in self._loaded(name).read_text()
            assert has_loaded is (batches > 1), f"it has {'' if has_loaded else 'not '}loaded the class that has been named"
            names.write_text(f"{_UNNEEDED}\n")
        assert self._node.status().counters["bytes_fetched"] == fetched, "state was fetched that was here"

    def _reported(self) -> int:
        with self._node.client() as client:
            return len(client.batches("counts"))

    def _properties(self, name: str, more: dict[str, str]) -> Path:
        """Write the properties that the page has for this Spark, with checkpoints in a directory of their own."""
        properties = documented_properties(self._node.mountpoint, release=self._spark.release)
        location = self._node.checkpoints / self._directory.name / name
        properties["spark.sql.streaming.checkpointLocation"] = f"file://{location}"
        directory = self._directory / name
        directory.mkdir()
        log = f"{spark_programs.SHORT_JOBS} -Xlog:class+load:file={self._loaded(name)}"
        return spark_programs.properties_file(directory, {**properties, **more, _JVM_OPTIONS: log})

    def _loaded(self, name: str) -> Path:
        return self._directory / name / "loaded.log"

    def _jar(self) -> Path:
        made = self._directory / "Counts.jar"
        return made if made.exists() else spark_programs.jar_of("Counts", self._directory, self._home / "jars")

    def _environment(self) -> dict[str, str]:
        companion = spark_programs.with_companion(self._directory, self._node.socket)
        return {**companion, **self._spark.environment(), "SPARK_HOME": str(self._home)}
