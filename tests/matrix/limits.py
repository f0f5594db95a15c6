"""The limits of each Spark, and of Holdfast with it, with reasons: a cell of the matrix may fail for no other reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.matrix.operations import READ, other_version

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
    "since 4.1, Spark does not read snapshots of format 2 that 4.0 wrote, with `v2` in them (`CANNOT_READ_CHECKPOINT`); "
    "`verify` says so, and `verify --spark` refuses them"
)
_SNAPSHOTS_FOR_4_0 = (
    "Spark 4.0 reads no snapshots of format 2 but its own (`CANNOT_READ_CHECKPOINT … Expected v2, but found v1`); "
    "`verify --spark 4.0` refuses them"
)
_COMMITS_OF_FORMAT_2 = (
    "with 4.3, `configure` keeps state in format 2, and no session of format 1 before 4.3 reads a commit of that "
    "(`UnsupportedLogVersion`); queries that stayed in format 1 go on"
)
_TRANSFORM_OF_LATER = "Spark 4.0 and 4.1 do not read what 4.2 keeps for `transformWithState` (`INTERNAL_ERROR … UnsafeRow`)"

LIMITS: tuple[Limit, ...] = (
    Limit(_READER_OF_4_0, ("4.0",), READ, shape="rocksdb-2-changelog"),
    Limit(_READER_OF_4_0, ("4.0",), READ, shape="rocksdb-2"),
    Limit(_SNAPSHOTS_OF_4_0, (), other_version("4.0"), shape="rocksdb-2-changelog"),
    Limit(_SNAPSHOTS_OF_4_0, (), other_version("4.0"), shape="rocksdb-2"),
    *(
        Limit(_SNAPSHOTS_FOR_4_0, ("4.0",), other_version(later), shape=shape)
        for later in ("4.1", "4.2", "4.3")
        for shape in ("rocksdb-2-changelog", "rocksdb-2")
    ),
    Limit(_COMMITS_OF_FORMAT_2, ("3.5", "4.0", "4.1", "4.2"), other_version("4.3")),
    Limit(_TRANSFORM_OF_LATER, ("4.0", "4.1"), other_version("4.2"), "transformWithState"),
    Limit(_NULLABLE_JOIN, (), other_version("3.5"), "join"),
)
