"""Fakes and fixtures for tests of what is built on PyroMQ. Nothing else of ours imports them."""

from .clock import Clock
from .disk import FaultyDisk
from .proxy import Proxy

__all__ = ["Clock", "FaultyDisk", "Proxy"]
