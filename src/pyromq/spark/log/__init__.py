"""Spark format `rocketmq_log`: the files of a store as a table."""
