"""Spark format `rocketmq_meta`: a cluster's metadata as small tables."""
