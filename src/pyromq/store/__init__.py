"""The store: RocketMQ's files, written and read. Knows files and maps, nothing of the network."""

from .config import FlushDiskType, StoreConfig
from .fast_read import PropertiesTest
from .get_result import GetResult, GetStatus
from .put import PutResult, PutStatus
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
