"""What FastJSON's dialect means, and what no text may do to us."""

from __future__ import annotations

import json

import msgspec
import pytest

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol.fastjson import MAX_DEPTH, MAX_GENERAL, ObjectKey, dumps, loads, loads_tolerant
from pyromq.protocol.fastjson_reader import Reader
from pyromq.protocol.fastjson_rewrite import NotRewritten, loads_rewritten
from pyromq.protocol.message_queue import MessageQueue

QUEUE = '{"brokerName":"rack1","queueId":3,"topic":"orders"}'
QUEUE_KEY = ObjectKey([("brokerName", "rack1"), ("queueId", 3), ("topic", "orders")])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"a",1:"b"}', {"0": "a", "1": "b"}),
        ("{-1:2}", {"-1": 2}),
        ('{"0":"a"}', {"0": "a"}),
        ("{'a':'it''s'}".replace("''", "\\'"), {"a": "it's"}),
        ("{a:1,$b_2:2}", {"a": 1, "$b_2": 2}),
        ('{"a":1,}', {"a": 1}),
        ("[1,2,]", [1, 2]),
        ("[],", []),
        ('/* first */ {"a": // one\n 1 /* * / */ }// end', {"a": 1}),
        ('\ufeff{"a":1}', {"a": 1}),
        ('"two\nlines\ttab\x00nul"', "two\nlines\ttab\x00nul"),
        (f"{{{QUEUE}:5}}", {QUEUE_KEY: 5}),
        (
            f"{{ {QUEUE} : 5 , {QUEUE.replace('3', '4')}:6}}",
            {QUEUE_KEY: 5, ObjectKey([*QUEUE_KEY[:1], ("queueId", 4), QUEUE_KEY[2]]): 6},
        ),
        ('{"a":1}\n', {"a": 1}),
        (r'"\"\\\/\b\f\n\r\t\v\0\7\x41\u00e9"', '"\\/\b\f\n\r\t\v\0\7Aé'),
        ("[-1,+1,01,1.5,-2e3,0.0]", [-1, 1, 1, 1.5, -2000.0, 0.0]),
        ("[true,false,null]", [True, False, None]),
        ('{"a":1,"a":2}', {"a": 2}),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_what_java_accepts_is_read(text, value):
    assert loads(text.encode()) == value
    assert loads(text) == value
    assert loads_tolerant(text.encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\x00",
        '{"a":1}\x00',
        '{"a":1}x',
        '{"a":1},,',
        '{"a"}',
        '{"a":}',
        '{"a":1 "b":2}',
        "{,}",
        "[,]",
        "[1,,2]",
        "[1 2]",
        "[1",
        "{",
        '"abc',
        "'abc\"",
        r'"\q"',
        r'"\u12"',
        '"\\',
        "/* no end",
        "//",
        "nul",
        "nullx",
        "NaN",
        "-",
        "1L",
        ".5",
        "1.",
        "9223372036854775808",
        "-9223372036854775809",
        "1e400",
        "1" * 5000,
        "{{{}:1}:1}",  # an object key inside of an object key
        "{[1]:1}",
        "{1.5:1}",
        "{a-b:1}",
    ],
)
def test_what_is_no_json_is_refused_with_its_position(text):
    with pytest.raises(RemoteProtocolError, match=r"at character \d+"):
        loads(text.encode())


def test_the_position_is_where_the_text_goes_wrong():
    with pytest.raises(RemoteProtocolError, match="expected ',' or '}' at character 9"):
        loads(b'{"a":"\xc3\xa9" ?}')


def test_an_object_key_does_not_depend_on_the_order_of_its_members():
    assert loads('{{"b":[1,{"c":2}],"a":null}:1}') == {ObjectKey.of({"a": None, "b": [1, {"c": 2}]}): 1}


def test_every_string_can_be_encoded_whatever_was_escaped():
    assert loads(rb'"\ud83d\ude00"') == "😀"
    assert loads(rb'["\ud800","a\udc00b","\ud800\u0041"]') == ["�", "a�b", "�A"]
    assert loads(rb"{'\ud800':1}") == {"�": 1}
    assert loads(b'"\xff\xed\xa0\x80"').encode()  # type: ignore[attr-defined]
    assert loads('{"a":"\ud800"}') == {"a": "?"}


