"""Spark format `rocketmq_meta`: what a cluster knows of itself, as small tables."""
