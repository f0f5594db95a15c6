"""Work that waits until the queries of a session have done some batches, and the JVM has loaded what a batch needs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast_spark.listening import listen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES = 3
"""The batches with input after which the JVM has loaded what a batch needs."""


def after_batches(spark: SparkSession, action: Callable[[], None]) -> None:
    """Run ``action``, which raises nothing, in a thread once ``BATCHES`` batches of the session's queries are done."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Batches(StreamingQueryListener):
        done = 0

        def onQueryStarted(self, event: Any) -> None:  # noqa: N802 Spark's name
            """Do nothing."""

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802 Spark's name
            """Count a batch that had input."""
            if event.progress.numInputRows > 0:
                self.done += 1
                if self.done == BATCHES:
                    threading.Thread(target=begin, name="holdfast-after-batches", daemon=True).start()

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802 Spark's name
            """Do nothing."""

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 Spark's name
            """Do nothing."""

    def begin() -> None:
        remove()
        action()

    remove = listen(spark, Batches())
