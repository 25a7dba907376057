"""What a setting is: its key in the file, its default, when to change it, and its allowed values."""

from __future__ import annotations

import dataclasses
import enum
import math
import re
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB

_METADATA = "pyromq.option"
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_SIZE = re.compile(r"([0-9]{1,19}) *(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": KiB, "m": MiB, "g": GiB, "t": 1024 * GiB}


@dataclasses.dataclass(frozen=True, slots=True)
class Computed(Generic[T]):
    """A default that depends on the machine or the user, computed when a config is made."""

    kind: type[T]
    value: Callable[[], T]


def computed(kind: type[T], value: Callable[[], T]) -> T:
    """A default that must not be computed at import time; mypy sees the type of its value."""
    return cast("T", Computed(kind, value))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One setting, as declared by `option`. `name` is its attribute."""

    key: str
    name: str = ""
    doc: str
    kind: type
    size: bool = False
    min: float | None = None
    max: float | None = None
    choices: tuple[Any, ...] = ()
    hot: bool = False
    no_effect: bool = False
    secret: bool = False
    limit: str = ""

    def parse(self, text: str) -> Any:
        """Parse `text`. ValueError says what was expected.

        Surrounding blanks are ignored: a blank at the end of a line is the classic invisible mistake, and
        no setting needs one.
        """
        text = text.strip()
        if not _is_unicode(text):
            raise ValueError(f"{self.key} must be text, not {text!r}")
        value = self._parse(text)
        if self.choices and value not in self.choices:
            raise ValueError(f"{self.key} must be one of {', '.join(map(self.text, self.choices))}, not {text!r}")
        if (self.min is not None and value < self.min) or (self.max is not None and value > self.max):
            raise ValueError(f"{self.key} must be {self._range()}, not {text}")
        return value

    def text(self, value: Any) -> str:
        """`value` as written in a file."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, enum.Enum):
            return _enum_text(value)
        return str(value)

    @property
    def why_no_effect(self) -> str:
        """For a setting without effect: a sentence that says so, and why."""
        return f"{self.key} has no effect: {self.doc[0].lower()}{self.doc[1:].rstrip('.')}"

    def _parse(self, text: str) -> Any:
        if self.kind is bool:
            if text.lower() not in ("true", "false"):
                raise ValueError(f"{self.key} must be true or false, not {text!r}")
            return text.lower() == "true"
        if self.size:
            match = _SIZE.fullmatch(text)
            if match is None:
                raise ValueError(f"{self.key} must be a number of bytes such as 65536 or 64k, not {text!r}")
            return int(match[1]) * _UNITS[(match[2] or "").lower()]
        if self.kind is int:
            if not _INTEGER.fullmatch(text):
                raise ValueError(f"{self.key} must be a whole number, not {text!r}")
            return int(text)
        if self.kind is float:
            return self._parse_float(text)
        if issubclass(self.kind, enum.Enum):
            return self._parse_enum(text)
        return text

    def _parse_float(self, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ValueError(f"{self.key} must be a number, not {text!r}")
        return value

    def _parse_enum(self, text: str) -> enum.Enum:
        members: list[enum.Enum] = list(self.kind)  # type: ignore[call-overload]  # an Enum class, seen by the caller
        for member in members:
            # Where RocketMQ's values have numbers, it takes those as well.
            if text.lower() in (_enum_text(member).lower(), str(member.value)):
                return member
        raise ValueError(f"{self.key} must be one of {', '.join(map(_enum_text, members))}, not {text!r}")

    def _range(self) -> str:
        if self.max is None:
            return f"at least {self.min}"
        if self.min is None:
            return f"at most {self.max}"
        return f"between {self.min} and {self.max}"


def option(
    key: str,
    default: T,
    doc: str,
    *,
    min: float | None = None,  # noqa: A002 - the words a reader of a declaration expects
    max: float | None = None,  # noqa: A002
    choices: Sequence[T] = (),
    size: bool = False,
    hot: bool = False,
    no_effect: bool = False,
    secret: bool = False,
    limit: str = "",
) -> T:
    """A field of a settings dataclass.

    `key` is RocketMQ's name in the properties file and `doc` a sentence on when to change it. The type of
    `default` (bool, int, float, str or an Enum) is the type of the setting; `size` lets a whole number be
    written as 64k, 64m, 1g. Only a `hot` setting can be changed in a running server; the others are read at its
    start. A setting with `no_effect` is accepted because RocketMQ has it; nothing reads it, and `doc` says why.
    A `secret` is shown as stars. A setting that bounds what peers can ask for says in `limit` what they get beyond it.
    """
    declared = Option(
        key=key,
        doc=doc,
        kind=default.kind if isinstance(default, Computed) else type(default),
        size=size,
        min=min,
        max=max,
        choices=tuple(choices),
        hot=hot,
        no_effect=no_effect,
        secret=secret,
        limit=limit,
    )
    metadata = {_METADATA: declared}
    if isinstance(default, Computed):
        return cast("T", dataclasses.field(default_factory=default.value, metadata=metadata))
    return dataclasses.field(default=default, metadata=metadata)


def options_of(config: type) -> tuple[Option, ...]:
    """The options of a settings dataclass, in field order."""
    return tuple(
        dataclasses.replace(field.metadata[_METADATA], name=field.name)
        for field in dataclasses.fields(config)
        if _METADATA in field.metadata
    )


def _enum_text(member: enum.Enum) -> str:
    return member.value if isinstance(member.value, str) else member.name


def _is_unicode(text: str) -> bool:
    # An environment variable that is not UTF-8 arrives as lone surrogates, which no file can hold.
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
