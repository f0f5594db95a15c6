"""The plugin of ``holdfast-spark.jar`` in the driver's JVM, as a PySpark program meets it: one of the two does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast_spark.connect import has_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEP_ASIDE = {"spark.holdfast.configured": "true"}
"""Tells a plugin to come that it has nothing to do."""
_IS_HERE = "spark.holdfast.plugin"


def plugin_works(spark: SparkSession) -> bool:
    """Say whether the plugin places and reports the queries of this session: it came before Python did."""
    return has_jvm(spark) and bool(spark.sparkContext.getConf().get(_IS_HERE))
