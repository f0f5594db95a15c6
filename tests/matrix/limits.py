"""The limits of each Spark, and of Holdfast with it, with reasons: a cell of the matrix may fail for no other reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.matrix.outcomes import Outcome


@dataclass(frozen=True)
class Limit:
    """Queries of the kind ``kind`` can't have ``operation`` with Sparks of ``releases``; "" stands for any."""

    reason: str
    releases: tuple[str, ...] = ()
    operation: str = ""
    kind: str = ""
    shape: str = ""

    def holds_for(self, outcome: Outcome) -> bool:
        """Say whether it is the reason of a failure."""
        pairs = ((self.operation, outcome.operation), (self.kind, outcome.kind), (self.shape, outcome.shape))
        return (not self.releases or outcome.spark.short in self.releases) and all(
            not own or own == its for own, its in pairs
        )


_READER_OF_4_0 = "Spark 4.0's `statestore` looks for the names of format 1 (`CANNOT_LOAD_STATE_STORE`)"
_NULLABLE_JOIN = (
    "since 4.0, Spark takes the columns of this join to be nullable, 3.5 did not, and the state is refused; it goes on with "
    "`spark.sql.streaming.stateStore.stateSchemaCheck=false` (`STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE`)"
)
_SNAPSHOTS_OF_4_0 = (
    "Spark 4.3 does not read snapshots of format 2 that 4.0 wrote, with `v2` in them (`CANNOT_READ_CHECKPOINT`); "
    "`verify` says so, and `verify --spark 4.3` refuses them"
)

LIMITS: tuple[Limit, ...] = (
    Limit(_READER_OF_4_0, ("4.0",), "`statestore` and `state-metadata` read it", shape="rocksdb-2-changelog"),
    Limit(_READER_OF_4_0, ("4.0",), "`statestore` and `state-metadata` read it", shape="rocksdb-2"),
    Limit(_SNAPSHOTS_OF_4_0, ("4.3",), "goes on from a clone of 4.0's", shape="rocksdb-2-changelog"),
    Limit(_SNAPSHOTS_OF_4_0, ("4.3",), "goes on from a clone of 4.0's", shape="rocksdb-2"),
    Limit(_NULLABLE_JOIN, (), "goes on from a clone of 3.5's", "join"),
)
