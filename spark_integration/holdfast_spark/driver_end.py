"""Ends the session of a driver that ends without ``spark.stop()``.

Otherwise the JVM notices that Python is gone while its queries run: their batches fail under them, their events find no
listener, and each of them logs a stack trace, fifty lines and more for a program that has done nothing wrong.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from holdfast_spark.connect import has_jvm

_log = logging.getLogger("holdfast.driver_end")
_STOP_TIMEOUT = "10s"
"""The time for which a batch that can't be interrupted may hold up the end of the program: it is abandoned then, as it would
be anyway."""
_LOGGERS_OF_BATCHES = (
    "org.apache.spark.sql.execution",
    "org.apache.spark.executor",
    "org.apache.spark.scheduler",
    "org.apache.spark.util",
)
"""Loggers to which Spark reports an interrupted batch as an error with a stack trace, though the interrupt was asked for."""


def stop_session_at_exit(spark: SparkSession) -> Callable[[], None]:
    """Stop the session at the end of this process, after all that is registered with ``atexit`` from now on.

    Return what registers the stop of its queries, before all of that: call it when nothing else is registered any more.
    """
    if not has_jvm(spark):
        return lambda: None  # the session is not this process's
    process = os.getpid()
    atexit.register(_in_process, process, lambda: _stop_session(spark))

    def stop_queries_first() -> None:
        atexit.register(_in_process, process, lambda: _stop_queries(spark))

    return stop_queries_first


def _in_process(process: int, stop: Callable[[], None]) -> None:
    """Do it, unless this is a fork of the driver, or Spark has gone already."""
    if os.getpid() != process:
        return
    try:
        stop()
    except Exception as problem:  # noqa: BLE001 the driver ends
        _log.debug("the session was not stopped: %s", problem)


def _stop_session(spark: SparkSession) -> None:
    if _is_there(spark):
        spark.stop()


def _stop_queries(spark: SparkSession) -> None:
    if not _is_there(spark):
        return
    active = spark.streams.active
    if active:
        _silence_batches(spark)
        spark.conf.set("spark.sql.streaming.stopTimeout", _STOP_TIMEOUT)
    for query in active:
        query.stop()


def _silence_batches(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm  # noqa: SLF001 Python has no other way to a single logger of the JVM
    assert jvm is not None
    log4j = jvm.org.apache.logging.log4j
    try:
        for name in _LOGGERS_OF_BATCHES:
            log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
    except (Py4JError, TypeError) as problem:  # Spark logs by another library here
        _log.debug("batches that are interrupted now will be logged: %s", problem)


def _is_there(spark: SparkSession) -> bool:
    return spark.sparkContext._jsc is not None  # noqa: SLF001 it has no public way to ask
