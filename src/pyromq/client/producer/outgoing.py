"""Prepare a message for sending: check it, encode its properties, compress its body.

The result is the same for every attempt; send_frames.py adds the destination. The caller's message is never changed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from pyromq.errors import InvalidMessage, LocalProtocolError
from pyromq.protocol import properties as props
from pyromq.protocol import sysflag
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.compression import compress
from pyromq.protocol.message import Message

from ..hooks import MessageType
from ..identity import make_uniq_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COMPRESSIONS = {"zlib": sysflag.ZLIB, "lz4": sysflag.LZ4, "zstd": sysflag.ZSTD}

# Compressing more than this would hold up the event loop longer than a thread costs.
_IN_A_THREAD = 64 * 1024

_MIN_FLAG, _MAX_FLAG = -(2**31), 2**31 - 1

_SEPARATOR = props.ITEM_SEPARATOR
_UNIQ_KEY = f"{props.UNIQ_KEY}\x01"
WAIT_TRUE = f"{_SEPARATOR}{props.WAIT}\x01true"
WAIT_FALSE = f"{_SEPARATOR}{props.WAIT}\x01false"
_WHEN = (props.DELAY, props.TIMER_DELAY_MS, props.TIMER_DELIVER_MS)


class Outgoing(msgspec.Struct):
    """One request that stores a message, or a batch of them."""

    body: bytes
    properties: str
    message_id: str
    flag: int = 0
    sys_flag: int = 0
    code: int = RequestCode.SEND_MESSAGE_V2
    kind: MessageType = MessageType.NORMAL
    messages: Sequence[Message] = ()
    reconsume_times: int = 0
    max_reconsume_times: int | None = None

    @property
    def is_batch(self) -> bool:
        return self.code == RequestCode.SEND_BATCH_MESSAGE


def as_message(message: Any, body: bytes | None, fields: Mapping[str, Any]) -> Message:
    """The caller's message, given whole or in parts."""
    if isinstance(message, Message):
        if body is not None or fields:
            raise TypeError("give a Message, or a topic with a body and fields, not both")
        return message
    if not isinstance(message, str) or body is None:
        raise TypeError(f"give a Message, or a topic and a body, not {message!r} and {body!r}")
    return Message(message, body, **fields)


def prepare(message: Message, max_size: int, *, shard_key: str | None = None, extra: str = "") -> Outgoing:
    """`message` with a new id; `extra` is the text of further properties, each after a separator.

    Its body is still uncompressed. Raises InvalidMessage for a message that no broker would accept.
    """
    body = message.body
    if type(body) is not bytes:
        body = _plain_bytes(message)
    if not body or len(body) > max_size:
        raise _invalid(message, f"its body has {len(body)} bytes; 1 to {max_size} are allowed")
    if message.flag and not _MIN_FLAG <= message.flag <= _MAX_FLAG:
        raise _invalid(message, f"its flag {message.flag} is not a 32-bit integer")
    key = make_uniq_key()
    text = f"{_UNIQ_KEY}{key}{WAIT_TRUE if message.wait_store else WAIT_FALSE}"
    kind = MessageType.NORMAL
    if message.tags or message.keys or message.properties or shard_key:
        text += _users_text(message, shard_key)
    if message.delay_level or message.delay is not None or message.deliver_at is not None:
        when = _when(message)
        if when:
            text += when
            kind = MessageType.DELAY
    text += extra
    if len(text) > props.MAX_LENGTH or not text.isascii():
        _check_length(message, text)
    return Outgoing(body, text, key, message.flag, 0, RequestCode.SEND_MESSAGE_V2, kind, (message,))


def with_properties(body: bytes, flag: int, properties: Mapping[str, str]) -> Outgoing:
    """A message of the client itself, with any properties. It keeps its id, if it has one.

    On the way to a retry topic, two properties travel in the header.
    """
    wire = dict(properties)
    key = wire.setdefault(props.UNIQ_KEY, "") or make_uniq_key()
    wire[props.UNIQ_KEY] = key
    times = wire.pop(props.RECONSUME_TIME, "0")
    limit = wire.pop(props.MAX_RECONSUME_TIMES, None)
    return Outgoing(
        body,
        props.render(wire),
        key,
        flag,
        reconsume_times=int(times),
        max_reconsume_times=None if limit is None else int(limit),
    )


async def compressed(outgoing: Outgoing, kind: int) -> None:
    """Compress the body, off the event loop if that takes long."""
    body = outgoing.body
    if len(body) > _IN_A_THREAD:
        outgoing.body = await asyncio.to_thread(compress, body, kind)
    else:
        outgoing.body = compress(body, kind)
    outgoing.sys_flag = sysflag.with_compression(outgoing.sys_flag, kind)


# Batches


# Inside


def _users_text(message: Message, shard_key: str | None) -> str:
    """The user's properties, as text with a separator in front of every item."""
    items: list[tuple[Any, Any]] = []  # what users give, whatever its type
    if message.properties:
        items += message.properties.items()
        for name, value in items:
            if not isinstance(name, str) or not isinstance(value, str) or not name.strip() or not value.strip():
                raise _invalid(message, f"property {name!r}={value!r}: name and value must be text and not blank")
            if name in props.RESERVED:
                raise _invalid(message, f"property {name} is reserved")
    if message.tags:
        items.append((props.TAGS, message.tags))
    if keys := message.keys if isinstance(message.keys, str) else props.KEY_SEPARATOR.join(message.keys):
        items.append((props.KEYS, keys))
    if shard_key:
        items.append((props.SHARDING_KEY, shard_key))
    text = "".join([f"\x02{name}\x01{value}" for name, value in items])
    if text.count("\x01") != len(items) or text.count("\x02") != len(items):
        raise _invalid(message, "its properties, tags or keys contain U+0001 or U+0002")
    return text


def _when(message: Message) -> str:
    try:
        wire = message.wire_properties()
    except LocalProtocolError as exc:
        raise _invalid(message, str(exc)) from None
    return "".join([f"\x02{name}\x01{wire[name]}" for name in _WHEN if name in wire])


def _plain_bytes(message: Message) -> bytes:
    if not isinstance(message.body, bytes | bytearray | memoryview):
        raise _invalid(message, f"its body must be bytes, not {type(message.body).__name__}")
    return bytes(message.body)


def _check_length(message: Message, text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as exc:
        raise _invalid(message, f"its properties are not Unicode: {exc}") from None
    if size > props.MAX_LENGTH:
        raise _invalid(message, f"its properties take {size} bytes; at most {props.MAX_LENGTH} are allowed")


def _invalid(message: Message, reason: str) -> InvalidMessage:
    error = InvalidMessage(f"message to {message.topic}: {reason}")
    error.topic = message.topic
    return error
