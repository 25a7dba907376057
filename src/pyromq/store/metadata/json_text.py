"""JSON text in FastJSON's pretty format, as in RocketMQ's files in `config`.

    {
     →  "offsetTable":{
     →   →  "TestTopic@g1":{0:12,1:5
     →   →  }
     →  }
    }

Tabs (→), no blank after a colon, no newline at the end. A map with integer keys stands on one line, its keys
without quotes, its closing brace on the next; that is not JSON, and RocketMQ expects it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

_encode = msgspec.json.Encoder().encode
_INTEGERS = {int}


class Ready(str):
    """Finished text of a value."""

    __slots__ = ()


def entry(value: object) -> str:
    """The text of an entry of a map that is a member of the outermost object."""
    return _text(value, "\n\t\t")


def map_of(entries: Mapping[str, str]) -> Ready:
    """A map in the outermost object, built from the texts of its entries."""
    if not entries:
        return Ready("{}")
    members = ",".join([f"\n\t\t{_scalar(key)}:{text}" for key, text in entries.items()])
    return Ready(f"{{{members}\n\t}}")


def pretty(table: Mapping[str, Any]) -> bytes:
    """The text of `table`; members come in the order of the mapping, those that are None are left out.

    Raises TypeError or ValueError for values that cannot be encoded.
    """
    return _text(dict(table), "\n").encode()


def _text(value: object, line: str) -> str:
    """The text of a value that begins somewhere in a line; `line` starts a new one with the same indentation."""
    if isinstance(value, dict):
        if not value:
            return "{}"
        deeper = line + "\t"
        if set(map(type, value)) == _INTEGERS:
            if set(map(type, value.values())) == _INTEGERS:
                # Offsets of perhaps a hundred thousand queues: Python's own text is six times as fast.
                return f"{str(value).replace(' ', '')[:-1]}{line}}}"
            members = ",".join(f"{key:d}:{_text(item, deeper)}" for key, item in value.items() if item is not None)
            return f"{{{members}{line}}}"
        members = ",".join(
            f"{deeper}{_scalar(key)}:{_text(item, deeper)}" for key, item in value.items() if item is not None
        )
        return f"{{{members}{line}}}"
    if isinstance(value, list | tuple):
        deeper = line + "\t"
        return f"[{','.join(deeper + _text(item, deeper) for item in value)}{line}]" if value else "[]"
    return value if isinstance(value, Ready) else _scalar(value)


def _scalar(value: object) -> str:
    return _encode(value).decode()
