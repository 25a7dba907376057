"""The bodies of messages for people and programs: text, JSON, hex, base64."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from pyromq.errors import CorruptRecord

if TYPE_CHECKING:
    from pyromq.protocol.message import MessageExt


def body_of(message: MessageExt) -> bytes:
    """The body; if it cannot be decompressed, the stored bytes, which may be just what the user needs to see."""
    try:
        return message.body
    except CorruptRecord:
        return message.record.body


def encoded(body: bytes) -> tuple[str, str]:
    """The whole body for programs, and its encoding: utf-8 or base64."""
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


def text_of(body: bytes) -> str | None:
    """The body as text, or None if it is binary: not UTF-8, or with control characters that plain text lacks."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return text if all(letter.isprintable() or letter in "\t\r\n" for letter in text) else None


def laid_out(text: str) -> str:
    """JSON indented; any other text unchanged."""
    return indented if (indented := indented_json(text)) is not None else text


def indented_json(text: str) -> str | None:
    """The text, indented, if it is a JSON object or array."""
    if text[:1] not in "{[":
        return None
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def hex_lines(body: bytes, *, at_most: int) -> list[str]:
    """A hex dump, sixteen bytes a line: offset, bytes, letters."""
    lines = []
    for start in range(0, min(len(body), at_most), 16):
        part = body[start : start + 16]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<47}  {letters}")
    return lines


def host(address: tuple[str, int]) -> str:
    name, port = address
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
