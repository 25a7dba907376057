"""Registrations in their three forms."""

from __future__ import annotations

import struct
import zlib

import pytest

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
    body_crc32,
    register,
)

V3_0_10, V4_9_8, V5_0_0 = 36, 409, 413

# docs/spec/namesrv.md 4.1
COMPRESSED = bytes.fromhex(
    "78da63606050af564ace2fcd2b492d52b232d7512ac9cc4d2d2e49cc2d50b232343740805a0606064620960cc92fc84c7654303403213385604f"
    "3f771fd7f8104777a02453742c005a321360"
)
INFLATED = bytes.fromhex(
    "000000277b22636f756e746572223a372c2274696d657374616d70223a313730303030303030303030307d0000000100000019546f706963412031"
    "3620313620362053494e474c455f544147000000025b5d"
)
BODY = RegisterBrokerBody(
    topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=7, timestamp=1700000000000),
        topic_config_table={"TopicA": TopicConfig(topic_name="TopicA")},
    )
)


def with_length(field: bytes) -> bytes:
    return struct.pack(">i", len(field)) + field


def compressed(*topics: str, after: bytes = b"", filters: bytes = b"[]", version: bytes = b"{}") -> bytes:
    texts = [with_length(topic.encode()) for topic in topics]
    return zlib.compress(
        b"".join([with_length(version), struct.pack(">i", len(topics)), *texts, with_length(filters), after])
    )


def topics_of(body: RegisterBrokerBody) -> dict[str, TopicConfig]:
    return body.topic_config_serialize_wrapper.topic_config_table


def test_the_vector_decodes():
    assert zlib.decompress(COMPRESSED) == INFLATED
    assert RegisterBrokerBody.decode(COMPRESSED, V4_9_8, compressed=True) == BODY


def test_the_vector_is_what_we_write():
    encoded = BODY.encode_compressed(V4_9_8)
    assert zlib.decompress(encoded) == INFLATED
    assert encoded[:2] == COMPRESSED[:2]  # level 9


def test_the_vector_has_its_checksum():
    assert body_crc32(COMPRESSED) == 276702283
    assert body_crc32(memoryview(COMPRESSED)) == 276702283
    assert body_crc32(b"") == 0


def test_a_zlib_stream_is_inflated_even_when_the_header_forgot_to_say_so():
    assert RegisterBrokerBody.decode(COMPRESSED, V5_0_0) == BODY


def test_from_5_0_on_static_topics_and_attributes_are_written():
    topic = TopicConfig(topic_name="T", attributes={"message.type": "FIFO"})
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(topic_config_table={"T": topic})
    )
    new, old = zlib.decompress(body.encode_compressed(V5_0_0)), zlib.decompress(body.encode_compressed(V4_9_8))
    assert b'T 16 16 6 SINGLE_TAG {"message.type":"FIFO"}' in new
    assert new.endswith(b"[]" + bytes(4))
    assert b"FIFO" not in old
    assert old.endswith(b"[]")
    assert RegisterBrokerBody.decode(body.encode_compressed(V5_0_0), V5_0_0) == body


@pytest.mark.parametrize(
    ("text", "attributes"),
    [
        ("T 8 4 6 MULTI_TAG", {}),
        ("T 8 4 6 MULTI_TAG ", {}),
        ("T 8 4 6 MULTI_TAG {}", {}),
        ('T 8 4 6 MULTI_TAG {"a":"b c"}', {"a": "b c"}),
        ("T 8 4 6 MULTI_TAG no json at all", {}),
        ("T 8 4 6 MULTI_TAG [1]", {}),
    ],
)
def test_a_topic_has_five_tokens_or_more(text, attributes):
    body = RegisterBrokerBody.decode(compressed(text))
    assert topics_of(body) == {
        "T": TopicConfig(
            topic_name="T",
            read_queue_nums=8,
            write_queue_nums=4,
            perm=6,
            topic_filter_type=TopicFilterType.MULTI_TAG,
            attributes=attributes,
        )
    }


def test_an_unknown_filter_type_is_the_usual_one():
    body = RegisterBrokerBody.decode(compressed("T 8 4 6 SOME_TAG"))
    assert topics_of(body)["T"].topic_filter_type is TopicFilterType.SINGLE_TAG


def test_static_topics_are_skipped_and_may_be_missing():
    mapping = struct.pack(">i", 1) + with_length(b'{"topic":"S"}')
    for after in (b"", bytes(4), mapping):
        assert list(topics_of(RegisterBrokerBody.decode(compressed("T 8 4 6 SINGLE_TAG", after=after), V5_0_0))) == [
            "T"
        ]
    assert topics_of(RegisterBrokerBody.decode(compressed(after=b"anything"), V4_9_8)) == {}


