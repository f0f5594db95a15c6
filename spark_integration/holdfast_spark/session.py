"""Spark sessions that keep their state on the mount: ``configure(builder, …)`` and ``checkpoint_location(…)``."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from holdfast.config import WorkdirsSection
from holdfast.control.client import ControlClient
from holdfast.control.messages import WorkdirInfo
from holdfast.errors import ConfigurationError, DaemonUnreachableError
from holdfast_spark.class_archive import keep_archive, with_archive
from holdfast_spark.class_names import keep_class_names, load_known_classes
from holdfast_spark.jvm_options import with_short_start
from holdfast_spark.kubernetes import template_settings
from holdfast_spark.linking import give_executors_the_jar, linking_settings
from holdfast_spark.placement import place_state
from holdfast_spark.plugin import STEP_ASIDE, plugin_works
from holdfast_spark.session_builder import with_installed
from holdfast_spark.state_settings import fit_format_to_provider, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_STORE = WorkdirsSection().local_state
"""The store that local state falls back to by default."""
DEFAULT_SOCKET = "/run/holdfast/control.sock"
_START_SECONDS = 15.0
_TAKEOVER_SECONDS = 60.0
"""A mount without a daemon gets one again: within a second, but ten and more where the machine has much else to do."""
_ATTEMPT_SECONDS = 0.2
_LONGEST_NAME = 64
_T = TypeVar("_T")


def configure(
    builder: SparkSession.Builder,
    *,
    name: str,
    role: str = "driver",
    socket: str | None = None,
    kubernetes: bool = False,
    class_archive: bool = False,
) -> SparkSession.Builder:
    """Return ``builder`` set up to keep its state on the mount.

    The calling process acquires the working directory ``<role>_<name>`` and holds it until it ends. A second process with
    the same name is refused (``RefusedError``, which names the holder). The session that the builder makes runs the
    partitions of its streaming queries where their state is (``place_state``), reports their batches to the daemon
    (``holdfast batches``), and says in a sentence when a query has ended because another driver works on its checkpoint.
    Call it before the session is made, once per process. With ``kubernetes``, executors' pods get their template
    (``holdfast_spark.kubernetes``), in place of one that is set already. With ``class_archive``, the JVM starts with the
    classes that an earlier one in the working directory has left, or leaves them (``holdfast_spark.class_archive``).
    A daemon that is just being replaced is waited for.
    Raises ``DaemonUnreachableError`` if none answers on ``socket`` (default: ``$HOLDFAST_SOCKET``, then
    ``/run/holdfast/control.sock``).
    """
    local = local_directory(name, role, socket)
    chosen = with_archive(settings(local), local) if class_archive else settings(local)
    chosen = with_short_start(chosen, builder._options)  # noqa: SLF001 what has been set so far is nowhere else
    chosen |= {**links_in_mount(socket), **STEP_ASIDE}
    if kubernetes:
        mountpoint = _ask(socket, ControlClient.status).mountpoint
        chosen |= template_settings(local.parent / "executor-pod.yaml", directory_name(name), mountpoint)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    made = partial(install, socket=socket, local=local, class_archive=class_archive)
    return with_installed(builder, made, partial(load_known_classes, local))


def local_directory(name: str, role: str = "driver", socket: str | None = None, pid: int | None = None) -> Path:
    """Acquire the working directory ``<role>_<name>`` for a process; return where in it Spark's own files belong.

    ``pid`` is the process; None: this one.
    """
    local = Path(acquire(role, name, socket, pid).path) / "tmp" / "spark"
    local.mkdir(exist_ok=True)
    os.environ.pop("SPARK_LOCAL_DIRS", None)  # it would override spark.local.dir
    return local


def links_in_mount(socket: str | None = None) -> dict[str, str]:
    """Return the settings with which Spark links files between the daemon's stores and its local directories, if it can."""
    status = _ask(socket, ControlClient.status)
    return linking_settings(status.mountpoint, list(status.remotes))


def install(
    spark: SparkSession, socket: str | None = None, local: Path | None = None, *, class_archive: bool = False
) -> None:
    """Let the session's streaming queries be placed and reported, and a second driver's error be explained.

    ``local`` is Spark's own directory in the working directory, where the names of the JVM's classes are kept, and with
    ``class_archive`` an archive of them. At the end of the process the session is stopped, if it was not.
    """
    from holdfast_spark.batch_reports import report_batches  # these need pyspark, which workers' environments may lack
    from holdfast_spark.driver_end import stop_session_at_exit
    from holdfast_spark.second_driver import explain_second_drivers

    give_executors_the_jar(spark)
    fit_format_to_provider(spark)
    stop_queries_first = stop_session_at_exit(spark)
    if not plugin_works(spark):
        place_state(spark, socket_path(socket))
        report_batches(spark, socket_path(socket))
    explain_second_drivers(spark)
    if local is not None:
        keep_class_names(spark, local)
        if class_archive:
            keep_archive(spark, local)
    stop_queries_first()


def directory_name(application: str) -> str:
    """Return the name of the working directory of an application that does not choose one."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", application)[:_LONGEST_NAME]


def acquire(role: str, name: str, socket: str | None = None, pid: int | None = None) -> WorkdirInfo:
    """Acquire a working directory for the process ``pid``, or this one."""
    holder = os.getpid() if pid is None else pid
    return _ask(socket, lambda client: client.acquire(role, name, holder, os.getuid(), os.getgid()))


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
    is_mounted = path.with_suffix(".session").exists()  # what one daemon leaves to the next
    deadline = time.monotonic() + (_TAKEOVER_SECONDS if is_mounted else _START_SECONDS)
    while True:
        try:
            with ControlClient(path) as client:
                return question(client)
        except DaemonUnreachableError:
            is_forbidden = path.exists() and not os.access(path, os.W_OK)
            if is_forbidden or not path.parent.exists() or time.monotonic() > deadline:
                raise
        time.sleep(_ATTEMPT_SECONDS)
