"""Telling a PySpark program that one of its queries has ended because another driver works on its checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import TracebackType

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from holdfast_spark.connect import has_jvm
from holdfast_spark.listening import listen
from holdfast_spark.second_driver_errors import SecondDriverErrors

_ExceptionHook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def explain_second_drivers(spark: SparkSession) -> None:
    """Write the sentence to stderr when a query of this session has ended that way, or the program with its error."""
    if not has_jvm(spark):
        return  # the listener would run in another process
    errors = SecondDriverErrors(sys.stderr)
    listen(spark, SecondDriverListener(errors))
    sys.excepthook = partial(_after, sys.excepthook, errors)


def _after(
    earlier: _ExceptionHook,
    errors: SecondDriverErrors,
    kind: type[BaseException],
    problem: BaseException,
    traceback: TracebackType | None,
) -> None:
    """Let the hook before this one have its say, then tell: the listener may hear of a query's end too late."""
    earlier(kind, problem, traceback)
    errors.tell(str(problem), None)


class SecondDriverListener(StreamingQueryListener):
    """The listener that Spark calls."""

    def __init__(self, errors: SecondDriverErrors) -> None:
        self._errors = errors

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 Spark's name
        """Remember what the query is called."""
        self._errors.started(str(event.runId), event.name)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 Spark's name
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 Spark's name
        """Look at why it has ended."""
        self._errors.ended(str(event.runId), event.exception)
