"""How an option is declared, and how its value is parsed.

A parser raises ValueError with what it expected, worded to follow "must be".
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from .source import offsets

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_METADATA = "pyromq.spark"

_SIZE = re.compile(r"([0-9]{1,15}) *(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) *(ms|s|m|min|h|d)", re.IGNORECASE)
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(?:/s)?")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def text(value: str) -> str:
    return value


def boolean(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return value.lower() == "true"


def integer(least: int = 0) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not (value.isascii() and value.isdecimal() and len(value) <= 18 and int(value) >= least):
            raise ValueError(f"a whole number, at least {least}")
        return int(value)

    return parse


def size(value: str) -> int:
    """Bytes: 65536, 64k, 64m, 1g."""
    match = _SIZE.fullmatch(value)
    if match is None or int(match[1]) == 0:
        raise ValueError("a number of bytes such as 65536, 64k or 64m")
    return int(match[1]) * _UNITS[(match[2] or "").lower()]


def duration(value: str) -> float:
    """Seconds: 500ms, 30s, 15m, 1h."""
    match = _DURATION.fullmatch(value)
    if match is None:
        raise ValueError("a time such as 500ms, 30s or 15m")
    return float(match[1]) * _SECONDS[match[2].lower()]


def rate(value: str) -> float:
    """Rows a second."""
    found = _RATE.fullmatch(value)
    if found is None or not float(found[1]):
        raise ValueError("a number a second, such as 100 or 0.5")
    return float(found[1])


def choice(*names: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.lower() not in names:
            raise ValueError(f"one of {', '.join(names)}")
        return value.lower()

    return parse


def names(value: str) -> tuple[str, ...]:
    """A comma list."""
    found = tuple(dict.fromkeys(part.strip() for part in value.split(",")))
    if not all(found):
        raise ValueError("names separated by commas")
    return found


def pattern(value: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except re.error as exc:
        raise ValueError(f"a regular expression ({exc})") from exc


def columns(value: str) -> tuple[str, ...]:
    from .schema import parse_columns  # other options work without pyarrow and pyspark

    return parse_columns(value)


def offsets_or(key: str, *words: str) -> Callable[[str], Any]:
    def parse(value: str) -> Any:
        if value.lower() in words:
            return value.lower()
        if not value.startswith("{"):
            raise ValueError(f"{', '.join(words)} or JSON")
        return offsets.parse_offsets(value, key)

    return parse


def folder(value: str) -> str:
    """A path; catalogs turn it into a URL."""
    scheme, colon, _ = value.partition(":/")
    if not colon:
        return value
    if scheme.lower() != "file":
        raise ValueError("a folder that executors can open as files")
    return unquote(urlsplit(value).path)


def bad_row(value: str) -> str:
    word, _, topic = value.partition(":")
    if word.lower() in ("fail", "skip") and not topic:
        return word.lower()
    if word.lower() == "dlq" and topic:
        return f"dlq:{topic}"
    raise ValueError("fail, skip or dlq:<topic>")


def addresses(value: str) -> dict[str, str]:
    """`from=to` pairs, comma separated, for brokers behind address translation."""
    pairs = [part.strip().partition("=") for part in value.split(",")]
    if not all(inside and outside for inside, _, outside in pairs):
        raise ValueError("advertised=reachable addresses separated by commas")
    return {inside.strip(): outside.strip() for inside, _, outside in pairs}


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """One option as declared."""

    key: str
    parse: Callable[[str], Any]
    doc: str
    aliases: tuple[str, ...] = ()
    secret: bool = False


def opt(
    key: str,
    parse: Callable[[str], Any],
    default: T,
    doc: str,
    *,
    aliases: tuple[str, ...] = (),
    secret: bool = False,
) -> T:
    info = OptionInfo(key, parse, doc, aliases, secret)
    declared: T = field(default=default, metadata={_METADATA: info}, repr=not secret)
    return declared


def declared(kind: type) -> list[tuple[str, OptionInfo]]:
    """The options of a class, with the names of their attributes."""
    return [(each.name, each.metadata[_METADATA]) for each in dataclasses.fields(kind) if _METADATA in each.metadata]
