"""Telling sessions of Spark Connect from those with a JVM of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def has_jvm(spark: SparkSession) -> bool:
    """Say whether this process has the driver's JVM. With Spark Connect it is elsewhere."""
    return hasattr(spark, "_jsparkSession")
