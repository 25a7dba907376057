"""Spark's way to `rocketmq_lake`: it imports every top-level module named pyspark_* and takes its DefaultSource."""

from pyromq.spark.lake.source import LakeDataSource as DefaultSource

__all__ = ["DefaultSource"]