# --- refs


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":{"x":1},"b":{"$ref":"$.a"}}', {"a": {"x": 1}, "b": {"x": 1}}),
        ('{"a":{"b":[{"x":1}]},"c":{"$ref":"$.a.b[0]"}}', {"a": {"b": [{"x": 1}]}, "c": {"x": 1}}),
        ('[[1],{"$ref":"$[0]"}]', [[1], [1]]),
        ('{"a":{"b":[{"x":1},[{"$ref":"$.a.b[0]"}]]}}', {"a": {"b": [{"x": 1}, [{"x": 1}]]}}),
        # 4.9 calls an integer key by its index
        ('{"t":{1:{"x":0},2:{"$ref":"$.t[1]"}}}', {"t": {"1": {"x": 0}, "2": {"x": 0}}}),
        (r'{"a\u002eb":[7],"c":{"$ref":"$.a\\.b"}}', {"a.b": [7], "c": [7]}),
        # a ref to what came by a ref
        ('{"a":[1],"b":[{"$ref":"$.a"}],"c":{"$ref":"$.b[0]"}}', {"a": [1], "b": [[1]], "c": [1]}),
        # no ref: more members, another type, another name
        ('{"$ref":"$","a":1}', {"$ref": "$", "a": 1}),
        ('{"$ref":1}', {"$ref": 1}),
        ('{"ref":"$"}', {"ref": "$"}),
    ],
)
def test_a_ref_stands_for_what_it_names(text, value):
    assert loads(text.encode()) == value


def test_a_ref_names_a_queue_by_its_java_text():
    # as 4.9.7 writes a ConsumeStats whose queues share one value
    text = (
        r'{"offsetTable":{{"brokerName":"rack1","queueId":0,"topic":"%RETRY%a.b"}:{"brokerOffset":7},'
        r'{"brokerName":"rack1","queueId":1,"topic":"%RETRY%a.b"}:{"$ref":"$.offsetTable.MessageQueue\\ \\[topic\\='
        r'\\%RETRY\\%a\\.b\\,\\ brokerName\\=rack1\\,\\ queueId\\=0\\]"}}}'
    )
    table = loads(text)["offsetTable"]  # type: ignore[index]
    assert len(table) == 2
    assert all(value == {"brokerOffset": 7} for value in table.values())


def test_a_ref_shares_the_value_and_does_not_copy_it():
    value = loads('{"a":{"x":1},"b":{"$ref":"$.a"}}')
    assert value["a"] is value["b"]  # type: ignore[index]


@pytest.mark.parametrize(
    "text",
    [
        '{"a":{"$ref":"$"}}',
        '{"a":{"$ref":"@"}}',
        '{"a":{"b":{"$ref":".."}}}',
        '{"$ref":"$"}',
        '{"a":{"b":{"$ref":"$.a"}}}',  # around the ref
        '{"a":{"$ref":"$.b"},"b":{}}',  # below the ref
        '{"a":[1],"b":{"$ref":"$.a[1]"}}',
        '{"a":[[1],{"$ref":"$.a"}]}',
        '{"a":[[{"$ref":"$.a[0]"}]]}',
        '{"a":[[{"$ref":"$.a[0][0]"}]]}',
        '{"a":[1],"b":{"$ref":"$.a.x"}}',
        '{"a":1,"b":{"$ref":"$.a.x"}}',
        '{"a":[1],"b":{"$ref":"$.a["}}',
        '{"a":[1],"b":{"$ref":""}}',
        '{"a":{{"x":1}:1},"b":{{"$ref":"$.a.null"}:2}}',  # as 4.9 writes a queue that is a key twice
        '{"a":{"x":1},"b":{{"$ref":"$.a"}:2}}',
        '{"a":{"x":1},"b":{{"y":{"$ref":"$.a"}}:2}}',
        '{"a":{},"b":{"$ref":"$.a.MessageQueue\\\\ \\\\[topic\\\\=t]"}}',
    ],
)
def test_a_ref_that_leads_nowhere_is_refused(text):
    with pytest.raises(RemoteProtocolError, match=r"\$ref to nothing at character"):
        loads(text)


def test_refs_that_double_each_other_are_refused():
    doubling = ",".join(f'"a{n}":[{{"$ref":"$.a{n - 1}"}},{{"$ref":"$.a{n - 1}"}}]' for n in range(1, 60))
    with pytest.raises(RemoteProtocolError, match="too large"):
        loads(f'{{"a0":["x"],{doubling}}}')


def test_many_refs_to_one_long_text_are_refused():
    refs = ",".join(['{"$ref":"$[0]"}'] * 1000)
    with pytest.raises(RemoteProtocolError, match="too large"):
        loads(f'[["{"x" * 10_000}"],{refs}]')


def test_many_refs_to_a_small_value_are_fine():
    refs = ",".join(['{"$ref":"$[0]"}'] * 1000)
    value = loads(f'[["x"],{refs}]')
    assert value == [["x"]] * 1001


def test_refs_cannot_nest_deeper_than_the_text_may():
    chain = ",".join(f'"a{n}":[{{"$ref":"$.a{n - 1}"}}]' for n in range(1, MAX_DEPTH))
    with pytest.raises(RemoteProtocolError, match="nests deeper"):
        loads(f'{{"a0":[],{chain}}}')


# --- bounds


