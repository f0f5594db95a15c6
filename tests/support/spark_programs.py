"""Spark's own programs, as somebody without a line of Holdfast's in the job runs them: with a properties file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

HOME = Path(pyspark.__file__).parent
SOURCES = Path(__file__).parent / "spark_java"
_SMALL = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "600m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # halves what short jobs take
}


def properties_file(directory: Path, properties: dict[str, str]) -> Path:
    """Write ``properties``, and those that keep Spark small."""
    file = directory / "holdfast.conf"
    file.write_text("".join(f"{key} {value}\n" for key, value in {**_SMALL, **properties}.items()))
    return file


def environment(**more: str) -> dict[str, str]:
    """Return the environment for a Spark on this machine alone, whose Python is the tests'."""
    local = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost", "PYSPARK_PYTHON": sys.executable}
    return {**os.environ, **local, "PYTHONPATH": os.pathsep.join(sys.path), **more}


def with_companion(directory: Path, socket: Path) -> dict[str, str]:
    """Return the variables by which the plugin finds its command, written into ``directory``, and the daemon."""
    command = directory / "bin/holdfast-spark-driver"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m holdfast_spark.companion\n')
    command.chmod(0o755)
    return {"PATH": f"{command.parent}:{os.environ['PATH']}", "HOLDFAST_SOCKET": str(socket)}


def run(directory: Path, program: str, *arguments: str, **more: str) -> str:
    """Run one of Spark's programs in ``directory``; return what it prints. Raises ``AssertionError`` with its last words."""
    command = [str(HOME / program), *arguments]
    done = subprocess.run(command, env=environment(**more), cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def jar_of(name: str, directory: Path, jars: Path = HOME / "jars") -> Path:
    """Compile the Java job ``name`` against Spark's ``jars`` into ``directory``; skip the test without a JDK."""
    if shutil.which("javac") is None:
        pytest.skip("needs a JDK: as root, apt-get install --no-install-recommends openjdk-17-jdk-headless")
    command = ["javac", "-nowarn", "-d", str(directory / "classes"), "-cp", f"{jars}/*", str(SOURCES / f"{name}.java")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    jar = directory / f"{name}.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.write(directory / f"classes/{name}.class", f"{name}.class")
    return jar
