"""Every declared header: what is written to the text map is read back, and nothing else can be read."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyromq.errors import MissingField
from pyromq.protocol import headers
from pyromq.protocol.command import Command, SerializeType
from pyromq.protocol.frame import FrameDecoder, encode

if TYPE_CHECKING:
    from pyromq.protocol.header import Header

HEADERS: list[type[Header]] = [getattr(headers, name) for name in headers.__all__]
EVERY_HEADER = pytest.mark.parametrize("kind", HEADERS, ids=lambda kind: kind.__name__)

TEXT = st.text(max_size=12)
# Numbers of every kind that a peer may write, and what only looks like one.
TROUBLE = (
    TEXT
    | st.integers().map(str)
    | st.floats().map(str)
    | st.sampled_from(
        [
            "",
            " 1",
            "1 ",
            "1.0",
            "+1",
            "-",
            "2147483648",
            "9223372036854775808",
            "0x1",
            "1_0",
            "true",
            "TRUE",
            "1",
            "null",
        ]
    )
)


def value_of(hint: Any, text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    if hint is bool:
        return st.booleans()
    if hint is str:
        return text
    if typing.get_origin(hint) is Annotated:
        half = 1 << hint.__metadata__[0] - 1
        return st.integers(-half, half - 1)
    return st.one_of([st.none() if arg is type(None) else value_of(arg, text) for arg in typing.get_args(hint)])


def header_of(kind: type[Header], text: st.SearchStrategy[str] = TEXT) -> st.SearchStrategy[Header]:
    hints = typing.get_type_hints(kind, include_extras=True)
    names = [field.name for field in msgspec.structs.fields(kind)]
    return st.builds(kind, **{name: value_of(hints[name], text) for name in names})


@EVERY_HEADER
@settings(max_examples=20)  # of each header
@given(data=st.data())
def test_a_header_comes_back_as_it_was_written(kind, data):
    header = data.draw(header_of(kind))
    ext = header.to_ext()
    assert all(type(text) is str for text in ext.values())
    assert kind.from_ext(ext) == header


@given(st.sampled_from(HEADERS).flatmap(lambda kind: header_of(kind, st.text(min_size=1, max_size=12))))
def test_a_header_comes_back_through_a_frame(header):
    """In a binary frame an empty text is absent, so texts are not empty here; test_frames has the rule."""
    for serialize in SerializeType:
        decoder = FrameDecoder()
        decoder.feed(encode(Command.request(10, header, serialize=serialize)))
        command = decoder.next()
        assert command is not None
        assert command.header(type(header)) == header


@EVERY_HEADER
@settings(max_examples=20)  # of each header
@given(data=st.data())
def test_any_text_map_is_read_and_a_field_is_its_value_or_missing(kind, data):
    fields = msgspec.structs.fields(kind)
    keys = st.sampled_from([field.encode_name for field in fields]) | TEXT
    ext = data.draw(st.none() | st.dictionaries(keys, TROUBLE, max_size=8))
    header = kind.from_ext(ext)
    repr(header)
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in fields:
        text = (ext or {}).get(field.encode_name)
        expected = java_value(hints[field.name], text)
        if expected is not None:
            assert getattr(header, field.name) == expected
        elif field.required:
            with pytest.raises(MissingField) as caught:
                getattr(header, field.name)
            assert (caught.value.header, caught.value.field) == (kind.__name__, field.encode_name)
        else:
            assert getattr(header, field.name) == field.default


def java_value(hint: Any, text: str | None) -> Any:
    """What Java's parsers make of `text`, written down a second time and plainly; None for nothing."""
    if text is None:
        return None
    if type(None) in typing.get_args(hint):
        hint = next(arg for arg in typing.get_args(hint) if arg is not type(None))
    if hint is str:
        return text
    if hint is bool:
        return text in {"true", "TRUE", "True"} or text.lower() == "true"
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits or not set(digits) <= set("0123456789"):
        return None
    number = -int(digits) if text[0] == "-" else int(digits)
    half = 1 << hint.__metadata__[0] - 1
    return number if -half <= number < half else None


@EVERY_HEADER
def test_reading_one_missing_field_needs_no_other(kind):
    """Every required field is missing alone once, and only its own reading fails."""
    fields = msgspec.structs.fields(kind)
    hints = typing.get_type_hints(kind, include_extras=True)
    required = [field for field in fields if field.required]
    ext = {field.encode_name: "1" for field in required}
    for absent in required:
        header = kind.from_ext({key: text for key, text in ext.items() if key != absent.encode_name})
        for field in required:
            if field is absent:
                with pytest.raises(MissingField, match=field.encode_name):
                    getattr(header, field.name)
            else:
                assert getattr(header, field.name) == java_value(hints[field.name], "1")
