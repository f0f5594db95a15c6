"""Telling the daemon of each batch of a session's streaming queries: a slow one, and what it waited for, are one line there.

Spark's thread of the query only puts the report into a queue. Another thread sends what is in it; while the daemon is slow
or dead the oldest reports are dropped. So a query never waits for this, and nothing that goes wrong here is raised into it.
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from holdfast.control.client import ControlClient
from holdfast.control.messages import BatchReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_WAITING = 100
_LAST_SECONDS = 1.0
_LONGEST_NAME = 200
_MOST_PARTS = 16
_LOADED = "rocksdbLoadLatencyMs"
_START = -1
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

    reports = BatchReports(send)
    spark.streams.addListener(reports)
    atexit.register(_ended, spark, reports)


class BatchReports(StreamingQueryListener):
    """The listener that Spark calls. ``send`` may wait and raise; it is called in a thread of this object."""

    def __init__(self, send: Callable[[BatchReport], None]) -> None:
        self._send = send
        self._waiting: queue.Queue[BatchReport] = queue.Queue(_MOST_WAITING)
        self._was_told = False
        threading.Thread(target=self._send_all, name="holdfast-batches", daemon=True).start()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 Spark's name
        """Tell of the start, from which on the daemon counts."""
        self._put(BatchReport(query=_name(event), run=str(event.runId), batch=_START))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 Spark's name
        """Tell of a batch."""
        try:
            self._put(report_of(event.progress))
        except Exception as problem:  # noqa: BLE001 a Spark that has other fields must not end the query
            self._tell(problem)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 Spark's name
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 Spark's name
        """Do nothing."""

    def finish(self, seconds: float) -> None:
        """Wait until all reports are sent, but not longer than this."""
        over = threading.Thread(target=self._waiting.join, daemon=True)
        over.start()
        over.join(seconds)

    def _put(self, report: BatchReport) -> None:
        while True:
            try:
                return self._waiting.put_nowait(report)
            except queue.Full:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        try:
            self._waiting.get_nowait()
            self._waiting.task_done()
        except queue.Empty:
            return

    def _send_all(self) -> None:
        while True:
            report = self._waiting.get()
            try:
                self._send(report)
            except Exception as problem:  # noqa: BLE001 the daemon may be gone: the query goes on
                self._tell(problem)
            finally:
                self._waiting.task_done()

    def _tell(self, problem: Exception) -> None:
        level = logging.DEBUG if self._was_told else logging.WARNING
        self._was_told = True
        _log.log(level, "the daemon is not told of batches: %s", str(problem).partition("\n")[0])


def report_of(progress: Any) -> BatchReport:
    """Return the report of a ``StreamingQueryProgress``."""
    operators = list(progress.stateOperators)
    parts = {str(name)[:40]: float(each) for name, each in list(dict(progress.durationMs).items())[:_MOST_PARTS]}
    return BatchReport(
        query=_name(progress),
        run=str(progress.runId),
        batch=int(progress.batchId),
        milliseconds=float(progress.batchDuration),
        rows=max(0, int(progress.numInputRows)),
        parts=parts,
        load_milliseconds=float(sum(dict(each.customMetrics).get(_LOADED, 0) for each in operators)),
        commit_milliseconds=float(sum(each.commitTimeMs for each in operators)),
    )


def _name(found: Any) -> str:
    return str(found.name or found.id)[:_LONGEST_NAME]


def _ended(spark: SparkSession, reports: BatchReports) -> None:
    """Send the last reports; and remove the listener, if Spark still runs: it would call a Python that is gone."""
    reports.finish(_LAST_SECONDS)
    try:
        spark.streams.removeListener(reports)
    except Exception as problem:  # noqa: BLE001 the driver ends
        _log.debug("the listener is still there: %s", problem)
