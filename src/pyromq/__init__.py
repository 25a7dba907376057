"""PyroMQ: Apache RocketMQ written anew in Python, with Spark as its data pipeline."""

__version__ = "0.1.0"
