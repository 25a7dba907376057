"""The JSON header: the rules of docs/spec/remoting.md 1.3 on both sides."""

from __future__ import annotations

import json

import pytest

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol.command import Command, Language, SerializeType
from pyromq.protocol.json_header import MAX_TOLERANT, decode, decode_tolerant, encode

DECODERS = pytest.mark.parametrize("decoder", [decode, decode_tolerant])


def ext_of(text: str) -> dict[str, str] | None:
    return decode(b'{"extFields":{"a":%b}}' % text.encode("utf-8", "surrogatepass")).ext


# What we take


@DECODERS
def test_the_empty_object_is_all_defaults(decoder):
    assert decoder(b"{}") == Command(0, Language.JAVA, 0, 0, 0, None, None)


@DECODERS
def test_every_member_is_read(decoder):
    header = {
        "code": 310,
        "extFields": {"a": "1", "b": ""},
        "flag": 2,
        "language": "GO",
        "opaque": -5,
        "remark": "why",
        "serializeTypeCurrentRPC": "ROCKETMQ",
        "version": 317,
    }
    expected = Command(310, Language.GO, 317, -5, 2, "why", {"a": "1", "b": ""})
    assert decoder(json.dumps(header).encode()) == expected
    assert expected.serialize is SerializeType.JSON


@DECODERS
@pytest.mark.parametrize("member", ["code", "version", "opaque", "flag"])
def test_null_is_absent(decoder, member):
    assert decoder(b'{"%b":null,"language":null,"remark":null,"extFields":null}' % member.encode()) == Command()


@DECODERS
def test_a_null_ext_value_is_an_absent_key(decoder):
    assert decoder(b'{"extFields":{"a":null,"b":"x"}}').ext == {"b": "x"}
    assert decoder(b'{"extFields":{"a":null}}').ext == {}


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        ("0", "0"),
        ("-0", "-0"),
        ("-17", "-17"),
        ("1700000000000", "1700000000000"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("1.50", "1.50"),
        ("1E+2", "1E+2"),
        ("true", "true"),
        ("false", "false"),
        ("{}", "{}"),
        ("[ ]", "[]"),
        ('{ "b" : 1.0 , "a" : [ true , null , "x\\ny" ] }', '{"b":1.0,"a":[true,null,"x\\ny"]}'),
        ('["ä", "\\ud800", {"\\udc00": {}}]', '["ä","?",{"?":{}}]'),
    ],
)
def test_an_ext_value_becomes_the_text_java_would_have_sent(literal, text):
    assert ext_of(literal) == {"a": text}


def test_text_that_came_as_a_number_is_plain_text_and_can_be_sent_on():
    command = decode(b'{"remark":1.50,"extFields":{"queueId":0}}')
    assert (type(command.remark), type((command.ext or {})["queueId"])) == (str, str)
    assert decode(encode(command)) == command


@pytest.mark.parametrize("member", ["code", "version", "opaque", "flag"])
@pytest.mark.parametrize("value", [7, -7, 2**31 - 1, -(2**31)])
def test_an_integer_member_may_come_as_a_number_or_as_text(member, value):
    assert getattr(decode(json.dumps({member: value}).encode()), member) == value
    assert getattr(decode(json.dumps({member: str(value)}).encode()), member) == value


@DECODERS
@pytest.mark.parametrize("member", ["code", "version", "opaque", "flag"])
@pytest.mark.parametrize(
    "literal",
    [
        "2147483648",
        "-2147483649",
        "1e400",
        "1.0",
        "1.5",
        "true",
        "[]",
        "{}",
        '""',
        '"x"',
        '" 1"',
        '"1_0"',
        '"١"',
        "9" * 5000,
    ],
)
def test_an_integer_member_that_is_none_is_refused(decoder, member, literal):
    with pytest.raises(RemoteProtocolError, match=member):
        decoder(f'{{"{member}":{literal}}}'.encode())


