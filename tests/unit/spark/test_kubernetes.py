"""The template of executors' pods, as Kubernetes and Spark read it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml

from holdfast.csi.volumes import Wanted, wanted
from holdfast_spark.kubernetes import executor_template, template_settings


def test_the_template_tells_spark_the_node_and_has_volumes_that_the_driver_takes() -> None:
    pod = yaml.safe_load(executor_template("flights", "/mnt/holdfast", 185, 0))
    (container,) = pod["spec"]["containers"]
    assert container["env"][0] == {
        "name": "SPARK_EXECUTOR_ATTRIBUTE_NODE",
        "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}},
    }
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounts == {"holdfast": "/mnt/holdfast", "spark-local-dir-1": "/var/holdfast/local"}
    asked = {each["name"]: each["csi"] for each in pod["spec"]["volumes"]}
    assert {each["driver"] for each in asked.values()} == {"holdfast.csi"}
    attributes = {name: each.get("volumeAttributes", {}) for name, each in asked.items()}
    assert wanted(attributes["holdfast"], read_only=False) == Wanted("", read_only=False)
    assert wanted(attributes["spark-local-dir-1"], read_only=False) == Wanted(
        "", read_only=False, uid=185, gid=0, workdir="executor/flights", slots=True
    )


def test_configure_names_a_template_for_its_own_user(tmp_path: Path) -> None:
    settings = template_settings(tmp_path / "pod.yaml", "flights", "/data")
    file = settings["spark.kubernetes.executor.podTemplateFile"]
    (container,) = yaml.safe_load(Path(file).read_text())["spec"]["containers"]
    assert settings["spark.kubernetes.executor.podTemplateContainerName"] == container["name"]
    assert Path(file).read_text() == executor_template("flights", "/data", os.getuid(), os.getgid())


def test_the_command_prints_it() -> None:
    command = [sys.executable, "-m", "holdfast_spark.kubernetes", "flights", "--uid", "1000", "--gid", "1000"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == executor_template("flights", uid=1000, gid=1000)
