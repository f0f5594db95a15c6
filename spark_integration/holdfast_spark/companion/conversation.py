"""Acts on what the plugin tells this process."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from holdfast.control.client import ControlClient
from holdfast.control.messages import BatchReport, HoldingsReply
from holdfast.errors import HoldfastError
from holdfast_spark.batch_queue import BatchQueue
from holdfast_spark.companion.jvm import JvmDriver
from holdfast_spark.companion.known_classes import KnownClasses
from holdfast_spark.companion.lines import fields_of
from holdfast_spark.placement.local_state import LocalState
from holdfast_spark.placement.query_events import QueryEvents
from holdfast_spark.placement.steering import Steering
from holdfast_spark.second_driver_errors import SecondDriverErrors
from holdfast_spark.session import directory_name, local_directory, socket_path

_LAST_SECONDS = 1.0
_log = logging.getLogger("holdfast.driver")


def main() -> None:
    """Serve a driver until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the driver's end is this one's
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may get between the lines
    Conversation(output).hold(sys.stdin.buffer)


class Conversation:
    """Acts on each line that the plugin sends."""

    def __init__(self, output: BinaryIO) -> None:
        self._jvm = JvmDriver(output)
        self._places = False
        self._events = QueryEvents(Steering(self._jvm, partial(_holdings, all_nodes=True), _not_ahead))
        self._reports = BatchQueue(_report)
        self._classes = KnownClasses(self._jvm)
        self._errors = SecondDriverErrors(sys.stderr)
        self._acts: Mapping[str, Callable[..., None]] = {
            "hello": self._hello,
            "started": self._started,
            "progress": self._progressed,
            "idle": self._idle,
            "terminated": self._terminated,
            "lost": self._lost,
            "answer": self._answered,
            "fault": self._failed,
        }

    def hold(self, lines: Iterable[bytes]) -> None:
        """Act on the lines to their end; then send the last reports."""
        for line in lines:
            kind, *about = fields_of(line.decode("utf-8", "surrogateescape").rstrip("\n"))
            act = self._acts.get(kind)
            if act is not None:  # a newer jar may tell more
                act(*about)
        self._reports.finish(_LAST_SECONDS)

    def _hello(self, application: str, pid: str, is_local: str, held: str) -> None:
        """Acquire the directory for the JVM, if it does not hold one. On ``local[…]`` there is nothing to place."""
        self._places = is_local != "true"
        if not self._places:
            self._events = QueryEvents(LocalState(self._jvm, partial(_holdings, all_nodes=False)))
        self._in_thread(lambda: self._introduce(held or _directory(application, int(pid))))

    def _introduce(self, directory: str) -> None:
        self._jvm.send("directory", directory)
        if directory:
            self._classes.load(Path(directory))

    def _started(self, query_id: str, run_id: str, name: str) -> None:
        self._reports.started(name or query_id, run_id)
        self._errors.started(run_id, name or None)
        if not self._places:
            self._jvm.send(run_id, "")
        placing = self._events.started(query_id, run_id)
        if not self._places:
            return

        def tell() -> None:
            placing.join()
            self._jvm.send(run_id, "")

        self._in_thread(tell)

    def _progressed(self, run_id: str, progress: str) -> None:
        self._reports.progressed(progress)
        self._classes.progressed(progress)
        self._events.look_again(run_id, after_batch=True)

    def _idle(self, run_id: str, _: str) -> None:
        self._events.look_again(run_id, after_batch=False)

    def _lost(self, executor_id: str) -> None:
        self._events.executor_lost(executor_id)

    def _terminated(self, run_id: str, error: str) -> None:
        self._events.ended(run_id)
        self._errors.ended(run_id, error)

    def _answered(self, number: str, *answer: str) -> None:
        self._jvm.settle(number, list(answer), is_fault=False)

    def _failed(self, number: str, problem: str) -> None:
        self._jvm.settle(number, [problem], is_fault=True)

    @staticmethod
    def _in_thread(work: Callable[[], None]) -> None:
        threading.Thread(target=work, daemon=True).start()


def _directory(application: str, pid: int) -> str:
    """Return where Spark's own files belong, or "" if the driver goes without a working directory."""
    try:
        return str(local_directory(directory_name(application), pid=pid))
    except HoldfastError as problem:
        _log.warning("this job has no working directory: %s", problem)
        return ""


def _holdings(path: str, *, all_nodes: bool) -> HoldingsReply:
    with ControlClient(socket_path()) as daemon:
        return daemon.holdings(path, all_nodes=all_nodes)


def _report(report: BatchReport) -> None:
    with ControlClient(socket_path()) as daemon:
        daemon.report_batch(report)


def _not_ahead(path: Path, by_host: Mapping[str, Sequence[int]]) -> int:
    """Fetch nothing: the first tasks on those hosts do."""
    del path, by_host
    return 0
