"""Holdfast for Spark: session settings, environment of workers, a streaming pipeline on real data, the demo."""

from holdfast_spark.session import checkpoint_location, configure

__all__ = ["checkpoint_location", "configure"]
