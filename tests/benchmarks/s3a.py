"""Hadoop's S3A, which people use today: its jars, and the settings with which Spark reaches a store through it.

The jars come once, by Spark's own resolver, into ``$HOLDFAST_CACHE/s3a-VERSION``: 690 MB, nearly all of it Amazon's SDK.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pyspark

from tests.support.stores.s3 import S3Server
from tests.support.tools.cache import cache_directory

_ARTIFACT = "org.apache.hadoop:hadoop-aws"
_HOME = Path(pyspark.__file__).parent


class JarsError(Exception):
    """The jars could not be had; the message has Spark's words."""


def hadoop_version() -> str:
    """Return the version of the Hadoop client that PySpark brings; S3A must be of the same."""
    (jar,) = (_HOME / "jars").glob("hadoop-client-api-*.jar")
    return jar.stem.rpartition("-")[2]


def jars() -> Path:
    """Return the directory with the jars, fetched now if they are not here yet. Raises ``JarsError``."""
    cache = cache_directory()
    directory = cache / f"s3a-{hadoop_version()}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "s3a.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            _fetch(directory, cache / "s3a-fetching")
    return directory


def _fetch(directory: Path, scratch: Path) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    nothing = scratch / "nothing.py"
    nothing.touch()
    command = [str(_HOME / "bin/spark-submit"), "--master", "local[1]", "--packages", f"{_ARTIFACT}:{hadoop_version()}"]
    command += ["--conf", f"spark.jars.ivy={scratch}/ivy", str(nothing)]
    done = subprocess.run(
        command, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}, capture_output=True, text=True, check=False
    )
    found = sorted((scratch / "ivy" / "jars").glob("*.jar")) if done.returncode == 0 else []
    if not found:
        raise JarsError(f"Spark could not fetch {_ARTIFACT}:{hadoop_version()}:\n{done.stderr[-2000:]}")
    (scratch / "ivy" / "jars").rename(directory)
    shutil.rmtree(scratch)


def settings(server: S3Server, directory: Path) -> dict[str, str]:
    """Return Spark's settings for ``s3a:`` URLs of ``server``, all else as Hadoop has it. ``directory`` has the jars."""
    prefix = "spark.hadoop.fs.s3a."
    return {
        "spark.driver.extraClassPath": f"{directory}/*",
        f"{prefix}endpoint": server.endpoint,
        f"{prefix}endpoint.region": server.region,
        f"{prefix}access.key": server.access_key_id,
        f"{prefix}secret.key": server.secret_access_key,
        f"{prefix}path.style.access": "true",
        f"{prefix}connection.ssl.enabled": "false",
    }
