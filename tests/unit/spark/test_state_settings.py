"""What ``configure`` sets is what the documentation lists, also for jobs that don't call it, and fits the Spark there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.spark.properties import documented_properties

pytest.importorskip("pyspark")

from holdfast_spark.jvm_options import JVM_OPTIONS_KEY, OF_ALL_JVMS, with_short_start
from holdfast_spark.linking import jar_path, linking_settings
from holdfast_spark.state_settings import settings, state_settings

SPARK_MD = (Path(__file__).parents[3] / "docs/spark.md").read_text()
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


def test_the_documentation_lists_every_setting() -> None:
    table = SPARK_MD.partition("It sets:\n")[2].lstrip().partition("\n\n")[0]
    listed = re.findall(r"^\| `(spark\.[^`]+)` \|", table, re.MULTILINE)
    assert sorted(listed) == sorted(settings(Path("/local")))


def test_the_documented_properties_are_the_same_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("holdfast_spark.linking._is_jvm_running", lambda: False)
    monkeypatch.setenv("SPARK_DIST_CLASSPATH", "")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    for name in (*OF_ALL_JVMS, "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    properties = documented_properties(Path("/mnt"))
    assert properties.pop("spark.pyspark.driver.python").endswith("/holdfast-pyspark")
    assert properties.pop("spark.sql.streaming.checkpointLocation") == "file:///mnt/checkpoints"
    assert properties.pop("spark.plugins") == "io.holdfast.spark.HoldfastPlugin"
    jvm = with_short_start({JVM_OPTIONS_KEY: ""}, {})[JVM_OPTIONS_KEY]
    assert properties.pop("spark.driver.defaultJavaOptions") == jvm
    jar = {properties.pop(f"spark.{process}.extraClassPath") for process in ("driver", "executor")}
    assert jar == {str(jar_path())}
    linking = linking_settings("/mnt", ["checkpoints", "blobs"])
    assert properties == {**state_settings(), **linking}


@pytest.mark.parametrize(
    ("version", "has_format_2", "package"),
    [
        ("3.5.1", False, "streaming"),
        ("4.0.5", False, "streaming"),
        ("4.1.0", False, "streaming.checkpointing"),
        ("4.2.0", False, "streaming.checkpointing"),
        ("4.3.0", True, "streaming.checkpointing"),
    ],
)
def test_settings_fit_the_version(monkeypatch: pytest.MonkeyPatch, version: str, has_format_2: bool, package: str) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    assert (FORMAT in state_settings()) == has_format_2
    assert state_settings()[MANAGER].rpartition(".")[0].endswith(f".{package}")
