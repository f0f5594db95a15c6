"""Holdfast for Spark: session settings, placement of state, environment of workers, a pipeline on real data, the demo."""

from holdfast_spark.placement import place_state
from holdfast_spark.session import checkpoint_location, configure

__all__ = ["checkpoint_location", "configure", "place_state"]