@pytest.mark.parametrize(
    "data",
    [
        COMPRESSED[:-5],
        COMPRESSED[:2],
        b"x",
        b"x" * 100,
        zlib.compress(b""),
        zlib.compress(INFLATED[:-1]),
        zlib.compress(INFLATED[:50]),
        zlib.compress(struct.pack(">i", -1)),
        zlib.compress(struct.pack(">i", 2**31 - 1)),
        zlib.compress(with_length(b"{}") + struct.pack(">i", 2**31 - 1)),
        compressed("T 8 4 6"),
        compressed("T 8 4 x SINGLE_TAG"),
        compressed("T  8 4 6 SINGLE_TAG"),
        compressed("T 8 4 9999999999 SINGLE_TAG"),
        compressed(" 8 4 6 SINGLE_TAG"),
        compressed(""),
        compressed(filters=b"{}"),
        compressed(filters=b"[1]"),
        compressed(filters=b"["),
        compressed(version=b"[]"),
        compressed(version=b""),
        compressed(after=b"\x00\x00"),
        compressed(after=struct.pack(">i", 2)),
        compressed(after=struct.pack(">ii", 1, 5)),
    ],
)
def test_what_is_broken_is_refused(data):
    with pytest.raises(RemoteProtocolError):
        RegisterBrokerBody.decode(data, V5_0_0)


def test_a_negative_length_does_not_lead_back():
    with pytest.raises(RemoteProtocolError, match="negative length -4"):
        RegisterBrokerBody.decode(zlib.compress(struct.pack(">i", -4)))


def test_a_body_that_claims_to_be_compressed_must_be():
    with pytest.raises(RemoteProtocolError, match="not compressed"):
        RegisterBrokerBody.decode(b"{}", V4_9_8, compressed=True)


def test_a_bomb_is_not_inflated(monkeypatch):
    monkeypatch.setattr(register, "MAX_INFLATED", 1 << 20)
    with pytest.raises(RemoteProtocolError, match="more than 1048576 bytes"):
        RegisterBrokerBody.decode(zlib.compress(bytes(2 << 20)))


def test_before_3_0_11_the_body_is_the_topics_alone():
    bare = BODY.topic_config_serialize_wrapper.encode()
    body = RegisterBrokerBody.decode(bare, V3_0_10)
    assert topics_of(body) == topics_of(BODY)
    assert body.filter_server_list is None


@pytest.mark.parametrize("data", [None, b"", b"{}", b'{"topicConfigSerializeWrapper":null}'])
def test_without_topics_the_version_is_zero(data):
    body = RegisterBrokerBody.decode(data)
    assert topics_of(body) == {}
    assert body.topic_config_serialize_wrapper.data_version == DataVersion(counter=0, timestamp=0, state_version=0)
    assert body.filter_server_list == []


@pytest.mark.parametrize(("text", "servers"), [("null", None), ("[]", []), ('["f:1"]', ["f:1"])])
def test_no_filter_servers_and_an_empty_list_of_them_differ(text, servers):
    body = RegisterBrokerBody.decode(f'{{"filterServerList":{text}}}'.encode())
    assert body.filter_server_list == servers
    assert RegisterBrokerBody.decode(f"{{filterServerList:{text}}}".encode()) == body
    assert RegisterBrokerBody.decode(body.encode()) == body
    assert RegisterBrokerBody.decode(body.encode_compressed(V4_9_8)) == body


def test_what_5x_brokers_add_is_ignored():
    text = (
        '{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,"stateVersion":2,"timestamp":1},'
        '"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":9},"topicConfigTable":{"orders":{"attributes":'
        '{"message.type":"NORMAL"},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":'
        '"orders","topicSysFlag":0,"writeQueueNums":8}},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":'
        '{"s":{"currIdMap":{0:1}}}}}'
    )
    body = RegisterBrokerBody.decode(text.encode(), V5_0_0)
    assert body.topic_config_serialize_wrapper.data_version == DataVersion(counter=3, state_version=2, timestamp=1)
    assert topics_of(body)["orders"].attributes == {"message.type": "NORMAL"}


def test_a_missing_state_version_is_zero():
    assert DataVersion.decode(b'{"counter":1,"timestamp":2}') == DataVersion.decode(
        b'{"counter":1,"stateVersion":0,"timestamp":2}'
    )


@pytest.mark.parametrize("name", ["a b", "\ud800"])
def test_a_topic_that_cannot_be_told_is_not_sent(name):
    topics = TopicConfigSerializeWrapper(topic_config_table={name: TopicConfig(topic_name=name)})
    with pytest.raises(LocalProtocolError):
        RegisterBrokerBody(topic_config_serialize_wrapper=topics).encode_compressed(V4_9_8)
