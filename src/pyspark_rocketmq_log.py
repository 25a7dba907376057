"""Spark's way to `rocketmq_log`: it imports every top-level module named pyspark_* and takes its DefaultSource."""

from pyromq.spark.log.source import LogDataSource as DefaultSource

__all__ = ["DefaultSource"]
