"""Laws of the bodies: we read what we write, both readers agree, and any bytes end in a value or a typed error."""

from __future__ import annotations

import inspect
import json
import math
import re
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect as kinds

from pyromq.errors import RemoteProtocolError
from pyromq.protocol import bodies
from pyromq.protocol.bodies import Body, RegisterBrokerBody
from pyromq.protocol.bodies.base import _strict_decoder
from pyromq.protocol.fastjson import ObjectKey, dumps, loads, loads_tolerant

BODY_TYPES: list[type[Body]] = sorted(
    (body for _, body in inspect.getmembers(bodies, inspect.isclass) if issubclass(body, Body) and body is not Body),
    key=lambda body: body.__name__,
)


def every_body(test):
    """Runs `test` for each type. Fewer examples than usual: most types are part of others and tried there too."""
    by_type = pytest.mark.parametrize("body_type", BODY_TYPES, ids=lambda body_type: body_type.__name__)
    return by_type(settings(max_examples=40)(test))


STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
TEXTS = st.text(max_size=8)


def values(kind: kinds.Type) -> st.SearchStrategy[Any]:
    """Values of a field, as its type says."""
    match kind:
        case kinds.IntType(ge=low, le=high):
            return st.integers(low, high)
        case kinds.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case kinds.BoolType():
            return st.booleans()
        case kinds.StrType():
            return TEXTS
        case kinds.EnumType(cls=enum_type):
            return st.sampled_from(list(enum_type))
        case kinds.ListType(item_type=item):
            return st.lists(values(item), max_size=3)
        case kinds.FrozenSetType(item_type=item):
            return st.frozensets(values(item), max_size=3)
        case kinds.DictType(key_type=key, value_type=item):
            return st.dictionaries(values(key), values(item), max_size=3)
        case kinds.StructType(cls=struct_type, fields=fields):
            return st.builds(struct_type, **{field.name: values(field.type) for field in fields})
        case kinds.UnionType(types=(only, kinds.NoneType())):
            return st.none() | values(only)
    raise AssertionError(kind)


def clothes(kind: kinds.Type, strange: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """JSON that somebody might send for a field: in one of the forms that are known, or something `strange`."""
    match kind:
        case kinds.IntType(ge=low, le=high):
            return st.integers(low, high).flatmap(lambda n: st.sampled_from([n, str(n), n % 7 / 1])) | strange
        case kinds.FloatType():
            return st.floats(-1e9, 1e9).flatmap(lambda n: st.sampled_from([n, int(n), str(int(n))])) | strange
        case kinds.BoolType():
            return st.sampled_from([True, False, "true", "FALSE", "1", "0", 1, 0]) | strange
        case kinds.StrType():
            return TEXTS | strange
        case kinds.EnumType(cls=enum_type):
            return st.sampled_from([member.value for member in enum_type]) | strange
        case kinds.ListType(item_type=item) | kinds.FrozenSetType(item_type=item):
            return st.lists(clothes(item, strange), max_size=3) | strange
        case kinds.DictType(key_type=kinds.IntType(), value_type=item):
            return st.dictionaries(st.integers(-2, 2).map(str), clothes(item, strange), max_size=3) | strange
        case kinds.DictType(key_type=kinds.StructType()):
            return st.just({}) | strange
        case kinds.DictType(value_type=item):
            return st.dictionaries(TEXTS, clothes(item, strange), max_size=3) | strange
        case kinds.StructType(fields=fields):
            members = {field.encode_name: (field.required, clothes(field.type, strange)) for field in fields}
            return st.fixed_dictionaries(
                {name: member for name, (required, member) in members.items() if required},
                optional={name: member for name, (required, member) in members.items() if not required},
            )
        case kinds.UnionType(types=(only, kinds.NoneType())):
            return st.none() | clothes(only, strange)
    raise AssertionError(kind)


BODIES = {body_type: values(kinds.type_info(body_type)) for body_type in BODY_TYPES}
DRESSED = {body_type: clothes(kinds.type_info(body_type), st.nothing()) for body_type in BODY_TYPES}
ANYTHING = st.sampled_from([None, True, "", "null", "1.0", 1.5, 2, -1, 2**64, 1e300, [], {}, [None], {"a": 1}])
STRANGE = {body_type: clothes(kinds.type_info(body_type), ANYTHING) for body_type in BODY_TYPES}

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)
# Pieces of the dialect, in any order: far more of these come close to a text than of random characters.
PIECES = st.lists(
    st.sampled_from(
        ["{", "}", "[", "]", ":", ",", '"', "'", "\\", "\\u", "d800", "$ref", '"$ref"', '"$"', '"$.a"', '"a"', "'b'",
         "a", "0", "1", "-", ".", "e9", "99999999999999999999", "true", "null", "/*", "*/", "//", "\n", " ", "\x00",
         "\ufeff", '{"a":', '{"a":1}', "[1]", '{"$ref":"$.a"}', '"table"', '"offsetTable"', '{"offsetTable":',
         '{"table":', "}}"]
    ),
    max_size=20,
).map("".join)  # fmt: skip


