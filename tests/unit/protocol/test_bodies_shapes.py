"""The shapes of the bodies: what Java writes decodes, and is written again byte for byte."""

from __future__ import annotations

import inspect
from pathlib import Path

import msgspec
import pytest

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol import bodies
from pyromq.protocol.bodies import (
    Body,
    BrokerData,
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStats,
    ConsumeStatsList,
    DelayOffsetTable,
    HeartbeatData,
    KVTable,
    RegisterBrokerBody,
    ResetOffsetBody,
    TopicRouteData,
)
from pyromq.protocol.message_queue import MessageQueue

BODY_TYPES = sorted(
    (body for _, body in inspect.getmembers(bodies, inspect.isclass) if issubclass(body, Body) and body is not Body),
    key=lambda body: body.__name__,
)
QUEUE = MessageQueue(broker_name="rack1", queue_id=0, topic="orders")
MQ = '{"brokerName":"rack1","queueId":0,"topic":"orders"}'
SHAPES = [
    (getattr(bodies, name), text)
    for name, text in (
        line.split(" ", 1)
        for line in Path(__file__).with_name("body_shapes.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    )
]
IDS = [f"{body.__name__}-{number}" for number, (body, _) in enumerate(SHAPES)]


@pytest.mark.parametrize(("body_type", "text"), SHAPES, ids=IDS)
def test_what_java_writes_is_written_again_byte_for_byte(body_type, text):
    assert body_type.decode(text.encode()).encode().decode() == text
    assert body_type.decode_tolerant(text.encode()).encode().decode() == text


@pytest.mark.parametrize(("body_type", "text"), SHAPES, ids=IDS)
def test_unquoted_integer_keys_and_unknown_members_change_nothing(body_type, text):
    unquoted = text.replace('{"0":', "{0:").replace(',"1":', ",1:").replace('{"1":', "{1:").replace(',"3":', ",3:")
    later = unquoted[:-1] + ',"fromTheFuture":{"x":[1,{}],0:1}}\n'
    assert body_type.decode(later.encode()) == body_type.decode(text.encode())


@pytest.mark.parametrize("body_type", BODY_TYPES, ids=lambda body_type: body_type.__name__)
def test_members_stand_in_the_order_that_java_writes(body_type):
    names = [field.encode_name for field in msgspec.structs.fields(body_type)]
    assert names == sorted(names)


@pytest.mark.parametrize("body_type", BODY_TYPES, ids=lambda body_type: body_type.__name__)
def test_null_members_count_as_absent(body_type):
    fields = msgspec.structs.fields(body_type)
    sample = {field.encode_name: f'"{field.encode_name}":null' for field in fields if not field.required}
    required = {field.encode_name: f'"{field.encode_name}":{_sample(field)}' for field in fields if field.required}
    without = body_type.decode(f"{{{','.join(required.values())}}}".encode())
    with_nulls = body_type.decode(f"{{{','.join((required | sample).values())}}}".encode())
    if body_type is RegisterBrokerBody:
        with_nulls = msgspec.structs.replace(with_nulls, filter_server_list=[])  # the one null that has a meaning
    assert with_nulls == without


def _sample(field: msgspec.structs.FieldInfo) -> str:
    nested = {"subscription_data": '{"topic":"t"}', "broker_member_group": '{"brokerName":"b"}', "message_queue": MQ}
    return nested.get(field.name, '"x"')


@pytest.mark.parametrize("body_type", BODY_TYPES, ids=lambda body_type: body_type.__name__)
def test_two_bodies_share_no_table(body_type):
    required = {field.name: None for field in msgspec.structs.fields(body_type) if field.required}
    one, two = body_type(**required), body_type(**required)
    assert not mutable_parts(one) & mutable_parts(two)


def mutable_parts(body: msgspec.Struct) -> set[int]:
    parts = set()
    for value in msgspec.structs.astuple(body):
        if isinstance(value, list | dict):
            parts.add(id(value))
        elif isinstance(value, msgspec.Struct):
            parts |= mutable_parts(value)
    return parts


def test_broker_addrs_are_there_even_when_empty():
    assert BrokerData(broker_name="b", cluster="c").encode() == b'{"brokerAddrs":{},"brokerName":"b","cluster":"c"}'


def test_go_tells_the_running_info_in_its_own_way():
    text = (
        '{"properties":{"PROP_CONSUMER_START_TIMESTAMP":"1"},"statusTable":{},"subscriptionSet":[{"classFilterMode":false,'
        '"topic":"orders","subString":"*","tagsSet":[],"codeSet":["65"],"subVersion":1,"expressionType":"TAG"}],'
        '"mqTable":{{"topic":"orders","brokerName":"rack1","queueId":0}:{"commitOffset":4,"dropped":true}}, '
        '"jstack":"goroutine 1\n\tmain.go" }'
    )
    info = ConsumerRunningInfo.decode(text.encode())
    assert info.mq_table[QUEUE].dropped
    assert info.mq_table[QUEUE].commit_offset == 4
    assert info.jstack == "goroutine 1\n\tmain.go"
    assert info.subscription_set[0].code_set == {65}


def test_go_tells_a_result_by_its_ordinal():
    text = b'{"order":false,"autoCommit":true,"consumeResult":4,"remark":"","spentTimeMills":3}'
    result = ConsumeMessageDirectlyResult.decode(text)
    assert result.consume_result is CMResult.CR_THROW_EXCEPTION
    assert result.remark == ""


def test_a_queue_as_key_may_be_json_in_a_string():
    text = '{"offsetTable":{"{\\"brokerName\\":\\"rack1\\",\\"queueId\\":\\"0\\",\\"topic\\":\\"orders\\"}":5}}'
    assert ResetOffsetBody.decode(text.encode()).offset_table == {QUEUE: 5}


def test_repeated_stats_come_by_ref():
    # as 4.9.7 writes a list that holds the same ConsumeStats twice
    text = (
        f'{{"consumeStatsList":[{{"g1":[{{"consumeTps":0.0,"offsetTable":{{{MQ}:{{"brokerOffset":9,"consumerOffset":5,'
        '"lastTimestamp":0}}},{"$ref":"$.consumeStatsList[0].g1[0]"}]},{"$ref":"$.consumeStatsList[0]"}],"totalDiff":0}'
    )
    stats = ConsumeStatsList.decode(text.encode())
    assert [
        entry.offset_table[QUEUE].broker_offset for groups in stats.consume_stats_list for entry in groups["g1"]
    ] == [
        9,
        9,
        9,
        9,
    ]
    assert b"$ref" not in stats.encode()


def test_a_ref_is_followed_even_where_nothing_is_required():
    text = b'{"statusTable":{"a":{"pullRT":1.5},"b":{"$ref":"$.statusTable.a"}}}'
    assert ConsumerRunningInfo.decode(text).status_table["b"].pull_rt == 1.5


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ('"5"', 5),
        ("5.9", 5),
        ('"5.0"', 5),
        ("true", 1),
        ('"-5"', -5),
        ("9223372036854775807", 2**63 - 1),
        ('""', None),
        ('"null"', None),
        ("null", None),
    ],
)
def test_an_integer_may_come_in_many_clothes(text, offset):
    table = DelayOffsetTable.decode(f'{{"offsetTable":{{1:{text}}}}}'.encode()).offset_table
    assert table == ({} if offset is None else {1: offset})


