"""Counts the partitions that an operator's state has in a batch.

Spark takes the number from the settings in the batch's offsets, and an operator that can't be divided, such as a global
limit, has one. The number in the operator's metadata is that of the query's first start: Spark 4.3's repartitioning of state
changes the settings alone. Sources: S ``OffsetSeqMetadata``, ``OfflineStateRepartitionRunner`` (Spark 4.3).
"""

from __future__ import annotations

import io

from holdfast.checkpoints.formats.spark.batch_log import SparkOffsets, read_spark_offsets

_SETTING = "spark.sql.shuffle.partitions"
_LONGEST_NUMBER = 10


def partitions_in_settings(offsets: SparkOffsets | None) -> int:
    """Return the number that a batch's settings name; 0 if they name none."""
    told = (offsets.settings if offsets else {}).get(_SETTING, "")
    return int(told) if told.isdecimal() and len(told) < _LONGEST_NUMBER else 0


def partitions_of_operator(by_metadata: int, by_settings: int, there: int, by_commit: int = 0) -> int:
    """Return the number; 0 for what is not known.

    ``there`` is how many have files: it shows only that the operator is divided, for some may be old, and others lost.
    """
    if not by_metadata or not by_settings:
        return max(by_metadata, by_settings, there, by_commit)
    is_divided = max(by_metadata, there, by_commit) > 1
    return max(by_settings, by_commit) if is_divided else 1


def partitions_now(by_metadata: int, there: int, newest_offsets: bytes) -> int:
    """Return the number in the batch whose offsets have these bytes; of damaged ones, what the rest says."""
    read = read_spark_offsets(io.BytesIO(newest_offsets), len(newest_offsets))
    settings = partitions_in_settings(read if isinstance(read, SparkOffsets) else None)
    return partitions_of_operator(by_metadata, settings, there)