@DECODERS
@pytest.mark.parametrize(("position", "language"), list(enumerate(Language)))
def test_a_language_may_come_by_its_position(decoder, position, language):
    assert decoder(b'{"language":%d}' % position).language is language
    assert decoder(b'{"language":"%b"}' % language.encode()).language is language


@DECODERS
@pytest.mark.parametrize("literal", ["14", "-1", "1.0", "99999999999999999999"])
def test_a_language_position_out_of_range_is_refused(decoder, literal):
    with pytest.raises(RemoteProtocolError, match="language"):
        decoder(b'{"language":%b}' % literal.encode())


@DECODERS
@pytest.mark.parametrize("literal", ['"ELM"', '"java"', '""', "true", "[]", "{}"])
def test_an_unknown_language_is_other(decoder, literal):
    assert decoder(b'{"language":%b}' % literal.encode()).language is Language.OTHER


@DECODERS
def test_unknown_members_are_ignored_whatever_they_hold(decoder):
    junk = b'"x":[{"y":null}],"Code":5,"body":"b","serialize":1,"ext":{"a":"b"}'
    assert decoder(b'{%b,"code":7}' % junk) == Command(7)


@DECODERS
def test_a_peer_cannot_reach_the_fields_that_are_no_header_members(decoder):
    for member in (b'"(body)":"x","(serialize)":1', b'"(body)":[1]', b'"(serialize)":9'):
        assert decoder(b"{%b}" % member) == Command()


@DECODERS
def test_whitespace_around_and_inside_is_accepted(decoder):
    assert decoder(b' \r\n\t{ "code" : 7 ,\n"extFields" : { "a" : "b" } } \n') == Command(7, ext={"a": "b"})


@DECODERS
def test_raw_control_characters_inside_strings_are_accepted(decoder):
    controls = "".join(map(chr, range(0x20))) + "\x7f\x80\x9f\u2028"
    header = '{"remark":"%s","extFields":{"p":"%s"}}' % ((controls.replace("\n", "") + "\n",) * 2)
    command = decoder(header.encode())
    assert command.remark == controls.replace("\n", "") + "\n"
    assert command.ext == {"p": command.remark}


@DECODERS
def test_the_escapes_of_both_java_versions_are_read(decoder):
    assert decoder(
        rb'{"remark":"TAGS\u0001A\u0002 \u007F\u2028 \u007f \/ \u9519\u8BEF \ud83D\ude00 \b\f\n\r\t\"\\"}'
    ).remark == ('TAGS\x01A\x02 \x7f\u2028 \x7f / 错误 😀 \b\f\n\r\t"\\')


@DECODERS
def test_half_a_surrogate_pair_becomes_a_question_mark_as_in_java(decoder):
    command = decoder(rb'{"remark":"a\ud83db","extFields":{"\udc00":"\ude00\ud83d"}}')
    assert command.remark == "a?b"
    assert command.ext == {"?": "??"}
    assert decoder(encode(command)) == command


@DECODERS
def test_bytes_that_are_no_utf8_become_replacement_characters_as_in_java(decoder):
    command = decoder(b'{"remark":"a\xffb","extFields":{"\xc3":"\xf0\x9f"}}')
    assert command.remark == "a\ufffdb"
    assert command.ext == {"\ufffd": "\ufffd"}


@DECODERS
def test_the_last_of_equal_members_wins(decoder):
    assert decoder(b'{"code":1,"code":2,"extFields":{"a":"1","a":"2"}}') == Command(2, ext={"a": "2"})
    assert decoder(b'{"extFields":{"a":"1"},"extFields":{"b":"2"}}').ext == {"b": "2"}


@DECODERS
@pytest.mark.parametrize(("literal", "text"), [('""', ""), ("1.0", "1.0"), ("true", "true"), ('{"a": 1}', '{"a":1}')])
def test_a_remark_is_text_whatever_it_was(decoder, literal, text):
    assert decoder(b'{"remark":%b}' % literal.encode()).remark == text


