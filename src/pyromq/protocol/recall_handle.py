"""The handle of a timer message, with which it can be recalled until it is due.

    base64url("v1" topic broker deliver-at-ms UNIQ_KEY), with blanks between

A broker makes it of what it stored; to everybody else it is opaque, but for the broker's name.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from pyromq.errors import RemoteProtocolError

from .header import parse_int

_VERSION = "v1"


class RecallHandle(NamedTuple):
    topic: str
    broker_name: str
    deliver_ms: int
    message_id: str

    def encode(self) -> str:
        text = f"{_VERSION} {self.topic} {self.broker_name} {self.deliver_ms} {self.message_id}"
        return base64.urlsafe_b64encode(text.encode()).decode()


def decode_handle(handle: str) -> RecallHandle:
    """What a handle says. RemoteProtocolError if it is none."""
    try:
        version, topic, broker_name, deliver_ms, message_id = base64.b64decode(
            handle.encode(), altchars=b"-_", validate=True
        ).decode().split(" ")  # fmt: skip
        if version == _VERSION:
            return RecallHandle(topic, broker_name, parse_int(64, deliver_ms), message_id)
    except (binascii.Error, ValueError):
        pass
    raise RemoteProtocolError(f"not a recall handle: {handle[:100]!r}")
