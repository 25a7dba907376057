"""What the broker remembers of a connection: the bytes that stand for its host in every message that it sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.errors import LocalProtocolError
from pyromq.protocol.ids import encode_host
from pyromq.remoting import split_address

if TYPE_CHECKING:
    from pyromq.remoting import Connection

_NO_HOST = bytes(8)


def born_host(connection: Connection) -> bytes:
    """The host of the peer, as a record keeps it."""
    host = connection.context
    if host is None:
        try:
            host = encode_host(*split_address(connection.peer))
        except (ValueError, LocalProtocolError):  # a peer without an IP address: a local socket
            host = _NO_HOST
        connection.context = host
    known: bytes = host
    return known
