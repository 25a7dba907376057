"""The search language for messages: one line that says which messages of which topic.

    topic:orders tag:paid prop.region=eu body~"gift card" after:-1h

    topic:T      the topic
    tag:A        one of these tags: tag:A||B
    key:K        a key its producer set
    id:I         either of its ids; a word on its own is an id or a key
    prop.k=v     a property
    body~text    a text in the body, in any case of letters; * stands for anything
    sql:"a > 5"  an SQL92 expression, which the brokers evaluate
    after: before:   stored at or after, at or before; see pyromq.admin.times
    queue:B:N    one queue of a broker; queue:B all of its queues
    at:B:N:O     the message at this offset

Values with blanks stand between double quotes. There are no regular expressions: one of them can take hours, and may
run beside a broker.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError, CorruptRecord

if TYPE_CHECKING:
    from pyromq.protocol.message import MessageExt

_WORD = re.compile(
    r'\s*(?P<name>(?:prop\.[^\s="]+=)|(?:body~)|(?:[a-z]+:))?+(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s"]\S*))'
)
_NAMES = ("topic", "tag", "key", "id", "sql", "after", "before", "queue", "at")
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for. Times and places are as typed; a relative time stays relative in a link."""

    topic: str | None = None
    word: str | None = None
    id: str | None = None
    key: str | None = None
    tag: str | None = None
    sql: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    body: tuple[str, ...] = ()
    after: str | None = None
    before: str | None = None
    queue: str | None = None
    at: str | None = None
    _patterns: tuple[tuple[str, ...], ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        """The query as one would type it."""
        parts = [f"{name}:{_quoted(value)}" for name in _NAMES if (value := getattr(self, name)) is not None]
        parts += [f"prop.{name}={_quoted(value)}" for name, value in self.properties]
        parts += [f"body~{_quoted(text)}" for text in self.body]
        return " ".join([*parts, *([_quoted(self.word)] if self.word else [])])

    @property
    def is_filtered(self) -> bool:
        """Whether messages have to be read to know if they match."""
        return bool(self.properties or self.body)

    def fits(self, message: MessageExt) -> bool:
        """Whether a message that the brokers' filter let through matches the rest."""
        properties = message.properties
        if any(properties.get(name) != value for name, value in self.properties):
            return False
        if not self._patterns:
            return True
        try:
            text = message.body.decode("utf-8", "replace").casefold()
        except CorruptRecord:
            return False
        return all(_contains(text, pattern) for pattern in self._patterns)

    def in_topic(self, topic: str) -> Query:
        return replace(self, topic=topic)


def parse_query(text: str) -> Query:
    """Raises ConfigError for a query that makes no sense."""
    if len(text) > _LONGEST:
        raise ConfigError(f"the query is longer than {_LONGEST} characters")
    found: dict[str, str] = {}
    properties: list[tuple[str, str]] = []
    bodies: list[str] = []
    words: list[str] = []
    at = 0
    while at < len(text.rstrip()):
        match = _WORD.match(text, at)
        if match is None:
            raise ConfigError(f"a value is missing, or a quote is not closed: {text[at:].strip()!r}")
        at = match.end()
        name = match["name"] or ""
        value = match["plain"] if match["quoted"] is None else re.sub(r"\\(.)", r"\1", match["quoted"])
        if name.startswith("prop."):
            properties.append((name[5:-1], value))
        elif name == "body~":
            bodies.append(value)
        elif not name:
            words.append(value)
        elif name[:-1] in found:
            raise ConfigError(f"{name} can only be given once")
        elif name[:-1] in _NAMES:
            found[name[:-1]] = value
        else:
            raise ConfigError(f"{name} is not known; there are {': '.join(_NAMES)}: prop.name= and body~")
    if len(words) > 1:
        raise ConfigError(f"only one id or key can be looked for, not {len(words)}; body~ finds a text")
    if "tag" in found and "sql" in found:
        raise ConfigError("tag: and sql: cannot be combined; write TAGS = 'A' in the expression")
    patterns = tuple(tuple(part for part in text.casefold().split("*") if part) for text in bodies)
    return Query(
        **found,
        word=words[0] if words else None,
        properties=tuple(properties),
        body=tuple(bodies),
        _patterns=patterns,
    )


def _contains(text: str, parts: tuple[str, ...]) -> bool:
    at = 0
    for part in parts:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


def _quoted(value: str) -> str:
    if value and not re.search(r'[\s"]', value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
