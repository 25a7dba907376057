"""Fakes and fixtures for tests of what is built on PyroMQ. Nothing else of ours imports them."""

from .proxy import Proxy

__all__ = ["Proxy"]
