"""The ways in which Spark keeps state: providers, and formats of the checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

_STATE_STORE = "spark.sql.streaming.stateStore."
_PROVIDERS = "org.apache.spark.sql.execution.streaming.state."


@dataclass(frozen=True)
class StateShape:
    """``provider`` is the first word of Spark's class."""

    provider: str
    checkpoint_format: int
    has_changelogs: bool = True

    @property
    def name(self) -> str:
        changelogs = "-changelog" if self.provider == "RocksDB" and self.has_changelogs else ""
        return f"{self.provider.lower()}-{self.checkpoint_format}{changelogs}"

    @property
    def title(self) -> str:
        """The name in a table."""
        changelogs = f" {'with' if self.has_changelogs else 'without'} changelogs" if self.provider == "RocksDB" else ""
        return f"{self.provider}{changelogs}, format {self.checkpoint_format}"

    def settings(self) -> dict[str, str]:
        """Spark's settings for it."""
        return {
            f"{_STATE_STORE}providerClass": f"{_PROVIDERS}{self.provider}StateStoreProvider",
            f"{_STATE_STORE}checkpointFormatVersion": str(self.checkpoint_format),
            f"{_STATE_STORE}rocksdb.changelogCheckpointing.enabled": str(self.has_changelogs).lower(),
        }


SHAPES = (
    StateShape("RocksDB", 2),
    StateShape("RocksDB", 1),
    StateShape("HDFSBacked", 1),
    StateShape("RocksDB", 2, has_changelogs=False),
    StateShape("RocksDB", 1, has_changelogs=False),
)
"""HDFSBacked knows format 1 only: with 2 Spark refuses to load what it has written."""


def at_the_pace_of_tests(*, maintenance: str, min_batches: int = 100, deltas_for_snapshot: int = 10) -> dict[str, str]:
    """Settings of a history that takes minutes where life takes days: snapshots and purges come as often in it."""
    return {
        f"{_STATE_STORE}maintenanceInterval": maintenance,
        f"{_STATE_STORE}minDeltasForSnapshot": str(deltas_for_snapshot),
        "spark.sql.streaming.minBatchesToRetain": str(min_batches),
    }
