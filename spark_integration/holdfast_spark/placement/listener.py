"""The listener that Spark calls in a PySpark program."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from holdfast_spark.placement.query_events import HOLDS_UP_SECONDS, QueryEvents


class PlacementListener(StreamingQueryListener):
    """Passes on to ``events`` what Spark tells. A start is held up for ``holds_up_seconds`` at most."""

    def __init__(self, events: QueryEvents, holds_up_seconds: float = HOLDS_UP_SECONDS) -> None:
        self._events = events
        self._holds_up_seconds = holds_up_seconds

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 Spark's name
        """Place the query's partitions."""
        self._events.started(str(event.id), str(event.runId)).join(self._holds_up_seconds)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 Spark's name
        """See whether executors have come or gone."""
        self._events.look_again(str(event.progress.runId), after_batch=True)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 Spark's name
        """See whether executors have come or gone."""
        self._events.look_again(str(event.runId), after_batch=False)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 Spark's name
        """Forget the run."""
        self._events.ended(str(event.runId))
