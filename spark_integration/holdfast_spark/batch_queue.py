"""Reports of batches on their way to the daemon: a slow batch, and what it waited for, are one line there.

Whoever reports only puts the report into a queue. Another thread sends what is in it; while the daemon is slow or dead the
oldest reports are dropped. So a query never waits for this, and nothing that goes wrong here is raised into it.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

from holdfast.control.messages import BatchReport

_MOST_WAITING = 100
_LONGEST_NAME = 200
_MOST_PARTS = 16
_LOADED = "rocksdbLoadLatencyMs"
_WHOLE = "triggerExecution"
"""The part that is the whole batch. Spark 3.5 writes no duration beside it."""
_START = -1
_log = logging.getLogger("holdfast.batches")


class BatchQueue:
    """Sends reports by ``send``, which may wait and raise; it is called in a thread of this object."""

    def __init__(self, send: Callable[[BatchReport], None]) -> None:
        self._send = send
        self._waiting: queue.Queue[BatchReport] = queue.Queue(_MOST_WAITING)
        self._was_told = False
        threading.Thread(target=self._send_all, name="holdfast-batches", daemon=True).start()

    def started(self, name: str, run_id: str) -> None:
        """Report the start of a run, from which on the daemon counts. ``name`` is the query's, or its id."""
        self._put(BatchReport(query=name[:_LONGEST_NAME], run=run_id, batch=_START))

    def progressed(self, progress: str) -> None:
        """Report a batch: a ``StreamingQueryProgress`` in JSON, as Spark writes it."""
        try:
            self._put(report_of(json.loads(progress)))
        except Exception as problem:  # noqa: BLE001 a Spark that has other fields must not end the query
            self._tell(problem)

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


def report_of(progress: dict[str, Any]) -> BatchReport:
    """Return the report of a ``StreamingQueryProgress``, as its JSON has it."""
    operators = progress["stateOperators"]
    parts = {name[:40]: float(each) for name, each in list(progress.get("durationMs", {}).items())[:_MOST_PARTS]}
    return BatchReport(
        query=str(progress.get("name") or progress["id"])[:_LONGEST_NAME],
        run=progress["runId"],
        batch=progress["batchId"],
        milliseconds=float(progress.get("batchDuration", parts.get(_WHOLE, 0.0))),
        rows=max(0, progress["numInputRows"]),
        parts=parts,
        load_milliseconds=float(sum(each.get("customMetrics", {}).get(_LOADED, 0) for each in operators)),
        commit_milliseconds=float(sum(each["commitTimeMs"] for each in operators)),
    )
