"""The environment of Spark's standalone workers: ``spark-env.sh``, to be sourced from Spark's own."""

from __future__ import annotations

from pathlib import Path


def spark_env_path() -> Path:
    """Return the path of the file to source; ``python -m holdfast_spark.env`` prints it."""
    return Path(__file__).with_name("spark-env.sh")
