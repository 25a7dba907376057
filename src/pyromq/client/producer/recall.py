"""The handle of a delayed message, as a producer may have been given it by anybody."""

from __future__ import annotations

from pyromq.errors import InvalidMessage, RemoteProtocolError
from pyromq.protocol import recall_handle
from pyromq.protocol.recall_handle import RecallHandle

__all__ = ["RecallHandle", "decode_handle"]


def decode_handle(handle: str) -> RecallHandle:
    """What a handle says. InvalidMessage if it is none."""
    try:
        return recall_handle.decode_handle(handle)
    except RemoteProtocolError as exc:
        raise InvalidMessage(str(exc)) from None
