"""Spark format `rocketmq`: topics as tables, in batch and as a stream."""
