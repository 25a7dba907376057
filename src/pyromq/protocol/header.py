"""Custom headers: declared once as a class, read from and written to the text map that both serialisations carry.

    class PullMessage(Header):
        consumer_group: str
        queue_id: I32
        subscription: str | None = None

A field's wire name is its name in camelCase; where RocketMQ has another habit, the field says so:
`field(name="clientID")`.

RocketMQ does not refuse a header for a missing or unparsable field: such a field is null until somebody needs it.
Here the slot stays unset, and reading it raises `MissingField`. A field with a default takes the default instead.
"""

from __future__ import annotations

import re
import typing
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import msgspec

from pyromq.errors import MissingField

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

I16 = Annotated[int, 16]
I32 = Annotated[int, 32]
I64 = Annotated[int, 64]

# What Java's Integer.parseInt takes: no blanks, no underscores, no fractions.
_INTEGER = re.compile(r"[+-]?0*[0-9]{1,20}", re.ASCII)


class Header(msgspec.Struct, rename="camel", gc=False):
    """Base of all custom headers. Subclassing is declaring: see the module's docstring."""

    if not TYPE_CHECKING:  # for a type checker a header has just the declared fields

        def __getattr__(self, name: str) -> Any:
            for field in _fields(type(self)):
                if field.name == name:
                    raise MissingField(type(self).__name__, field.wire)
            raise AttributeError(name)

    def __repr__(self) -> str:
        """Also of a header with unset fields, since it goes into logs when something is wrong with it."""
        shown = []
        for field in _fields(type(self)):
            try:
                shown.append(f"{field.name}={getattr(self, field.name)!r}")
            except MissingField:
                shown.append(f"{field.name}=<unset>")
        return f"{type(self).__name__}({', '.join(shown)})"

    @classmethod
    def from_ext(cls, ext: Mapping[str, str] | None) -> Self:
        """Read the header from its text map. Unknown keys are ignored; see the module for missing ones."""
        get = ({} if ext is None else ext).get
        values: list[Any] = []
        unset = []
        for name, wire, parse, default in _fields(cls):
            text = get(wire)
            if text is not None:
                if parse is None:
                    values.append(text)
                    continue
                try:
                    values.append(parse(text))
                    continue
                except ValueError:
                    pass
            values.append(default)
            if default is msgspec.NODEFAULT:
                unset.append(name)
        header = cls(*values)
        for name in unset:
            delattr(header, name)
        return header

    def to_ext(self) -> dict[str, str]:
        """The text map to send. A field that is None is left out."""
        ext = {}
        for field in _fields(type(self)):
            value = getattr(self, field.name)
            if value is not None:
                ext[field.wire] = _text(value)
        return ext


def parse_int(bits: int, text: str) -> int:
    """`text` as a signed integer of `bits` bits. Raises ValueError where Java's parser would."""
    value = int(text)
    # As most write it; what Python takes beyond that Java may not.
    if str(value) != text and not _INTEGER.fullmatch(text):
        raise ValueError(text)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(text)
    return value


def parse_bool(text: str) -> bool:
    """Only `true`, in any case, is true; `1` is false, as in Java."""
    return text.lower() == "true"


def _text(value: object) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    return str(value)


class _Field(NamedTuple):
    name: str
    wire: str
    parse: Callable[[str], Any] | None  # None where the text is the value
    default: Any


@cache
def _fields(cls: type[Header]) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple(
        _Field(field.name, field.encode_name, _parser(hints[field.name]), field.default)
        for field in msgspec.structs.fields(cls)
    )


def _parser(hint: Any) -> Callable[[str], Any] | None:
    """How the text of a field declared as `hint`, or as `hint | None`, becomes its value."""
    if hint is bool:
        return parse_bool
    if hint is str:
        return None
    if typing.get_origin(hint) is Annotated:
        return partial(parse_int, hint.__metadata__[0])
    (inner,) = (arg for arg in typing.get_args(hint) if arg is not type(None))
    return _parser(inner)
