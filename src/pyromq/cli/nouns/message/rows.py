"""Messages as rows: bodies as text if they are text, else as hex (tables) or base64 (programs)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - a field of rows
from typing import TYPE_CHECKING, Any

from pyromq.admin.messages.bodies import body_of, encoded, hex_lines, host, laid_out, text_of
from pyromq.admin.messages.ranges import place_of
from pyromq.client.admin.times import from_millis
from pyromq.protocol import properties as props

from ...output import Output, one_line
from ...tables import width

if TYPE_CHECKING:
    from pyromq.protocol.message import MessageExt

__all__ = ["MessageRow", "body_of", "cell_of", "details", "encoded", "host", "message_row", "shown_alone"]

_SHOWN = 72  # columns for the body in a table
_OF_THE_PULL = (props.MIN_OFFSET, props.MAX_OFFSET)  # where the queue began and ended at that moment
_HEX_SHOWN = 20  # bytes
_HIDDEN = {"hidden": True}  # in tables
_WHOLE = 64 * 1024  # characters of a body shown alone


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message. `at` is its broker, queue and offset; `encoding` says whether `body` is utf-8 or base64."""

    id: str
    stored: datetime | None
    at: str
    tags: str | None
    keys: tuple[str, ...]
    body: str
    size: int = field(metadata=_HIDDEN)
    encoding: str = field(metadata=_HIDDEN)
    topic: str = field(metadata=_HIDDEN)
    offset_id: str = field(metadata=_HIDDEN)
    born: datetime | None = field(metadata=_HIDDEN)
    born_host: str = field(metadata=_HIDDEN)
    retries: int = field(metadata=_HIDDEN)
    flag: int = field(metadata=_HIDDEN)
    properties: dict[str, str] = field(metadata=_HIDDEN)


def message_row(message: MessageExt, output: Output) -> MessageRow:
    """The row as this format shows it: everything for programs, only the start of the body in tables."""
    body = body_of(message)
    if output is Output.table:
        shown, encoding = cell_of(body), "shown"
    else:
        shown, encoding = encoded(body)
    return MessageRow(
        message.msg_id,
        from_millis(message.store_timestamp),
        place_of(message.queue, message.queue_offset),
        message.tags,
        tuple(message.keys),
        shown,
        len(body),
        encoding,
        message.topic,
        message.offset_msg_id,
        from_millis(message.born_timestamp),
        host(message.record.born_address),
        message.reconsume_times,
        message.record.flag,
        {name: value for name, value in message.properties.items() if name not in _OF_THE_PULL},
    )


def cell_of(body: bytes) -> str:
    """One line for a table; a cut body ends with its size."""
    text = text_of(body)
    if text is None:
        shown = "0x" + body[:_HEX_SHOWN].hex()
        return shown if len(body) <= _HEX_SHOWN else f"{shown}… ({len(body)} bytes)"
    line = one_line(text)
    if width(line) <= _SHOWN:
        return line
    used = 0
    for index, letter in enumerate(line):
        used += width(letter)
        if used > _SHOWN:
            return f"{line[:index]}… ({len(body)} bytes)"
    return line


def shown_alone(body: bytes) -> str:
    """A body on its own: JSON indented, text unchanged, anything else as a hex dump; very long ones are cut."""
    text = text_of(body)
    if text is None:
        shown, cut = "\n".join(hex_lines(body, at_most=_WHOLE // 4)), len(body) > _WHOLE // 4
    else:
        text = laid_out(text)
        shown, cut = text[:_WHOLE], len(text) > _WHOLE
    return f"{shown}\n… cut; --body prints all {len(body)} bytes" if cut else shown


def details(message: MessageExt) -> dict[str, Any]:
    """Everything about one message except its body."""
    record = message.record
    return {
        "id": message.msg_id,
        "offsetId": message.offset_msg_id,
        "topic": message.topic,
        "at": place_of(message.queue, message.queue_offset),
        "tags": message.tags,
        "keys": message.keys,
        "stored": from_millis(message.store_timestamp),
        "born": from_millis(message.born_timestamp),
        "bornHost": host(record.born_address),
        "storeHost": host(record.store_address),
        "commitLogOffset": record.physical_offset,
        "size": len(body_of(message)),
        "storedSize": len(record.body),
        "bodyCrc": record.body_crc,
        "retries": message.reconsume_times,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "properties": message.properties,
    }
