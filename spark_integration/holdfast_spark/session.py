"""Spark sessions that keep their state on the mount: ``configure(builder, …)`` and ``checkpoint_location(…)``.

The settings and their reasons come from Spark's source or from measurements (``docs/spark.md``):

- RocksDB state stores with changelogs: a batch commits its changes, not a snapshot;
- the file-system based checkpoint manager: Spark's default for ``file:`` forks a process for each path it looks at;
- ``spark.local.dir`` and the JVM's temporary directory in a working directory: on the node's disk, emptied at each start,
  never sent anywhere, and hard-linkable.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from holdfast.config import WorkdirsSection
from holdfast.control.client import ControlClient
from holdfast.control.messages import WorkdirInfo
from holdfast.errors import ConfigurationError, DaemonUnreachableError
from holdfast_spark.placement import place_state
from holdfast_spark.session_builder import with_installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_STORE = WorkdirsSection().local_state
"""The store that local state falls back to by default."""
DEFAULT_SOCKET = "/run/holdfast/control.sock"
_TAKEOVER_SECONDS = 15.0
_ATTEMPT_SECONDS = 0.2
_T = TypeVar("_T")
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_LOCAL_FILES = "org.apache.hadoop.fs.LocalFileSystem"
"""PySpark's default, Hive's ``ProxyLocalFileSystem``, does not rename over a file: a repeated batch keeps old state."""
_MANAGER = "FileSystemBasedCheckpointFileManager"
_MANAGER_PACKAGE_3 = "org.apache.spark.sql.execution.streaming"
_MANAGER_PACKAGE_4 = "org.apache.spark.sql.execution.streaming.checkpointing"


def configure(
    builder: SparkSession.Builder, *, name: str, role: str = "driver", socket: str | None = None
) -> SparkSession.Builder:
    """Return ``builder`` set up to keep its state on the mount.

    The calling process acquires the working directory ``<role>_<name>`` and holds it until it ends. A second process with
    the same name is refused (``RefusedError``, which names the holder). The session that the builder makes runs the
    partitions of its streaming queries where their state is (``place_state``), reports their batches to the daemon
    (``holdfast batches``), and says in a sentence when a query has ended because another driver works on its checkpoint.
    Call it before the session is made, once per process. A daemon that is just being replaced is waited for. Raises
    ``DaemonUnreachableError`` if none answers on ``socket`` (default: ``$HOLDFAST_SOCKET``, then
    ``/run/holdfast/control.sock``).
    """
    from holdfast_spark.batch_reports import report_batches  # these need pyspark, which workers' environments may lack
    from holdfast_spark.second_driver import explain_second_drivers

    workdir = acquire(role, name, socket)
    local = Path(workdir.path) / "tmp" / "spark"
    local.mkdir(exist_ok=True)
    os.environ.pop("SPARK_LOCAL_DIRS", None)  # it would override spark.local.dir
    for key, value in settings(local).items():
        builder = builder.config(key, value)
    daemon = socket_path(socket)
    place, report = partial(place_state, socket=daemon), partial(report_batches, socket=daemon)
    return with_installed(builder, place, report, explain_second_drivers)


def settings(local: Path) -> dict[str, str]:
    """Return the Spark settings for state on the mount, with Spark's own files in the directory ``local``."""
    return {
        "spark.local.dir": str(local),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={local}",
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass": _manager_class(),
        "spark.hadoop.fs.file.impl": _LOCAL_FILES,
    }


def acquire(role: str, name: str, socket: str | None = None) -> WorkdirInfo:
    """Acquire a working directory for this process."""
    return _ask(socket, lambda client: client.acquire(role, name, os.getpid(), os.getuid(), os.getgid()))


def checkpoint_location(name: str, socket: str | None = None, *, store: str = DEFAULT_STORE) -> str:
    """Return the URL for ``checkpointLocation`` of the query ``name``, which is the same on every node of the cluster.

    ``store`` is one of the daemon's stores. Raises ``ConfigurationError`` if the daemon does not have it.
    """
    status = _ask(socket, ControlClient.status)
    if store not in status.remotes:
        known = ", ".join(status.remotes) or "none"
        raise ConfigurationError(f"the mount {status.mountpoint} has no store {store!r}; there are {known}")
    return f"file://{status.mountpoint}/{store}/{name}"


def socket_path(socket: str | None = None) -> Path:
    """Return the daemon's socket: the one given, or that of the environment, or the default."""
    return Path(socket or os.environ.get("HOLDFAST_SOCKET") or DEFAULT_SOCKET)


def _ask(socket: str | None, question: Callable[[ControlClient], _T]) -> _T:
    """Ask the daemon; again for some seconds if the place of its socket is there and nobody answers, as in a takeover."""
    path = socket_path(socket)
    deadline = time.monotonic() + _TAKEOVER_SECONDS
    while True:
        try:
            with ControlClient(path) as client:
                return question(client)
        except DaemonUnreachableError:
            is_forbidden = path.exists() and not os.access(path, os.W_OK)
            if is_forbidden or not path.parent.exists() or time.monotonic() > deadline:
                raise
        time.sleep(_ATTEMPT_SECONDS)


def _manager_class() -> str:
    import pyspark

    major = int(pyspark.__version__.split(".")[0])
    return f"{_MANAGER_PACKAGE_3 if major < 4 else _MANAGER_PACKAGE_4}.{_MANAGER}"
