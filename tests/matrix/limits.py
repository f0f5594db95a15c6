"""What a Spark, or Holdfast with it, can't do, and why: a cell of the matrix may fail for no other reason."""

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


LIMITS: tuple[Limit, ...] = ()
