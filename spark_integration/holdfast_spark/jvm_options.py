"""Options for the JVM of a driver, with which it collects less garbage while it starts and in its first batches.

By itself a JVM begins with a heap of a 64th of the memory, of which a twentieth is young, and looks for classes to unload
when 21, 35 and 58 MB of them are loaded. A driver then stands still dozens of times before its first batch is done. Where
the job, its properties or the environment say anything about the same, it is theirs to decide.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

JVM_OPTIONS_KEY = "spark.driver.extraJavaOptions"
_DEFAULT_OPTIONS_KEY = "spark.driver.defaultJavaOptions"
OF_ALL_JVMS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""The environment's options for JVMs."""
_CLASSES = ("-XX:MetaspaceSize=256m",)
_HEAP = ("-XX:NewSize=128m", "-XX:InitialRAMPercentage=12.5")
"""The second is a share of the machine's or the container's memory, and no more than ``spark.driver.memory``. A heap takes
memory when it is written to, not before; Spark refuses drivers with less than 450 MB of it."""
_PROPERTY = re.compile(r"^[ \t]*([^#!\s=:][^\s=:]*)[ \t]*[ \t=:][ \t]*(.*?)[ \t]*$", re.MULTILINE)
"""A line of a properties file."""
_CHOICES_OF_CLASSES = ("MetaspaceSize",)
_CHOICES_OF_HEAP = ("-Xm", "GC", "HeapSize", "NewSize", "NewRatio", "RAM")


def with_short_start(settings: Mapping[str, str], given: Mapping[str, object]) -> dict[str, str]:
    """Return Spark's settings with these options, and behind them those that the job has given its driver's JVM.

    ``given`` are the settings of the job so far; those of ``spark-defaults.conf`` are read.
    """
    known = {**_defaults(), **given}
    own = str(known.get(JVM_OPTIONS_KEY, ""))
    chosen = " ".join([own, str(known.get(_DEFAULT_OPTIONS_KEY, "")), *(os.environ.get(name, "") for name in OF_ALL_JVMS)])
    ours = [
        *(_CLASSES if not _any_of(_CHOICES_OF_CLASSES, chosen) else ()),
        *(_HEAP if not _any_of(_CHOICES_OF_HEAP, chosen) else ()),
    ]
    return {**settings, JVM_OPTIONS_KEY: " ".join(filter(None, [settings[JVM_OPTIONS_KEY], *ours, own]))}


def _any_of(words: Iterable[str], text: str) -> bool:
    return any(word in text for word in words)


def _defaults() -> dict[str, str]:
    """Return the settings of ``spark-defaults.conf``, where Spark looks for it."""
    import pyspark  # workers' environments may lack it

    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    directory = os.environ.get("SPARK_CONF_DIR") or f"{home}/conf"
    try:
        return dict(_PROPERTY.findall(Path(directory, "spark-defaults.conf").read_text()))
    except OSError:
        return {}
