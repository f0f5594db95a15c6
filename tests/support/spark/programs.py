"""Spark's own programs, as somebody without a line of Holdfast's in the job runs them: with a properties file."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
import pytest

from systemd.debian.package_tree import DRIVER_PYTHON_TEXT
from tests.support.daemons.node import wait_until
from tests.support.stores.servers import free_port

HOME = Path(pyspark.__file__).parent
SOURCES = Path(__file__).parent / "java"
CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
CONNECT_SERVER_STARTED = "Spark Connect server started"
"""The line in its log that says so."""
_START_SECONDS = 300.0
SHORT_JOBS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM with which short jobs take half as long."""
_SMALL = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "600m",
    "spark.driver.extraJavaOptions": SHORT_JOBS,
}


def properties_file(directory: Path, properties: dict[str, str]) -> Path:
    """Write ``properties``, and those that keep Spark small."""
    file = directory / "holdfast.conf"
    file.write_text("".join(f"{key} {value}\n" for key, value in {**_SMALL, **properties}.items()))
    return file


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a Spark on this machine alone, whose Python is the tests'."""
    local = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost", "PYSPARK_PYTHON": sys.executable}
    return {**os.environ, **local, "PYTHONPATH": os.pathsep.join(sys.path), **variables}


def driver_python(directory: Path) -> Path:
    """Write the Debian package's ``holdfast-pyspark`` into ``directory``; return where it is."""
    python = directory / "holdfast-pyspark"
    python.write_text(DRIVER_PYTHON_TEXT)
    python.chmod(0o755)
    return python


@contextmanager
def connect_server(directory: Path, properties: Path, variables: Mapping[str, str], home: Path = HOME) -> Iterator[str]:
    """Run Spark Connect's server with the properties and the environment's ``variables``; give its address."""
    port = free_port()
    script = home / "sbin/start-connect-server.sh"  # since 4.3, PySpark has it
    by_class = [str(home / "bin/spark-submit"), "--class", CONNECT_SERVER, "--name", "Spark Connect server"]
    command = [str(script), "--wait"] if script.exists() else by_class
    command += ["--properties-file", str(properties), "--conf", f"spark.connect.grpc.binding.port={port}"]
    log = directory / "server.log"
    with log.open("wb") as stream:
        server = subprocess.Popen(
            command, env=environment(variables), cwd=directory, stdout=stream, stderr=stream, start_new_session=True
        )
    try:
        wait_until(lambda: server.poll() is not None or CONNECT_SERVER_STARTED in log.read_text(), _START_SECONDS)
        assert server.poll() is None, log.read_text()[-3000:]
        yield f"sc://localhost:{port}"
    finally:
        with suppress(ProcessLookupError):  # it has ended by itself, as the assertion says
            os.killpg(server.pid, signal.SIGTERM)  # a shell, and its JVM
        server.wait()
        wait_until(lambda: not _has_processes(server.pid), _START_SECONDS)  # the JVM may end after the shell


def _has_processes(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def with_companion(directory: Path, socket: Path) -> dict[str, str]:
    """Return the variables by which the plugin finds its command, written into ``directory``, and the daemon."""
    command = directory / "bin/holdfast-spark-driver"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m holdfast_spark.companion\n')
    command.chmod(0o755)
    return {"PATH": f"{command.parent}:{os.environ['PATH']}", "HOLDFAST_SOCKET": str(socket)}


def run(directory: Path, program: str, *arguments: str, home: Path = HOME, variables: Mapping[str, str] = {}) -> str:
    """Run one of the programs of the Spark at ``home`` in ``directory``; return what it prints.

    Raises ``AssertionError`` with its last words.
    """
    command = [str(home / program), *arguments]
    done = subprocess.run(command, env=environment(variables), cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def jar_of(name: str, directory: Path, jars: Path = HOME / "jars") -> Path:
    """Compile the Java job ``name`` against Spark's ``jars`` into ``directory``; skip the test without a JDK."""
    if shutil.which("javac") is None:
        pytest.skip("needs a JDK: as root, apt-get install --no-install-recommends default-jdk-headless")
    command = ["javac", "-nowarn", "-d", str(directory / "classes"), "-cp", f"{jars}/*", str(SOURCES / f"{name}.java")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    jar = directory / f"{name}.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.write(directory / f"classes/{name}.class", f"{name}.class")
    return jar