@pytest.mark.parametrize(
    ("text", "value"), [("5", "5"), ("1.5", "1.5"), ("true", "true"), ('{"x":[1]}', '{"x":[1]}'), ("null", None)]
)
def test_a_text_may_come_as_another_type(text, value):
    table = KVTable.decode(f'{{"table":{{"k":{text}}}}}'.encode()).table
    assert table == ({} if value is None else {"k": value})


@pytest.mark.parametrize(
    ("body_type", "text", "path"),
    [
        (HeartbeatData, "{}", r"HeartbeatData\.clientID: expected a value, found nothing"),
        (
            HeartbeatData,
            '{"clientID":"c","producerDataSet":[{"groupName":"g"},{}]}',
            r"producerDataSet\[1\]\.groupName",
        ),
        (
            HeartbeatData,
            '{"clientID":"c","producerDataSet":{}}',
            r"producerDataSet: expected an array, found an object",
        ),
        (HeartbeatData, "[]", "HeartbeatData: expected an object"),
        (HeartbeatData, "null", "HeartbeatData: expected an object"),
        (
            HeartbeatData,
            '{"clientID":"c","consumerDataSet":[{"groupName":"g","unitMode":7}]}',
            "unitMode: expected a bool",
        ),
        (
            HeartbeatData,
            '{"clientID":"c","heartbeatFingerprint":2147483648}',
            "heartbeatFingerprint: expected an integer",
        ),
        (HeartbeatData, '{"clientID":"c","heartbeatFingerprint":" 1"}', "heartbeatFingerprint: expected a number"),
        (DelayOffsetTable, '{"offsetTable":{"x":1}}', r"DelayOffsetTable\.offsetTable\['x'\]: expected a number"),
        (DelayOffsetTable, '{"offsetTable":{"1":9223372036854775808}}', "out of range|expected an integer"),
        (ResetOffsetBody, '{"offsetTable":[5]}', "offsetTable: expected an object, found an array"),
        (ResetOffsetBody, '{"offsetTable":[[{"topic":"t"},5]]}', "offsetTable: expected an object, found an array"),
        (ResetOffsetBody, '{"offsetTable":{{"topic":"t"}:5}}', r"brokerName: expected a value"),
        (ConsumeStats, '{"consumeTps":"1e999"}', "consumeTps: expected a number"),
        (ConsumeStats, '{"consumeTps":[]}', "consumeTps: expected a number"),
        (ConsumerConnection, '{"consumeType":[]}', "consumeType: expected a name or an ordinal"),
    ],
)
def test_what_fits_nowhere_is_refused_with_its_place(body_type, text, path):
    with pytest.raises(RemoteProtocolError, match=path):
        body_type.decode(text.encode())


