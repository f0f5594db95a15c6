"""The listener that Spark calls in a PySpark program."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from holdfast_spark.placement.query_events import HOLDS_UP_SECONDS, QueryEvents


class PlacementListener(StreamingQueryListener):
    """Passes on to ``events`` what Spark tells."""

    def __init__(self, events: QueryEvents) -> None:
        self._events = events

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 Spark's name
        """Place the query's partitions, within a second."""
        self._events.started(str(event.id), str(event.runId)).join(HOLDS_UP_SECONDS)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 Spark's name
        """See whether executors have come or gone."""
        self._events.look_again(str(event.progress.runId), after_batch=True)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 Spark's name
        """See whether executors have come or gone."""
        self._events.look_again(str(event.runId), after_batch=False)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 Spark's name
        """Forget the run."""
        self._events.ended(str(event.runId))
