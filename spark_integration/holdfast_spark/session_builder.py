"""A builder of Spark sessions that does something before its first session is made, and with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def with_installed(
    builder: SparkSession.Builder,
    install: Callable[[SparkSession], object],
    prepare: Callable[[Mapping[str, object]], object],
) -> SparkSession.Builder:
    """Return a builder with the options of ``builder`` that calls ``install`` with the session, once.

    Before that session is made it calls ``prepare`` with all options.
    """
    from pyspark.sql import SparkSession

    class InstallingBuilder(SparkSession.Builder):
        installed = False

        def getOrCreate(self) -> SparkSession:  # noqa: N802 Spark's name
            """Make the session, or return the one there is."""
            if not self.installed:
                prepare(self._options)
            spark = super().getOrCreate()
            if not self.installed:
                self.installed = True
                install(spark)
            return spark

    installing = InstallingBuilder()
    installing._options.update(builder._options)  # noqa: SLF001 what has been set so far is nowhere else
    return installing
