"""Commands: requests, replies, and what their flags say."""

from __future__ import annotations

import pytest

from pyromq.errors import MissingField
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import Command, Language, SerializeType
from pyromq.protocol.headers import GetRouteInfo, OffsetReply, QueryConsumerOffset


def test_an_absent_member_has_the_meaning_of_the_wire():
    assert Command() == Command(0, Language.JAVA, 0, 0, 0, None, None, None, SerializeType.JSON)


def test_a_request_says_that_python_and_4_9_8_speak():
    request = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo("orders"), b"body")
    assert request == Command(105, Language.PYTHON, 409, ext={"topic": "orders"}, body=b"body")
    assert type(request.code) is int
    assert not request.is_response
    assert not request.is_oneway


def test_a_request_without_a_header_has_no_ext_fields():
    assert Command.request(RequestCode.HEART_BEAT).ext is None


def test_a_oneway_request_says_so():
    request = Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, oneway=True)
    assert request.flag == 2
    assert request.is_oneway
    assert not request.is_response


@pytest.mark.parametrize("serialize", SerializeType)
def test_a_reply_mirrors_number_and_serialisation(serialize):
    request = Command(14, Language.GO, 317, -7, serialize=serialize)
    reply = request.reply(header=OffsetReply(12), body=b"x")
    assert reply == Command(0, Language.PYTHON, 409, -7, 1, None, {"offset": "12"}, b"x", serialize)
    assert reply.is_response
    assert not reply.is_oneway


def test_a_reply_carries_code_and_remark():
    reply = Command(105, opaque=3).reply(ResponseCode.TOPIC_NOT_EXIST, "no route for orders")
    assert (reply.code, reply.remark, reply.opaque) == (17, "no route for orders", 3)
    assert type(reply.code) is int


def test_a_reply_to_a_oneway_request_is_not_itself_oneway():
    assert Command(15, flag=2).reply().flag == 1


@pytest.mark.parametrize(
    ("flag", "response", "oneway"),
    [(0, False, False), (1, True, False), (2, False, True), (3, True, True), (4, False, False), (-1, True, True)],
)
def test_bits_of_the_flag_without_a_meaning_are_ignored(flag, response, oneway):
    command = Command(flag=flag)
    assert command.is_response is response
    assert command.is_oneway is oneway


def test_the_custom_header_is_read_from_the_ext_fields():
    command = Command(14, ext={"consumerGroup": "g", "topic": "t", "queueId": "3", "unknown": "x"})
    assert command.header(QueryConsumerOffset) == QueryConsumerOffset("g", "t", 3)


def test_a_command_without_ext_fields_has_a_header_whose_fields_are_missing():
    header = Command(105).header(GetRouteInfo)
    assert header.accept_standard_json_only is None
    with pytest.raises(MissingField):
        _ = header.topic


@pytest.mark.parametrize(
    ("body", "joined"),
    [
        (None, b""),
        (b"", b""),
        (b"abc", b"abc"),
        (bytearray(b"abc"), b"abc"),
        (memoryview(b"xabcx")[1:4], b"abc"),
        ([b"a", memoryview(b"bc")], b"abc"),
        ([], b""),
    ],
)
def test_a_body_can_be_had_in_one_piece(body, joined):
    whole = Command(body=body).body_bytes
    assert whole == joined
    assert type(whole) is bytes


def test_languages_stand_at_their_wire_positions():
    names = "JAVA CPP DOTNET PYTHON DELPHI ERLANG RUBY OTHER HTTP GO PHP OMS RUST NODE_JS"
    assert [language.value for language in Language] == names.split()
