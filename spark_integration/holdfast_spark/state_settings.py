"""Spark's settings for state on the mount.

Their reasons come from Spark's source or from measurements (``docs/spark.md``):

- RocksDB state stores with changelogs: a batch commits its changes, not a snapshot;
- for new queries the checkpoint's format 2, whose names no other attempt writes to, without Spark's checksum files;
- after Spark's wait for a busy executor no second one, for another executor on its host;
- the file-system based checkpoint manager: Spark's default for ``file:`` forks a process for each path it looks at;
- ``spark.local.dir`` and the JVM's temporary directory in a working directory: on the node's disk, emptied at each start,
  never sent anywhere, and hard-linkable.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATE_STORE = "spark.sql.streaming.stateStore."
_PROVIDER = f"{_STATE_STORE}providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_FORMAT = f"{_STATE_STORE}checkpointFormatVersion"
_KEEPS_FORMATS = (4, 3)
"""The first version of Spark in which queries keep the format that they began in; in 4.0 a JVM with queries of both formats
fails."""
_CHECKSUM_FILES = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
"""The setting for the checksum file beside each state file. In format 2 it is one more object to send, and the digests of
Holdfast do the same."""
_LOCAL_FILES = "org.apache.hadoop.fs.LocalFileSystem"
"""PySpark's default, Hive's ``ProxyLocalFileSystem``, does not rename over a file: a repeated batch keeps old state."""
_MANAGER = "FileSystemBasedCheckpointFileManager"
_STREAMING = "org.apache.spark.sql.execution.streaming"
_MOVED = (4, 1)
"""The first version of Spark in which the manager is in a package of its own."""


def settings(local: Path) -> dict[str, str]:
    """Return the settings for state on the mount, with Spark's own files in the directory ``local``."""
    own = {"spark.local.dir": str(local), "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={local}"}
    return {**own, **state_settings()}


def state_settings() -> dict[str, str]:
    """Return the settings for state on the mount alone, for the PySpark that is installed."""
    version = spark_version()
    return {
        _PROVIDER: _ROCKSDB,
        f"{_STATE_STORE}rocksdb.changelogCheckpointing.enabled": "true",
        **({_FORMAT: "2", _CHECKSUM_FILES: "false"} if version >= _KEEPS_FORMATS else {}),
        "spark.sql.streaming.checkpointFileManagerClass": _manager_class(version),
        "spark.hadoop.fs.file.impl": _LOCAL_FILES,
        "spark.locality.wait.node": "0s",
    }


def fit_format_to_provider(spark: SparkSession) -> None:
    """Let new queries begin in format 1 if the job has chosen another provider than RocksDB: none else has format 2."""
    if spark.conf.get(_PROVIDER, None) != _ROCKSDB:
        spark.conf.set(_FORMAT, "1")


def _manager_class(version: tuple[int, int]) -> str:
    return f"{_STREAMING}.{'checkpointing.' if version >= _MOVED else ''}{_MANAGER}"


def spark_version() -> tuple[int, int]:
    """Return major and minor version of the PySpark that is installed."""
    import pyspark  # workers' environments may lack it

    major, minor, *_ = pyspark.__version__.split(".")
    return int(major), int(minor)
