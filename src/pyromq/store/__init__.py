"""The store: RocketMQ's files, written and read. Knows files and maps, nothing of the network."""

from .config import FlushDiskType, StoreConfig
from .put import PutResult, PutStatus
from .read import GetResult, GetStatus, PropertiesTest
from .store import MessageStore

__all__ = [
    "FlushDiskType",
    "GetResult",
    "GetStatus",
    "MessageStore",
    "PropertiesTest",
    "PutResult",
    "PutStatus",
    "StoreConfig",
]