@DECODERS
@pytest.mark.parametrize(
    "header",
    [
        b"",
        b" ",
        b"null",
        b"0",
        b'"{}"',
        b"[]",
        b"{",
        b"{}}",
        b"{},",
        b"{}x",
        b"{}\x00",
        b"\x00{}",
        b"\xef\xbb\xbf{}",
        b"\xff\xfe{\x00}\x00",
        b"{code:1}",
        b"{'code':1}",
        b'{"code":1,}',
        b'{"code":01}',
        b'{"code":+1}',
        b'{"code":}',
        b'{"code"}',
        b'{"code":NaN}',
        b'{"extFields":{"a":NaN}}',
        b'{"extFields":{"a":-Infinity}}',
        b'{"x":NaN}',
        b'{"extFields":[]}',
        b'{"extFields":"a"}',
        b'{"extFields":1}',
        b'{"remark":"x}',
        b'{"remark":"\\x"}',
        b'{"remark":"\\u12"}',
        b'{"a":"b"/**/}',
    ],
)
def test_what_is_no_json_object_is_refused(decoder, header):
    with pytest.raises(RemoteProtocolError):
        decoder(header)


@DECODERS
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.parametrize("member", [b'{"x":%b}', b'{"extFields":{"a":%b}}', b'{"code":%b}', b'{"(body)":%b}'])
def test_deep_nesting_is_refused_and_not_a_crash(decoder, opening, closing, member):
    for filled in (opening * 20_000, opening * 20_000 + b"1" + closing * 20_000):
        with pytest.raises(RemoteProtocolError):
            decoder(member % filled)


def test_the_tolerant_way_is_closed_to_huge_headers():
    """Each number would cost a hundred bytes and a microsecond."""
    for filler in (b"0,", b"[],", b'"a",'):
        items = filler * (MAX_TOLERANT // len(filler))
        for member in (b'{"code":"1","x":[%b0]}', b'{"extFields":{"a":[%b0]}}'):
            with pytest.raises(RemoteProtocolError, match="not strict JSON"):
                decode(member % items)


def test_a_huge_header_of_strict_json_is_read():
    remark = "x" * (4 * MAX_TOLERANT)
    assert decode(encode(Command(1, remark=remark))).remark == remark


# What we send


def test_the_output_is_compact_and_in_javas_order():
    command = Command(310, Language.PYTHON, 409, -1, 2, "so", {"b": "x", "a": "1"})
    assert encode(command) == (
        b'{"code":310,"extFields":{"b":"x","a":"1"},"flag":2,"language":"PYTHON","opaque":-1,"remark":"so","version":409}'
    )


def test_null_is_left_out_and_empty_is_written():
    assert encode(Command()) == b'{"code":0,"flag":0,"language":"JAVA","opaque":0,"version":0}'
    assert encode(Command(remark="", ext={})) == (
        b'{"code":0,"extFields":{},"flag":0,"language":"JAVA","opaque":0,"remark":"","version":0}'
    )


def test_text_is_utf8_with_control_characters_escaped():
    assert b'"remark":"\\u0001\\n\\"\\\\/\x7f\xc3\xa4\xe2\x80\xa8"' in encode(Command(remark='\x01\n"\\/\x7fä\u2028'))


def test_text_that_is_no_unicode_is_not_sent():
    with pytest.raises(LocalProtocolError):
        encode(Command(remark="\ud800"))
    with pytest.raises(LocalProtocolError):
        encode(Command(ext={"a": "\udfff"}))
    with pytest.raises(LocalProtocolError):
        encode(Command(ext={"\udfff": "a"}))


@pytest.mark.parametrize("language", Language)
def test_every_language_comes_back(language):
    assert decode(encode(Command(language=language))).language is language
