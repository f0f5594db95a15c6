"""Options for the JVM of a driver, with which it collects less garbage while it starts and in its first batches.

By itself a JVM begins with a heap of a 64th of the memory, of which a twentieth is young, and looks for classes to unload
when 21, 35 and 58 MB of them are loaded. A driver then stands still dozens of times before its first batch is done. Where
the job, ``spark-defaults.conf`` or the environment say anything about the same, it is theirs to decide.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from holdfast_spark.spark_defaults import spark_defaults

JVM_OPTIONS_KEY = "spark.driver.extraJavaOptions"
_DEFAULT_OPTIONS_KEY = "spark.driver.defaultJavaOptions"
OF_ALL_JVMS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""The environment's options for JVMs."""
_CLASSES = ("-XX:MetaspaceSize=256m",)
_HEAP = ("-XX:NewSize=128m", "-XX:InitialRAMPercentage=12.5")
"""The second is a share of the machine's or the container's memory, and no more than ``spark.driver.memory``. A heap takes
memory when it is written to, not before; Spark refuses drivers with less than 450 MB of it."""
_CHOICES_OF_CLASSES = ("MetaspaceSize",)
_CHOICES_OF_HEAP = ("-Xm", "GC", "HeapSize", "NewSize", "NewRatio", "RAM", "PreTouch", "LargePages")
_OTHER_OPTIONS = ("SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS")
"""The environment's options for drivers, in which a job may choose too."""


def with_short_start(settings: Mapping[str, str], given: Mapping[str, object]) -> dict[str, str]:
    """Return Spark's settings with these options, and behind them those that the job has given its driver's JVM.

    ``given`` are the settings of the job so far; those of ``spark-defaults.conf`` are read.
    """
    known = {**spark_defaults(), **given}
    own = str(known.get(JVM_OPTIONS_KEY, ""))
    of_environment = (os.environ.get(name, "") for name in (*OF_ALL_JVMS, *_OTHER_OPTIONS))
    chosen = " ".join([own, str(known.get(_DEFAULT_OPTIONS_KEY, "")), *of_environment])
    ours = [
        *(_CLASSES if not _any_of(_CHOICES_OF_CLASSES, chosen) else ()),
        *(_HEAP if not _any_of(_CHOICES_OF_HEAP, chosen) else ()),
    ]
    return {**settings, JVM_OPTIONS_KEY: " ".join(filter(None, [settings[JVM_OPTIONS_KEY], *ours, own]))}


def _any_of(words: Iterable[str], text: str) -> bool:
    return any(word in text for word in words)
