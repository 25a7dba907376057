"""Connections that speak the remoting protocol: servers, clients, TLS, signatures. They know nothing of messages.

What only servers need is imported when it is used first, so that commands start quickly.
"""

import importlib
from typing import TYPE_CHECKING

from .acl import SigningHook, is_signed_by, signature
from .addresses import format_address, host_of, join_address, origin_of, split_address, split_addresses, vip_address
from .client import RemotingClient
from .config import ClientConfig, ServerConfig
from .connection import Connection
from .endpoint import CloseReason, ConnectionListener, Endpoint, Hook, Processor
from .large_bodies import with_body, with_read
from .loop import run
from .name_servers import NameServers
from .tls import TlsConfig, TlsMode

if TYPE_CHECKING:
    from .admissions import Admissions
    from .folded_log import FoldedLog
    from .rate_limits import RateLimits
    from .request_rules import Admin, BodyLimit, BodySize, Rule, body_limits
    from .server import RemotingServer
    from .unfinished_frames import UnfinishedFrames

__all__ = [
    "Admin",
    "Admissions",
    "BodyLimit",
    "BodySize",
    "ClientConfig",
    "CloseReason",
    "Connection",
    "ConnectionListener",
    "Endpoint",
    "FoldedLog",
    "Hook",
    "NameServers",
    "Processor",
    "RateLimits",
    "RemotingClient",
    "RemotingServer",
    "Rule",
    "ServerConfig",
    "SigningHook",
    "TlsConfig",
    "TlsMode",
    "UnfinishedFrames",
    "body_limits",
    "format_address",
    "host_of",
    "is_signed_by",
    "join_address",
    "origin_of",
    "run",
    "signature",
    "split_address",
    "split_addresses",
    "vip_address",
    "with_body",
    "with_read",
]

_OF_SERVERS = {
    "Admin": ".request_rules",
    "Admissions": ".admissions",
    "BodyLimit": ".request_rules",
    "BodySize": ".request_rules",
    "FoldedLog": ".folded_log",
    "RateLimits": ".rate_limits",
    "RemotingServer": ".server",
    "Rule": ".request_rules",
    "UnfinishedFrames": ".unfinished_frames",
    "body_limits": ".request_rules",
}


def __getattr__(name: str) -> object:
    if name not in _OF_SERVERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_OF_SERVERS[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