@pytest.mark.parametrize(("opening", "inside", "closing"), [("[", "", "]"), ('{"a":', "1", "}"), ("['a',", "1", "]")])
def test_nesting_ends_at_its_limit(opening, inside, closing):
    loads(opening * MAX_DEPTH + inside + closing * MAX_DEPTH)
    with pytest.raises(RemoteProtocolError, match="deeper than 64 at character"):
        loads(opening * (MAX_DEPTH + 1) + inside + closing * (MAX_DEPTH + 1))


def test_many_objects_that_do_not_nest_are_no_depth():
    assert loads("[" + ",".join(["[{}]"] * 1000) + "]") == [[{}]] * 1000
    assert loads(json.dumps("[" * 1000)) == "[" * 1000


@pytest.mark.parametrize(
    "part",
    ["[", '{"a":', '"', "'", "/*", "//\n", "{", "1", "-", "\\", '{"a":1,', "[1,", '"\\u0041', " ", "{{", '{"$ref":'],
)
def test_a_megabyte_of_anything_ends_quickly(part):
    with pytest.raises(RemoteProtocolError):
        loads(part * (1_000_000 // len(part)))


def test_a_long_path_is_walked_once():
    with pytest.raises(RemoteProtocolError):
        loads('{"a":{},"b":{"$ref":"$' + ".a" * 200_000 + '"}}')


# --- writing


class Inner(msgspec.Struct):
    a: int
    b: str | None = None


class Outer(msgspec.Struct, omit_defaults=True, rename="camel"):
    by_queue: dict[MessageQueue, Inner]
    left_out: str | None = None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": None, "b": [None, 1]}, '{"b":[null,1]}'),
        ({0: "a", 10: "b"}, '{"0":"a","10":"b"}'),
        ({"tps": 0.0, "on": True}, '{"tps":0.0,"on":true}'),
        ({"name": "错误/é"}, '{"name":"错误/é"}'),
        ({MessageQueue(broker_name="rack1", queue_id=3, topic="orders"): 5}, f"{{{QUEUE}:5}}"),
        ({QUEUE_KEY: 5}, f"{{{QUEUE}:5}}"),
        ({"list": (1, [2]), "set": {3}}, '{"list":[1,[2]],"set":[3]}'),
        (
            Outer({MessageQueue(broker_name="rack1", queue_id=3, topic="orders"): Inner(1)}),
            f'{{"byQueue":{{{QUEUE}:{{"a":1,"b":null}}}}}}',
        ),
        (Outer({}), '{"byQueue":{}}'),
        ([], "[]"),
        (None, "null"),
        ('"\n\x00', r'"\"\n\u0000"'),
    ],
)
def test_the_text_is_compact_and_for_everybody(value, text):
    assert dumps(value).decode() == text


def test_what_is_shared_is_written_out():
    shared = {"x": 1}
    assert dumps([shared, shared]) == b'[{"x":1},{"x":1}]'


@pytest.mark.parametrize("value", ["\ud800", {"a": "\ud800"}, {"\ud800": 1}, {1.5: 1}, {True: 1}, object(), {None: 1}])
def test_what_has_no_text_is_refused(value):
    with pytest.raises(LocalProtocolError):
        dumps(value)


def test_what_contains_itself_is_refused():
    value: list[object] = []
    value.append(value)
    with pytest.raises(LocalProtocolError):
        dumps(value)


def test_only_a_short_text_is_left_to_the_general_reader():
    refs = ",".join(['{"$ref":"$[0]"}'] * (MAX_GENERAL // 15))
    with pytest.raises(RemoteProtocolError, match=rf"such a text may have {MAX_GENERAL} at most"):
        loads(f"[[],{refs}]")


@pytest.mark.slow
def test_a_large_table_of_integer_keys_is_read():
    table = ",".join(f'"t{n}@g":{{0:{n},1:12345678}}' for n in range(150_000))
    text = f'{{"offsetTable":{{{table}}}}}'
    assert len(text) > 4 * 1024 * 1024
    value = loads(text)
    assert value["offsetTable"]["t149999@g"] == {"0": 149999, "1": 12345678}  # type: ignore[index]


@pytest.mark.parametrize(
    "text",
    ["['a'," + '"b",' * 3000 + "1]", "[+1," + "[]," * 3000 + "'x']", "{0:1," + '"k":2,' * 3000 + "'l':3}"],
)
def test_long_stretches_of_plain_json_between_quirks_stay(text):
    assert loads_rewritten(text) == Reader(text).read()


@pytest.mark.parametrize(
    "part", ["/* ", "'\\' ", "\"\\' ", "{'", "{ ,", "[ ", "0 ", "{}:", "{{", '{"a"', "1.", "+", ", ", "'a", "{'a'}: "]
)
def test_the_rewriting_meets_each_character_once(part):
    with pytest.raises(NotRewritten):
        loads_rewritten(part * (300_000 // len(part)))
