"""The YAML of account files: maps, lists and scalars, each with its line. Anchors and aliases are refused.

Scalars keep the text that stands in the file, so that a secret such as 00123456 is not taken for a number. The text is
read event by event: what it can cost is bounded by its size, and it never keeps other threads waiting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyromq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH = 8

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class Scalar:
    text: str
    line: int
    # Without quotes, so that it may stand for a number, a truth or nothing.
    plain: bool

    @property
    def is_null(self) -> bool:
        return self.plain and self.text in _NULLS

    @property
    def boolean(self) -> bool | None:
        """The truth that it stands for, also in quotes; None for something else."""
        return _BOOLEANS.get(self.text.lower())

    @property
    def integer(self) -> int | None:
        return int(self.text) if _INTEGER.fullmatch(self.text) else None


@dataclass(frozen=True, slots=True)
class Sequence:
    items: list[Node]
    line: int


@dataclass(frozen=True, slots=True)
class Mapping:
    items: dict[str, Node]
    line: int


Node = Scalar | Sequence | Mapping


def read(text: str, source: str) -> Node | None:
    """The one document of `text`; None if it is empty. ConfigError names `source` and line."""
    # A server without access control does without it: it takes 20 ms to import.
    import yaml

    try:
        events = iter(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        next(events)  # the stream begins
        if isinstance(next(events), yaml.StreamEndEvent):
            return None
        found = _node(next(events), events, source, 0)
        next(events)  # the document ends
        second = next(events)
        if not isinstance(second, yaml.StreamEndEvent):
            raise ConfigError("a second document is not allowed", _place(source, second))
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        raise ConfigError(str(exc.problem or "is not YAML"), f"{source}:{mark.line + 1}" if mark else source) from None
    except yaml.YAMLError as exc:
        line = text.count("\n", 0, getattr(exc, "position", 0)) + 1
        raise ConfigError(f"is not YAML: {getattr(exc, 'reason', 'unreadable')}", f"{source}:{line}") from None
    return found


def dump(value: Any) -> str:
    """YAML for plain values, which RocketMQ reads, too."""
    import yaml

    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False, width=1 << 20)
    return text


def plain(node: Node | None) -> Any:
    """Values to change and write again."""
    if isinstance(node, Mapping):
        return {key: plain(each) for key, each in node.items.items()}
    if isinstance(node, Sequence):
        return [plain(each) for each in node.items]
    if node is None or node.is_null:
        return None
    if not node.plain:
        return node.text
    for meant in (node.boolean, node.integer):
        if meant is not None:
            return meant
    return node.text


def _node(event: Any, events: Iterator[Any], source: str, depth: int) -> Node:
    import yaml

    place = _place(source, event)
    if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
        raise ConfigError("anchors and aliases are not allowed", place)
    if depth > MAX_DEPTH:
        raise ConfigError("is nested too deeply", place)
    line = event.start_mark.line + 1
    if isinstance(event, yaml.ScalarEvent):
        return Scalar(event.value, line, event.style is None or event.style == "")
    if isinstance(event, yaml.SequenceStartEvent):
        items = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(_node(event, events, source, depth + 1))
        return Sequence(items, line)
    fields: dict[str, Node] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        key = _node(event, events, source, depth + 1)
        if not isinstance(key, Scalar):
            raise ConfigError("a key must be text", _place(source, event))
        if key.text in fields:
            raise ConfigError(f"{key.text} stands there twice", _place(source, event))
        fields[key.text] = _node(next(events), events, source, depth + 1)
    return Mapping(fields, line)


def _place(source: str, event: Any) -> str:
    return f"{source}:{event.start_mark.line + 1}"
