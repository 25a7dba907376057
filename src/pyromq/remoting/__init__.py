"""Connections that speak the remoting protocol: servers, clients, TLS, signatures. They know nothing of messages."""

from .acl import SigningHook, is_signed_by, signature
from .addresses import format_address, host_of, join_address, origin_of, split_address, split_addresses, vip_address
from .admissions import Admissions
from .client import RemotingClient
from .config import ClientConfig, ServerConfig
from .connection import Connection
from .endpoint import CloseReason, ConnectionListener, Endpoint, Hook, Processor
from .large_bodies import with_body, with_read
from .loop import run
from .name_servers import NameServers
from .rate_limits import RateLimits
from .request_rules import Admin, BodyLimit, BodySize, Rule, body_limits
from .server import RemotingServer
from .tls import TlsConfig, TlsMode
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
