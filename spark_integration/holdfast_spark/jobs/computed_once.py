"""DataFrames that are computed once: what is used several times lies on the executors' disks until the block ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame

Hold = Callable[[DataFrame], DataFrame]


@contextmanager
def holding() -> Iterator[Hold]:
    """Give a function that has a DataFrame kept, once it is computed."""
    held: list[DataFrame] = []

    def hold(frame: DataFrame) -> DataFrame:
        held.append(frame.persist(StorageLevel.DISK_ONLY))
        return held[-1]

    try:
        yield hold
    finally:
        for frame in held:
            frame.unpersist()
