"""The part of a scrub that executors do: checking that each object's bytes are those that its digest was made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.checkpoints.restoring.object_checks import checked
from holdfast_spark.arrow_forms import OBJECTS, Form
from holdfast_spark.jobs.rate_limit import Pace
from holdfast_spark.stores import StoreAddress, in_parallel, patiently

CHECKED = Form(key="string", size_bytes="bigint", etag="string", outcome="string", detail="string")
_PARALLEL = 4


class Checker:
    """Checks objects of a store, with its share of the rates. Travels to executors."""

    def __init__(self, address: StoreAddress, bytes_per_second: float | None, objects_per_second: float | None) -> None:
        self._address = address
        self._bytes_per_second = bytes_per_second
        self._objects_per_second = objects_per_second

    def check(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Check one task's objects (``OBJECTS`` in, ``CHECKED`` out). Raises ``RemoteUnavailableError``."""
        store = self._address.open()
        objects, data = Pace(self._objects_per_second), Pace(self._bytes_per_second)
        rows = ((row[0], row[1], row[3]) for batch in batches for row in OBJECTS.rows(batch))

        def check(row: tuple[str, int, str]) -> tuple[Any, ...]:
            objects.take(1)
            outcome, detail = patiently(lambda: checked(store, *row, data.take))
            return *row, outcome.value, detail

        yield from CHECKED.batches(in_parallel(check, rows, _PARALLEL))
