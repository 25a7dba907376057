"""The fast path of send replies: all are the same but for five fields, so a template is filled in.

On the general path a reply is a Command with a map of text that an encoder walks through; this takes a fifth of the
time. The bytes are the same (tests/unit/broker/test_send_replies.py).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec

from pyromq.protocol.binary_header import LANGUAGE_BYTES
from pyromq.protocol.command import PROTOCOL_VERSION, RESPONSE, Language, SerializeType

if TYPE_CHECKING:
    from pyromq.protocol.command import Command

_FRAME = struct.Struct(">iI")
_BINARY = struct.Struct(
    ">hBhiii"  # as in binary_header
    "i"  # length of the ext fields
)
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_ROCKETMQ = SerializeType.ROCKETMQ << 24
_PYTHON = LANGUAGE_BYTES[Language.PYTHON]
# Around the number of the request.
_JSON_BEHIND = b'},"flag":%d,"language":"%b","opaque":' % (RESPONSE, Language.PYTHON.value.encode())
_JSON_END = b',"version":%d}' % PROTOCOL_VERSION
_SHORT = tuple(map(_I32.pack, range(32)))  # lengths of numbers


class SendReplies:
    """Makes the frames of successful replies. `store_host` is the broker's host as it appears in ids."""

    __slots__ = ("_binary_ext", "_host", "_json", "_json_before")

    def __init__(self, store_host: bytes, region: str, trace_on: bool) -> None:
        self._host = store_host.hex().upper().encode()
        trace = b"true" if trace_on else b"false"
        self._json_before = b'{"code":0,"extFields":{"MSG_REGION":%b,"TRACE_ON":"%b","msgId":"%b' % (
            msgspec.json.encode(region),
            trace,
            self._host,
        )
        self._json = b'%b%%016X","queueId":"%%b","queueOffset":"%%d"%%b%b%%d%b' % (
            self._json_before.replace(b"%", b"%%"),
            _JSON_BEHIND,
            _JSON_END,
        )
        self._binary_ext = b"".join(
            (
                _entry(b"MSG_REGION", region.encode()),
                _entry(b"TRACE_ON", trace),
                _key(b"msgId"),
                _I32.pack(len(self._host) + 16),
                self._host,
            )
        )

    def parts(self) -> tuple[bytes, bytes, bytes, bytes, bytes]:
        """What all replies share, for the compiled twin of `frame`.

        Of a JSON header, what precedes the offset of a message, what precedes the number of the request and what
        follows it; of a binary header, its head without that number and length, and the fields up to the offset.
        """
        head = _BINARY.pack(0, _PYTHON, PROTOCOL_VERSION, 0, RESPONSE, 0, 0)
        return self._json_before, _JSON_BEHIND, _JSON_END, head, self._binary_ext

    def frame(
        self,
        request: Command,
        physical_offset: int,
        queue_id: bytes,
        queue_offset: int,
        unique_key: str | None,
        handle: str | None = None,
    ) -> bytes:
        """The whole frame of the reply to `request`, code 0.

        Includes the message's unique key, which clients of 5.x use as its transaction id, and the handle by which
        a timer can be recalled, if there are any.
        """
        if request.serialize is SerializeType.JSON:
            more = b"" if handle is None else b',"recallHandle":%b' % msgspec.json.encode(handle)
            if unique_key is not None:
                more += b',"transactionId":%b' % msgspec.json.encode(unique_key)
            header = self._json % (physical_offset, queue_id, queue_offset, more, request.opaque)
            return _FRAME.pack(4 + len(header), len(header)) + header
        offset = b"%d" % queue_offset
        ext = b"%b%016X%b%b%b%b%b%b" % (
            self._binary_ext,
            physical_offset,
            _QUEUE_ID,
            _SHORT[len(queue_id)],
            queue_id,
            _QUEUE_OFFSET,
            _SHORT[len(offset)],
            offset,
        )
        if handle is not None:
            ext += _entry(b"recallHandle", handle.encode())
        if unique_key is not None:
            key = unique_key.encode()
            ext += b"%b%b%b" % (_TRANSACTION_ID, _I32.pack(len(key)), key)
        size = _BINARY.size + len(ext)
        head = _BINARY.pack(0, _PYTHON, PROTOCOL_VERSION, request.opaque, RESPONSE, 0, len(ext))
        return b"%b%b%b" % (_FRAME.pack(4 + size, _ROCKETMQ | size), head, ext)


def _key(name: bytes) -> bytes:
    return _I16.pack(len(name)) + name


def _entry(name: bytes, value: bytes) -> bytes:
    return b"%b%b%b" % (_key(name), _I32.pack(len(value)), value)


_QUEUE_ID = _key(b"queueId")
_QUEUE_OFFSET = _key(b"queueOffset")
_TRANSACTION_ID = _key(b"transactionId")
