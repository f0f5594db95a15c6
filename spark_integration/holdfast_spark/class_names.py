"""The names of the classes that a driver's JVM loads, kept in its working directory for the next driver there.

A driver that starts again reads, checks and links some 20,000 classes of Java and Spark, a third of them in its first batch.
Those of an earlier driver are loaded by a thread of the JVM (``ClassNames`` in the jar) from the moment when there is one,
while Spark starts in another. Nothing is initialized but RocksDB's native library, if an earlier driver needed it, and a
name that is wrong is passed over. What fails here is logged (``holdfast.class_names``), and the driver starts as it would
without.

A JVM does not tell which of its classes were needed, and which were only loaded ahead. So the driver that writes the names,
at most one a day, leaves out a part of those before it, chosen at random, and finds out about these: what it does not load
is dropped. Thus the names of jobs and libraries of the past go.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast_spark.after_batches import after_batches
from holdfast_spark.connect import has_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAMES = "classes.names"
_KEPT_SECONDS = 86_400.0
"""The age from which on the names are written again: the job and its libraries may have changed."""
PARTS = 16
"""The number of parts. A class of the part that is left out takes as long as it would without the names: the driver that
writes gains a sixteenth less than the others."""
_OF_CONNECT = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_CONNECT_MODE", "SPARK_API_MODE")
_KEYS_OF_CONNECT = ("spark.remote", "spark.api.mode")
_NOT_CONNECT = ("", "0", "classic")
_log = logging.getLogger("holdfast.class_names")


def names_path(local: Path) -> Path:
    """Return where the names are of drivers whose own files are in ``local``, below ``tmp/`` of the working directory."""
    return local.parent.parent / _NAMES


def load_known_classes(local: Path, options: Mapping[str, object]) -> None:
    """Let the JVM of the session to come, which has these options, begin to load the classes of an earlier driver.

    The JVM is started for that, as the session would have done. Raises what PySpark does if there can't be one.
    """
    names = names_path(local)
    if not os.path.exists(names) or _is_elsewhere(options):  # Path.exists raises where one may not look
        return
    try:
        from pyspark import SparkConf, SparkContext
    except ImportError:  # pyspark-client has no JVM
        return
    conf = SparkConf()
    for key, value in options.items():
        conf.set(key, value)  # type: ignore[arg-type]  # as PySpark does itself
    SparkContext._ensure_initialized(conf=conf)  # noqa: SLF001 PySpark has no way of its own
    try:
        _class_names().load(str(names), PARTS, left_out(names))
    except Exception as problem:  # noqa: BLE001 whatever py4j and the JVM raise, as where the JVM lacks the jar
        _log.info("the classes of an earlier driver are not loaded ahead: %s", problem)


def left_out(names: Path) -> int:
    """Return the number of the part that is not loaded ahead; -1, of none, if the names are not to be written again."""
    return -1 if _are_new(names) else random.randrange(PARTS)


def _is_elsewhere(options: Mapping[str, object]) -> bool:
    """Say whether the session may be a client of Spark Connect, which has no JVM of its own."""
    values = [*(os.environ.get(name, "") for name in _OF_CONNECT), *(str(options.get(key, "")) for key in _KEYS_OF_CONNECT)]
    return any(value.lower() not in _NOT_CONNECT for value in values)


def keep_class_names(spark: SparkSession, local: Path) -> None:
    """Have the names written once some batches are done, unless they have been written in the last day."""
    names = names_path(local)
    if has_jvm(spark) and not _are_new(names):
        after_batches(spark, lambda: _write(names))


def _are_new(names: Path) -> bool:
    """Say whether the names were written in the last day, or can't be written."""
    try:
        return 0 <= time.time() - names.stat().st_mtime < _KEPT_SECONDS
    except FileNotFoundError:
        return False
    except OSError:  # a directory that can't be looked into can't be written to either
        return True


def _write(names: Path) -> None:
    try:
        _class_names().write(str(names))
    except Exception as problem:  # noqa: BLE001 as above, and Java 8 can't tell
        _log.info("the classes of this driver are not written down for the next one: %s", problem)


def _class_names() -> Any:
    from pyspark import SparkContext  # workers' environments may lack it

    jvm: Any = SparkContext._jvm  # noqa: SLF001 PySpark has no way of its own
    return jvm.io.holdfast.spark.ClassNames