@pytest.mark.parametrize("data", [None, b"", memoryview(b"")])
def test_no_body_is_an_error(data):
    with pytest.raises(RemoteProtocolError, match="TopicRouteData: no body"):
        TopicRouteData.decode(data)


def test_a_body_may_be_a_view():
    assert KVTable.decode(memoryview(b'x{"table":{"k":"v"}}')[1:]).table == {"k": "v"}


def test_deep_nesting_in_an_unknown_member_is_refused():
    with pytest.raises(RemoteProtocolError, match="nested deeper"):
        KVTable.decode(b'{"table":{},"x":' + b"[" * 500_000)


def test_a_text_that_is_not_unicode_is_not_sent():
    with pytest.raises(LocalProtocolError):
        KVTable({"k": "\ud800"}).encode()
    with pytest.raises(LocalProtocolError):
        ResetOffsetBody({MessageQueue(broker_name="\ud800", queue_id=0, topic="t"): 1}).encode()


def test_cpp_gets_the_reset_offsets_as_a_list():
    body = ResetOffsetBody({QUEUE: 100})
    text = b'{"offsetTable":[{"brokerName":"rack1","offset":100,"queueId":0,"topic":"orders"}]}'
    assert body.encode_for_cpp() == text
    assert ResetOffsetBody.decode(text) == body


def test_queues_sort_by_broker_and_id_within_a_topic():
    queues = [MessageQueue(broker_name=name, queue_id=id_, topic="t") for name in "ab" for id_ in (0, 2, 10)]
    backwards = queues[::-1]
    assert sorted(backwards) == queues
    assert len({*queues, *queues}) == 6
    assert str(queues[1]) == "MessageQueue [topic=t, brokerName=a, queueId=2]"
