"""Telling the daemon of each batch of a PySpark session's streaming queries."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from holdfast.control.client import ControlClient
from holdfast.control.messages import BatchReport
from holdfast_spark.batch_queue import BatchQueue
from holdfast_spark.connect import has_jvm
from holdfast_spark.listening import listen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LAST_SECONDS = 1.0


def report_batches(spark: SparkSession, socket: Path | str) -> None:
    """Report the batches of this session's streaming queries to the daemon behind ``socket``, until the process ends.

    Not with Spark Connect, where the driver is elsewhere.
    """
    if not has_jvm(spark):
        return

    def send(report: BatchReport) -> None:
        with ControlClient(socket) as daemon:
            daemon.report_batch(report)

    reports = BatchQueue(send)
    listen(spark, BatchListener(reports))
    atexit.register(reports.finish, _LAST_SECONDS)  # before the listener goes: what is registered last is called first


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
