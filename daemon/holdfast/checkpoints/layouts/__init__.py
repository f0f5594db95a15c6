"""What the names of checkpoints say: grammars of Spark's and Flink's layouts. Names in, typed entries out; no I/O."""

from holdfast.checkpoints.layouts.flink import FlinkKind, FlinkName, parse_flink, parse_flink_directory
from holdfast.checkpoints.layouts.spark import DEFAULT_STORE, STATE_OF_A_VERSION, SparkKind, SparkName, StoreId, parse_spark
from holdfast.checkpoints.layouts.wrapping import Layer, Unknown, Wrapped, unwrapped

__all__ = [
    "DEFAULT_STORE",
    "STATE_OF_A_VERSION",
    "FlinkKind",
    "FlinkName",
    "Layer",
    "SparkKind",
    "SparkName",
    "StoreId",
    "Unknown",
    "Wrapped",
    "parse_flink",
    "parse_flink_directory",
    "parse_spark",
    "unwrapped",
]
