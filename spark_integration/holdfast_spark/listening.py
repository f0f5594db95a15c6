"""Listeners for the events of a session's streaming queries, which go before Python does."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener

_log = logging.getLogger("holdfast.listening")


def listen(spark: SparkSession, listener: StreamingQueryListener) -> Callable[[], None]:
    """Add a listener until the process ends; return a function that removes it sooner.

    If Spark still ran then, it would call a Python that is gone, and log that.
    """

    def remove() -> None:
        atexit.unregister(remove)
        try:
            spark.streams.removeListener(listener)
        except Exception as problem:  # noqa: BLE001 the driver ends
            _log.debug("the listener is still there: %s", problem)

    spark.streams.addListener(listener)
    atexit.register(remove)
    return remove
