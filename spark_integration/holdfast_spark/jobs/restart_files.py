"""The state files that a restarted query reads first, chosen by executors for a warm-up, partition by partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.formats.interface import FinishedBatch, StatePartition
from holdfast.checkpoints.reachability import Examination, Listed
from holdfast_spark.arrow_forms import PLACED, Form
from holdfast_spark.jobs.manifest_reads import examined, reader_below
from holdfast_spark.stores import StoreAddress

STATE = PLACED.with_columns(operator="bigint", partition="bigint", finished="bigint")
"""The meaning of a name below a checkpoint location: a file of a partition's state, or one that shows that a batch is
finished, up to the version of the state in ``finished``."""

UNIT = Form(location="string", operator="bigint", partition="bigint", version="bigint", name="string", size_bytes="bigint")
"""A file that the state of one partition needs, to go on from ``version``."""


class File(NamedTuple):
    """A row of ``STATE`` with the version to go on from."""

    location: str
    location_layout: int
    name: str
    size_bytes: int
    operator: int
    partition: int
    finished: int | None
    version: int


class Chooser:
    """Chooses what one partition of one operator needs. Travels to executors."""

    def __init__(self, address: StoreAddress, root: str, formats: Formats = FORMATS) -> None:
        self._address = address
        self._root = root
        self._formats = formats

    def state_of(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read the names below checkpoint locations (``PLACED`` in, ``STATE`` out); only state and finished batches."""
        for batch in batches:
            yield from STATE.batches(row for row in map(self._state, PLACED.rows(batch)) if row is not None)

    def choose(self, table: Any) -> Any:
        """Choose from one partition's files (``STATE`` with ``version`` in, ``UNIT`` out)."""
        files = {file.name: file for file in (File(*row) for row in STATE.with_columns(version="bigint").rows(table))}
        first = next(iter(files.values()))
        layout = self._formats.locations[first.location_layout]
        listing = [Listed(file.name.encode(), file.size_bytes, 0) for file in files.values()]
        needed = layout.state_to_read(first.location.encode(), listing, first.version)
        names = examined(Examination(needed), reader_below(self._address, self._root))
        chosen = (files[name.decode()] for name in names)
        return UNIT.table(
            (file.location, file.operator, file.partition, file.version, file.name, file.size_bytes) for file in chosen
        )

    def _state(self, row: tuple[Any, ...]) -> tuple[Any, ...] | None:
        location, layout, name, _ = row
        below = name[len(location) + 1 if location else 0 :]
        match self._formats.locations[layout].state_of(below.encode()):
            case StatePartition(operator, partition):
                return *row, operator, partition, None
            case FinishedBatch(version):
                return *row, None, None, version
        return None
