"""The Python data source ``holdfast``: what a store holds, and what a daemon has to tell, as DataFrames."""

from holdfast_spark.datasource.source import HoldfastDataSource, register

__all__ = ["HoldfastDataSource", "register"]
