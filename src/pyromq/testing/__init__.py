"""Fakes and fixtures for tests of what is built on PyroMQ. Nothing else of ours imports them."""

from .clock import Clock
from .cluster import Cluster, running_cluster
from .disk import FaultyDisk
from .proxy import Proxy

__all__ = ["Clock", "Cluster", "FaultyDisk", "Proxy", "running_cluster"]
