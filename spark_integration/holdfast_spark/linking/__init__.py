"""Hard links in the place of Spark's copies of state files: ``holdfast-spark.jar``, and what makes Spark use it.

The jar is built with the C module and found beside it (``setup.py``). ``python -m holdfast_spark.linking`` prints its path.
Without it everything works; Spark then copies what it could link.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_SYSTEM_KEY = "spark.hadoop.fs.file.impl"
_FILE_SYSTEM = "io.holdfast.spark.LinkingFileSystem"
_STORES_KEY = "spark.hadoop.fs.holdfast.stores"
_PACKAGE = "holdfast_spark_jvm"
_JAR = "holdfast-spark.jar"
_CLASS_PATH = "SPARK_DIST_CLASSPATH"
"""The JVM that PySpark starts puts this behind its own class path. What the job sets of class paths stays as it is."""
_log = logging.getLogger("holdfast.linking")


def jar_path() -> Path | None:
    """Return the path of the jar; None if Holdfast was built without it."""
    found = importlib.util.find_spec(_PACKAGE)
    places = found.submodule_search_locations if found is not None else None
    return next((jar for jar in (Path(place, _JAR) for place in places or ()) if jar.exists()), None)


def linking_settings(mountpoint: str, stores: list[str]) -> dict[str, str]:
    """Return the settings with which Spark links files between these stores of the mount and its local directories.

    They are empty, and the log says why, if the driver's JVM can't have the jar. A JVM that does not run yet gets it.
    """
    problem = _what_the_jvm_lacks()
    if problem:
        _log.warning("Spark copies state files instead of linking them: %s", problem)
        return {}
    return {FILE_SYSTEM_KEY: _FILE_SYSTEM, _STORES_KEY: ",".join(f"{mountpoint}/{store}" for store in stores)}


def give_executors_the_jar(spark: SparkSession) -> None:
    """Let Spark send the jar to its executors, wherever these find Holdfast, if the session links files."""
    context = spark.sparkContext
    jar = jar_path()
    if (
        jar is not None
        and context.getConf().get(FILE_SYSTEM_KEY) == _FILE_SYSTEM
        and not str(context.master).startswith("local[")
    ):
        context._jsc.sc().addJar(str(jar))  # noqa: SLF001 PySpark has no way of its own


def _what_the_jvm_lacks() -> str:
    """Put the jar on the class path of the JVM to come, and return ""; or say why that can't be."""
    jar = jar_path()
    if _is_jvm_running():
        if _has_file_system():
            return ""
        where = jar or f"{_JAR}, which this Holdfast was built without"
        return f"the JVM runs already, and does not have the jar; set spark.driver.extraClassPath to {where}"
    if jar is None:
        return f"this Holdfast was built without {_JAR}; building it takes a JDK"
    paths = [path for path in os.environ.get(_CLASS_PATH, "").split(os.pathsep) if path]
    if str(jar) not in paths:
        os.environ[_CLASS_PATH] = os.pathsep.join([*paths, str(jar)])
    return ""


def _is_jvm_running() -> bool:
    from pyspark import SparkContext  # workers' environments may lack it

    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ  # noqa: SLF001 nobody else knows


def _has_file_system() -> bool:
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkContext

    SparkContext._ensure_initialized()  # noqa: SLF001 connects to the JVM that spark-submit has started
    thread = SparkContext._jvm.java.lang.Thread.currentThread()  # type: ignore[union-attr]  # noqa: SLF001
    try:
        thread.getContextClassLoader().loadClass(_FILE_SYSTEM)
    except Py4JJavaError:
        return False
    return True
