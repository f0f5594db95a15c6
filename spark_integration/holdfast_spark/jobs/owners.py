"""Owners and purposes of objects, for the report on usage: what executors compute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.formats.interface import OTHER, TEMPORARY
from holdfast.checkpoints.reachability import Listed
from holdfast.checkpoints.reachability.division import Part, part_of
from holdfast_spark.arrow_forms import PLACED, Form
from holdfast_spark.stores import PRIVATE, is_private

OWNED = Form(owner="string", purpose="string", size_bytes="bigint")


class Owners:
    """Tells owners, by the given checkpoint formats. Travels to executors."""

    def __init__(self, formats: Formats = FORMATS) -> None:
        self._formats = formats

    def own(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Tell owners and purposes (``PLACED`` in, ``OWNED`` out)."""
        for batch in batches:
            yield from OWNED.batches((*self.owner_of(*row[:3]), row[3]) for row in PLACED.rows(batch))

    def owner_of(self, location: str | None, layout: int | None, name: str) -> tuple[str, str]:
        """Return owner and purpose of ``name``. The owner is a query's location, a job, or else the first directory."""
        if location is not None:
            below = name[len(location) + 1 if location else 0 :]
            return location or ".", self._formats.locations[layout or 0].purpose_of(below.encode())
        if is_private(name):
            return PRIVATE, TEMPORARY
        placed = part_of(Listed(name.encode(), 0, 0), self._formats)
        if placed.part is Part.TREE:
            usage = self._formats.trees[placed.layout].usage_of(placed.name)
            if usage is not None:
                return usage[0].decode(), usage[1]
        first, slash, _ = name.partition("/")
        return (first if slash else "."), OTHER
