"""For jobs that run on a cluster: keeping an executor busy."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from holdfast_spark.placement.fetch_ahead import on_hosts

POLL_SECONDS = 0.05
_FOR_EVER_SECONDS = 3600


def occupy(spark: SparkSession, host: str) -> None:
    """Keep the one core of ``host`` busy to the end of the application; return when it is."""

    def sleep() -> None:
        with suppress(Py4JError):  # the application ends before
            on_hosts(spark, [(_FOR_EVER_SECONDS, host)]).foreach(time.sleep)

    threading.Thread(target=sleep, daemon=True).start()
    context: Any = spark.sparkContext
    store = context._jsc.sc().statusStore()
    while not any(int(each.activeTasks()) for each in elements(store.executorList(True))):
        time.sleep(POLL_SECONDS)


def elements(sequence: Any) -> Iterator[Any]:
    """Yield the elements of a sequence of Scala's."""
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()
