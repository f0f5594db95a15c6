"""``spark.read.format("holdfast")``: which options there are, and what each gives.

- ``store`` (or the path given to ``load``): what the store at this URL holds, listed now. ``prefix``: only what lies below
  it; ``parts``: by about how many tasks; ``store.NAME``: the option NAME of the library behind the URL's scheme.
- ``journal``, ``socket``: the events of a daemon, from its journal or its control socket; for ``readStream`` too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, SimpleDataSourceStreamReader

from holdfast.errors import ConfigurationError
from holdfast_spark.datasource.events import EVENTS, EventReader, Events, EventStreamReader, JournalEvents, SocketEvents
from holdfast_spark.datasource.listing import ListingReader
from holdfast_spark.forms import OBJECTS
from holdfast_spark.stores import StoreAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_STORE_OPTION = "store."
_PARTS = 32
_EVENTS: dict[str, Callable[[str], Events]] = {"journal": JournalEvents, "socket": SocketEvents}


def register(spark: SparkSession) -> None:
    """Make ``holdfast`` known to a session."""
    spark.dataSource.register(HoldfastDataSource)


class HoldfastDataSource(DataSource):
    """Inventories of stores, and events of daemons."""

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` is given."""
        return "holdfast"

    def schema(self) -> str:
        """Return the columns. Raises ``ConfigurationError`` when the options name not exactly one thing to read."""
        return OBJECTS.ddl if self._events() is None else EVENTS

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 there is one for each kind
        """Return who reads a batch."""
        events = self._events()
        if events is not None:
            return EventReader(events)
        options = {
            name.removeprefix(_STORE_OPTION): value for name, value in self.options.items() if name.startswith(_STORE_OPTION)
        }
        parts = self.options.get("parts", str(_PARTS))
        if not parts.isdecimal() or not int(parts):
            raise ConfigurationError(f"parts must be a number of tasks, not {parts!r}")
        return ListingReader(StoreAddress(self._store(), options), self.options.get("prefix", "").strip("/"), int(parts))

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802, ARG002 Spark's name
        """Return who reads a stream. Raises ``ConfigurationError`` for a store, which can't be followed."""
        events = self._events()
        if events is None:
            raise ConfigurationError("only events can be read as a stream: give the option journal or socket")
        return EventStreamReader(events)

    def _store(self) -> str:
        return self.options.get("store") or self.options.get("path") or ""

    def _events(self) -> Events | None:
        given = [name for name in _EVENTS if self.options.get(name)]
        if len(given) + bool(self._store()) != 1:
            raise ConfigurationError("the data source holdfast takes one of the options store, journal and socket")
        return _EVENTS[given[0]](self.options[given[0]]) if given else None