def typed_error_or(read, data):
    try:
        return read(data)
    except RemoteProtocolError:
        return None


@every_body
@given(st.data())
def test_a_body_survives_the_wire(body_type, data):
    body = data.draw(BODIES[body_type])
    encoded = body.encode()
    assert body_type.decode(encoded) == body
    assert body_type.decode_tolerant(encoded) == body
    assert body_type.decode(b"/* not JSON */" + encoded) == body


@every_body
@given(st.data())
def test_the_text_is_compact_and_in_order(body_type, data):
    encoded = data.draw(BODIES[body_type]).encode()
    assert not re.search(r"\s", STRING.sub("", encoded.decode()))
    value = loads(encoded)
    assert isinstance(value, dict)
    assert list(value) == sorted(value)
    assert set(value) <= {field.encode_name for field in msgspec.structs.fields(body_type)}


@every_body
@given(st.data())
def test_where_the_strict_reader_accepts_the_tolerant_one_agrees(body_type, data):
    text = json.dumps(data.draw(DRESSED[body_type] | STRANGE[body_type])).encode()
    try:
        strict = _strict_decoder(body_type).decode(text)
    except (ValueError, RecursionError):
        typed_error_or(body_type.decode, text)
    else:
        assert body_type.decode(text) == strict
        assert typed_error_or(body_type.decode_tolerant, text) in (strict, None)


@every_body
@given(st.data())
def test_known_clothes_are_known_to_both_readers(body_type, data):
    text = json.dumps(data.draw(DRESSED[body_type])).encode()
    assert body_type.decode_tolerant(text) == _strict_decoder(body_type).decode(text)


@every_body
@given(st.binary(max_size=60) | PIECES.map(str.encode) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_body_or_a_typed_error(body_type, data):
    body = typed_error_or(body_type.decode, data)
    if body is not None:
        body.encode()


@every_body
@given(st.data())
def test_a_damaged_body_is_a_body_or_a_typed_error(body_type, data):
    encoded = bytearray(data.draw(BODIES[body_type]).encode())
    start = data.draw(st.integers(0, len(encoded)))
    end = data.draw(st.integers(start, min(len(encoded), start + 4)))
    encoded[start:end] = data.draw(st.binary(max_size=4) | PIECES.map(str.encode))
    body = typed_error_or(body_type.decode, bytes(encoded))
    if body is not None:
        body.encode()


@given(BODIES[RegisterBrokerBody], st.sampled_from([409, 413]))
def test_a_compressed_registration_tells_what_it_can(body, version):
    wrapper = body.topic_config_serialize_wrapper
    topics = {topic.topic_name: topic for topic in wrapper.topic_config_table.values()}
    topics = {name: topic for name, topic in topics.items() if name and " " not in name}
    body = msgspec.structs.replace(
        body, topic_config_serialize_wrapper=msgspec.structs.replace(wrapper, topic_config_table=topics)
    )
    carried = {
        name: msgspec.structs.replace(
            topic, order=False, topic_sys_flag=0, attributes=topic.attributes if version == 413 else {}
        )
        for name, topic in topics.items()
    }
    read = RegisterBrokerBody.decode(body.encode_compressed(version), version, compressed=True)
    assert read.topic_config_serialize_wrapper.topic_config_table == carried
    assert read.topic_config_serialize_wrapper.data_version == wrapper.data_version
    assert read.filter_server_list == body.filter_server_list


@given(st.binary(max_size=80), st.sampled_from([36, 409, 413]), st.booleans(), st.booleans())
def test_any_registration_is_a_body_or_a_typed_error(data, version, compressed, is_stream):
    if is_stream:
        data = zlib.compress(data)
    typed_error_or(lambda text: RegisterBrokerBody.decode(text, version, compressed=compressed), data)


@given(JSON)
def test_plain_json_means_the_same_to_every_reader(value):
    text = json.dumps(value, ensure_ascii=False).encode()
    assert loads(text) == loads_tolerant(text) == value


@given(PIECES | st.text(max_size=60))
def test_any_text_is_a_value_or_a_typed_error(text):
    value = typed_error_or(loads, text.encode())
    tolerant = typed_error_or(loads_tolerant, text.encode())
    assert value == tolerant
    dumps(value)  # every string in it can be encoded


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_a_typed_error(data):
    dumps(typed_error_or(loads, data))


OBJECT_KEYS = st.dictionaries(TEXTS, st.integers(-9, 9) | TEXTS | st.booleans(), max_size=3).map(ObjectKey.of)


@given(st.dictionaries(OBJECT_KEYS | TEXTS, JSON.filter(lambda value: value is not None), max_size=3))
def test_what_is_written_with_object_keys_is_read_again(value):
    assert loads(dumps(value)) == without_nulls(value)


def without_nulls(value):
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_keeps_its_value_in_both_readers(number):
    text = dumps(number)
    assert math.copysign(1, loads(text)) == math.copysign(1, number)  # type: ignore[arg-type]
    assert loads(text) == loads_tolerant(text) == number
