"""Spark's way to `rocketmq`: it imports every top-level module named pyspark_* and takes its DefaultSource."""

from pyromq.spark.source.source import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
