"""The census of a query: its batches, and the size of its state, as far as names tell."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.checkpoints.formats.interface import Counted, Found
from holdfast.checkpoints.formats.spark.query import Query


def counted(query: Query) -> Iterator[Counted]:
    """Count a query's batches, and its state."""
    prefix = query.location + b"/" if query.location else b""
    for number in sorted(query.commits.keys() | query.offsets.keys()):
        files = [log[number] for log in (query.commits, query.offsets) if number in log]
        found = Found.of(b"%scommits/%d" % (prefix, number), "batch", files, is_complete=number in query.commits)
        yield Counted(query.location, number, found)
    state = [listed for store in query.stores.values() for listed in (*store.shared, *(each for each, _ in store.versions))]
    if state:
        yield Counted(query.location, -1, Found.of(b"%sstate" % prefix, "state", state, is_complete=True))
