"""``spark.read.format("holdfast")``: its options and their meaning.

- ``store`` (or the path given to ``load``): the objects in the store at this URL, listed now. ``prefix``: only those below
  it; ``parts``: the approximate number of tasks; ``store.NAME``: the option NAME of the library behind the URL's scheme.
- ``journal``, ``socket``: the events of a daemon, from its journal or its control socket.

Both can be streams: of new and changed objects (``lag``: reported so many seconds later), and of events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, SimpleDataSourceStreamReader

from holdfast.errors import ConfigurationError
from holdfast_spark.arrow_forms import OBJECTS
from holdfast_spark.datasource.events import EVENTS, EventReader, Events, EventStreamReader, JournalEvents, SocketEvents
from holdfast_spark.datasource.listing import ChangeReader, Listing, ListingReader
from holdfast_spark.stores import StoreAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_STORE_OPTION = "store."
_PARTS = 32
_LAG_SECONDS = 300
_EVENTS: dict[str, Callable[[str], Events]] = {"journal": JournalEvents, "socket": SocketEvents}


def register(spark: SparkSession) -> None:
    """Register ``holdfast`` in a session."""
    spark.dataSource.register(HoldfastDataSource)


class HoldfastDataSource(DataSource):
    """Inventories of stores, and events of daemons."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return "holdfast"

    def schema(self) -> str:
        """Return the columns. Raises ``ConfigurationError`` unless the options name exactly one thing to read."""
        return OBJECTS.ddl if self._events() is None else EVENTS

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 there is one for each kind
        """Return the batch reader."""
        events = self._events()
        return ListingReader(self._listing()) if events is None else EventReader(events)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 Spark's name
        """Return the reader of a stream of changes; for events Spark uses the simple reader."""
        if self._events() is not None:
            return super().streamReader(schema)
        return ChangeReader(self._listing(), self._number("lag", _LAG_SECONDS))

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802 Spark's name
        """Return the reader of a stream of events."""
        events = self._events()
        return super().simpleStreamReader(schema) if events is None else EventStreamReader(events)

    def _listing(self) -> Listing:
        options = {
            name.removeprefix(_STORE_OPTION): value for name, value in self.options.items() if name.startswith(_STORE_OPTION)
        }
        prefix = self.options.get("prefix", "").strip("/")
        return Listing(StoreAddress(self._store(), options), prefix, self._number("parts", _PARTS) or 1)

    def _number(self, name: str, default: int) -> int:
        text = self.options.get(name, str(default))
        if not text.isdecimal():
            raise ConfigurationError(f"the option {name} must be a whole number, not {text!r}")
        return int(text)

    def _store(self) -> str:
        return self.options.get("store") or self.options.get("path") or ""

    def _events(self) -> Events | None:
        given = [name for name in _EVENTS if self.options.get(name)]
        if len(given) + bool(self._store()) != 1:
            raise ConfigurationError("the data source holdfast takes one of the options store, journal and socket")
        return _EVENTS[given[0]](self.options[given[0]]) if given else None
