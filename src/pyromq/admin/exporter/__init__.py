"""Metrics of a whole cluster, asked from its brokers, under the names of rocketmq-exporter."""

from .exporter import Exporter

__all__ = ["Exporter"]
