"""Spark's way to `rocketmq_meta`: it imports every top-level module named pyspark_* and takes its DefaultSource."""

from pyromq.spark.meta.source import MetaDataSource as DefaultSource

__all__ = ["DefaultSource"]
