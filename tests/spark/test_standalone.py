"""A Spark standalone cluster whose worker is started through Holdfast's ``spark-env.sh``."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from holdfast_spark.env import spark_env_path
from tests.support.daemons.node import Node, wait_until

SPARK_HOME = Path(pyspark.__file__).parent
MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
JOB = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
count = spark.range(0, 100000, numPartitions=4).repartition(4).selectExpr("sum(id) total").collect()[0].total
directories = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("os").environ["SPARK_EXECUTOR_DIRS"]).collect()
print("RESULT", count, *directories)
"""


@contextmanager
def spark_class(name: str, log: Path, environment: dict[str, str], *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Spark daemon in a process group of its own."""
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [SPARK_HOME / "bin/spark-class", f"org.apache.spark.deploy.{name}", *arguments],
            stdout=stream,
            stderr=stream,
            env=environment,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def environment(node: Node, workspace: Path) -> dict[str, str]:
    conf = workspace / "conf"
    conf.mkdir()
    (conf / "spark-env.sh").write_text(f'. "{spark_env_path()}"\n')
    command = workspace / "holdfast"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m holdfast "$@"\n')
    command.chmod(0o755)
    return {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "HOLDFAST_SOCKET": str(node.socket),
        "HOLDFAST_COMMAND": str(command),
        "HOLDFAST_WORKER_ID": "test",
        "PYSPARK_PYTHON": sys.executable,
    }


def test_a_worker_keeps_everything_in_its_working_directory_and_links_what_is_in_the_checkpoint(
    node: Node, environment: dict[str, str], workspace: Path
) -> None:
    master_log, worker_log = workspace / "master.log", workspace / "worker.log"
    with spark_class("master.Master", master_log, environment, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"):
        wait_until(lambda: MASTER_URL.search(master_log.read_text()) is not None)
        found = MASTER_URL.search(master_log.read_text())
        assert found is not None
        assert not (node.work / "worker_test").exists(), "a master gets no worker's directory"
        arguments = ("--cores", "2", "--memory", "1g", "--webui-port", "0", found[1])
        with spark_class("worker.Worker", worker_log, environment, *arguments) as worker:
            wait_until(lambda: "Successfully registered with master" in worker_log.read_text())
            with node.client() as client:
                assert f"pid {worker.pid} " in (client.workdirs()[0].holder or "")
            result = subprocess.run(
                [SPARK_HOME / "bin/spark-submit", "--master", found[1], _job(workspace)],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            line = re.search(r"RESULT (\d+) (\S+)", result.stdout)
            assert line is not None, result.stderr[-3000:]
            assert int(line[1]) == sum(range(100_000))
            assert line[2].startswith(f"{node.work}/worker_test/tmp/local/spark-")
            applications = list((node.work / "worker_test/spark").iterdir())
            assert len(applications) == 1, "the executor's logs are in SPARK_WORKER_DIR"
            assert (applications[0] / "0/stderr").stat().st_size > 0
            first_run, second_run = (_state_files(node, environment, found[1]) for _ in range(2))
            assert first_run == {"rows": 1000, "local": 2, "linked": 2, "stored": 2, "checksums": 0}
            assert second_run == {"rows": 2000, "local": 4, "linked": 4, "stored": 4, "checksums": 0}, "two were restored"
            second = subprocess.run(
                [SPARK_HOME / "bin/spark-class", "org.apache.spark.deploy.worker.Worker", found[1]],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert second.returncode == 1
            assert f"work/worker_test is held by pid {worker.pid}" in second.stderr
    node.wait_event("workdir-released", path="work/worker_test")
    assert (node.work / "worker_test/spark").exists()


def _state_files(node: Node, environment: dict[str, str], master: str) -> dict[str, int]:
    """Run a job with state; return what it says of its files. Its executor gets the jar, which the worker does not have."""
    command = [sys.executable, "-m", "tests.support.spark.linking_job", str(node.socket), master]
    named = {"SPARK_LOCAL_HOSTNAME": "localhost", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**environment, **named})
    assert done.returncode == 0, done.stderr[-3000:]
    facts: dict[str, int] = json.loads(done.stdout)
    return facts


def _job(workspace: Path) -> Path:
    path = workspace / "job.py"
    path.write_text(JOB)
    return path
