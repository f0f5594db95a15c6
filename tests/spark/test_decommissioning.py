"""An executor that Spark decommissions runs on, and gets no partitions; one that is gone is heard of. Its node is known."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.support.spark import decommissioning_job

pytestmark = pytest.mark.timeout(600)


def test_an_executor_that_is_decommissioned_is_none_to_place_on(workspace: Path) -> None:
    command = [f"{Path(pyspark.__file__).parent}/bin/spark-submit", "--master", "local-cluster[2,1,640]"]
    command += ["--conf", "spark.executor.memory=512m", "--conf", "spark.ui.enabled=false"]
    command += ["--conf", "spark.executorEnv.SPARK_EXECUTOR_ATTRIBUTE_NODE=a-node", decommissioning_job.__file__]
    paths = os.pathsep.join(sys.path)
    local = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost", "PYSPARK_PYTHON": sys.executable}
    environment = {**os.environ, **local, "PYTHONPATH": paths}
    result = subprocess.run(command, env=environment, cwd=workspace, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    said = result.stdout.splitlines()
    assert "only the other one gets tasks" in said, result.stdout[-3000:]
    assert "its end was heard of" in said, result.stdout[-3000:]
