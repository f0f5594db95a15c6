"""The Python data source ``holdfast``: the content of a store, and the events of a daemon, as DataFrames."""

from holdfast_spark.datasource.source import HoldfastDataSource, register

__all__ = ["HoldfastDataSource", "register"]
