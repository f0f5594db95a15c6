"""Checkpoint formats: a package for each, behind one interface (``interface``), and one line for each in this registry.

``flink_layout`` is no format: it is what Flink's checkpoints and Holdfast's own have in common. Nothing but this registry
imports a format's package.
"""

from holdfast.checkpoints.formats import flink, own, spark
from holdfast.checkpoints.formats.registry import Formats

FORMATS = Formats(
    spark.FORMAT,
    flink.FORMAT,
    own.FORMAT,
)

__all__ = ["FORMATS", "Formats"]
