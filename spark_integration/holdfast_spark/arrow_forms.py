"""Row formats of tasks: the same columns for Spark (DDL) and for Arrow (a schema)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow

_TYPES = {
    "string": pyarrow.string(),
    "bigint": pyarrow.int64(),
    "int": pyarrow.int32(),
    "boolean": pyarrow.bool_(),
    "array<bigint>": pyarrow.list_(pyarrow.int64()),
    "array<string>": pyarrow.list_(pyarrow.string()),
}
_ROWS_PER_BATCH = 10_000


class Form:
    """Columns by name, each with a Spark type: ``Form(key="string", size_bytes="bigint")``."""

    def __init__(self, **columns: str) -> None:
        self.columns = columns
        self.ddl = ", ".join(f"{name} {kind}" for name, kind in columns.items())

    def with_columns(self, **columns: str) -> Form:
        """Return a form with further columns."""
        return Form(**self.columns, **columns)

    @property
    def schema(self) -> Any:
        """The Arrow schema."""
        return pyarrow.schema([(name, _TYPES[kind]) for name, kind in self.columns.items()])

    def batches(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield rows, in the order of the columns, as Arrow batches. Holds no more than one batch in memory."""
        schema = self.schema
        waiting = iter(rows)
        while some := list(islice(waiting, _ROWS_PER_BATCH)):
            columns = [
                pyarrow.array(column, field.type) for column, field in zip(zip(*some, strict=True), schema, strict=True)
            ]
            yield pyarrow.RecordBatch.from_arrays(columns, schema=schema)

    def table(self, rows: Iterable[tuple[Any, ...]]) -> Any:
        """Return rows as one Arrow table."""
        return pyarrow.Table.from_batches(self.batches(rows), self.schema)

    def rows(self, batch: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a batch or table that has at least these columns."""
        return zip(*(batch.column(name).to_pylist() for name in self.columns), strict=True)


OBJECTS = Form(key="string", size_bytes="bigint", modified_ns="bigint", etag="string", is_directory="boolean")
"""The content of a store. ``modified_ns`` is by the store's clock, 0 if unknown; directories only if they are real."""

LISTED = Form(name="string", size_bytes="bigint", mtime_ns="bigint", etag="string", is_directory="boolean")
"""The same for a sweep: names are relative to its root, and every entry has a time."""

PLACED = Form(location="string", location_layout="bigint", name="string", size_bytes="bigint")
"""Files, each with the checkpoint location that it lies in (``checkpoint_locations``) and the position of its layout in the
registry of checkpoint formats. Names and locations are relative to the root."""
