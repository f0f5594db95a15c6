"""A builder of Spark sessions that does something with each session that it makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def with_installed(builder: SparkSession.Builder, *install: Callable[[SparkSession], object]) -> SparkSession.Builder:
    """Return a builder with the options of ``builder`` that calls ``install`` with the session, each once."""
    from pyspark.sql import SparkSession

    class InstallingBuilder(SparkSession.Builder):
        installed = False

        def getOrCreate(self) -> SparkSession:  # noqa: N802 Spark's name
            """Make the session, or return the one there is."""
            spark = super().getOrCreate()
            if not self.installed:
                self.installed = True
                for each in install:
                    each(spark)
            return spark

    installing = InstallingBuilder()
    installing._options.update(builder._options)  # noqa: SLF001 what has been set so far is nowhere else
    return installing
