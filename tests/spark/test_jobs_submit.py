"""A job by ``spark-submit``, with executors that are processes of their own, as on a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pyspark
import pytest

from holdfast_spark.jobs import inventory
from tests.support.checkpoints.checkpoint_roots import JOB, job

pytestmark = pytest.mark.timeout(600)


def test_an_inventory_is_made_by_executors(workspace: Path) -> None:
    store = workspace / "store"
    job(store / JOB)
    command = [f"{Path(pyspark.__file__).parent}/bin/spark-submit", "--master", "local-cluster[1,2,640]"]
    command += [
        "--conf",
        "spark.executor.memory=512m",
        "--conf",
        f"spark.executorEnv.PYTHONPATH={os.pathsep.join(sys.path)}",
    ]
    command += [inventory.__file__, f"file://{store}", str(workspace / "inventory")]
    local = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost", "PYSPARK_PYTHON": sys.executable}
    environment = {**os.environ, **local, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(command, env=environment, cwd=workspace, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    objects = pyarrow.parquet.read_table(workspace / "inventory/objects").to_pylist()
    keys = {row["key"] for row in objects if not row["is_directory"]}
    assert keys == {str(path.relative_to(store)) for path in store.rglob("*") if path.is_file()}
    assert f"file://{store}: {len(keys)} objects in " in result.stdout
