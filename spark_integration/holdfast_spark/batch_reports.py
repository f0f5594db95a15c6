"""Telling the daemon of each batch of a PySpark session's streaming queries."""

from __future__ import annotations

import atexit
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from holdfast.control.client import ControlClient
from holdfast.control.messages import BatchReport
from holdfast_spark.batch_queue import BatchQueue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LAST_SECONDS = 1.0
_log = logging.getLogger("holdfast.batches")


def report_batches(spark: SparkSession, socket: Path | str) -> None:
    """Report the batches of this session's streaming queries to the daemon behind ``socket``, until the process ends.

    Not with Spark Connect, where the driver is elsewhere.
    """
    if not hasattr(spark, "_jsparkSession"):
        return

    def send(report: BatchReport) -> None:
        with ControlClient(socket) as daemon:
            daemon.report_batch(report)

    reports = BatchQueue(send)
    listener = BatchListener(reports)
    spark.streams.addListener(listener)
    atexit.register(_ended, spark, listener, reports)


class BatchListener(StreamingQueryListener):
    """The listener that Spark calls."""

    def __init__(self, reports: BatchQueue) -> None:
        self._reports = reports

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 Spark's name
        """Tell of the start."""
        self._reports.started(str(event.name or event.id), str(event.runId))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 Spark's name
        """Tell of a batch."""
        self._reports.progressed(event.progress.json)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 Spark's name
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 Spark's name
        """Do nothing."""


def _ended(spark: SparkSession, listener: BatchListener, reports: BatchQueue) -> None:
    """Send the last reports; and remove the listener, if Spark still runs: it would call a Python that is gone."""
    reports.finish(_LAST_SECONDS)
    try:
        spark.streams.removeListener(listener)
    except Exception as problem:  # noqa: BLE001 the driver ends
        _log.debug("the listener is still there: %s", problem)
