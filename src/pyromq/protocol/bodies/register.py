"""A broker's registration (103), and topics as brokers keep and exchange them (21).

The body of 103 comes in three forms: JSON; from brokers before 3.0.11 the JSON of the topics alone; and compressed, a
zlib stream of

    i32 length, DataVersion as JSON
    i32 number of topics
        each: i32 length, text `name readQueueNums writeQueueNums perm topicFilterType`, from 5.x also the attributes
    i32 length, JSON array of the filter servers
    from 5.0 on: i32 number of static topics
        each: i32 length, JSON

Integers are big-endian. docs/spec/namesrv.md 4.1.
"""

from __future__ import annotations

import re
import struct
import zlib
from enum import Enum
from typing import Self

import msgspec

from pyromq.errors import LocalProtocolError, RemoteProtocolError

from .. import fastjson
from .base import I32, I64, Body, written
from .conversion import convert

MAX_INFLATED = 64 * 1024 * 1024
# MQVersion ordinals
_V3_0_11 = 37  # from here on the topics are wrapped
_V4_9_8 = 409
_V5_0_0 = 413  # from here on a compressed body has attributes and static topics
_ZLIB_FIRST_BYTE = b"\x78"
_LENGTH = struct.Struct(">i")
_NUMBER = re.compile(r"-?[0-9]{1,10}")


class TopicFilterType(Enum):
    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class DataVersion(Body, frozen=True, kw_only=True):
    """The version of a table; equal when all members are. A `state_version` that is absent (before 5.x) is 0."""

    counter: I64 = written(0)
    state_version: I64 = 0
    timestamp: I64 = written(0)


class TopicConfig(Body, frozen=True, kw_only=True):
    """A topic on a broker. perm bits: 4 read, 2 write, 1 inherit. `attributes` are of 5.x."""

    attributes: dict[str, str] = msgspec.field(default_factory=dict)
    order: bool = written(False)
    perm: I32 = written(6)
    read_queue_nums: I32 = written(16)
    topic_filter_type: TopicFilterType = written(TopicFilterType.SINGLE_TAG)
    topic_name: str
    topic_sys_flag: I32 = written(0)
    write_queue_nums: I32 = written(16)


class TopicConfigSerializeWrapper(Body, frozen=True, kw_only=True):
    """21, the topics of a registration, and topics.json.

    `deleted_topics` is ours, in answers to 21 only: where the log ended when a topic was deleted.
    """

    data_version: DataVersion = written(DataVersion())
    deleted_topics: dict[str, I64] = msgspec.field(default_factory=dict)
    topic_config_table: dict[str, TopicConfig] = written({})


class RegisterBrokerBody(Body, frozen=True, kw_only=True):
    """103. A `filter_server_list` of None leaves the name server's list alone, an empty one clears it."""

    filter_server_list: list[str] | None = written([])
    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = msgspec.field(
        default_factory=TopicConfigSerializeWrapper
    )

    def encode_compressed(self, version: int) -> bytes:
        """The compressed form, for a sender that calls itself `version` in its frames. Carries no order, no flag."""
        wrapper = self.topic_config_serialize_wrapper
        with_5x = version >= _V5_0_0
        topics = [_topic_text(topic, with_attributes=with_5x) for topic in wrapper.topic_config_table.values()]
        parts = [
            _with_length(wrapper.data_version.encode()),
            _LENGTH.pack(len(topics)),
            *map(_with_length, topics),
            _with_length(fastjson.dumps(self.filter_server_list)),
            _LENGTH.pack(0) if with_5x else b"",
        ]
        return zlib.compress(b"".join(parts), 9)

    @classmethod
    def decode(cls, data: bytes | memoryview | None, version: int = _V4_9_8, compressed: bool = False) -> Self:
        """Decode the registration of a broker of `version`, in any form. No body means no topics and DataVersion 0.

        A zlib stream is inflated even if the header does not say `compressed`: 5.5 brokers forget to.
        """
        if not data:
            return cls()
        data = bytes(data)
        if compressed or data.startswith(_ZLIB_FIRST_BYTE):
            return cls._decode_inflated(_inflate(data), version)
        if version < _V3_0_11:
            topics = TopicConfigSerializeWrapper.decode(data)
            return cls(filter_server_list=None, topic_config_serialize_wrapper=topics)
        return super().decode(data)

    @classmethod
    def _decode_inflated(cls, data: bytes, version: int) -> Self:
        fields = _Fields(data)
        data_version = DataVersion.decode(fields.next())
        topics = [_topic_from_text(fields.next()) for _ in range(fields.count())]
        filter_servers = _filter_servers(fields.next())
        if version >= _V5_0_0 and not fields.at_end:
            for _ in range(fields.count()):  # static topics: not served, yet a broken section is a broken body
                fields.next()
        wrapper = TopicConfigSerializeWrapper(
            data_version=data_version, topic_config_table={topic.topic_name: topic for topic in topics}
        )
        return cls(filter_server_list=filter_servers, topic_config_serialize_wrapper=wrapper)


def body_crc32(body: bytes | memoryview) -> int:
    """The `bodyCrc32` of a registration whose body is `body` as sent: CRC-32 without its top bit."""
    return zlib.crc32(body) & 0x7FFFFFFF


class _Fields:
    """The fields of an inflated body, one after the other. A claimed length is never more than a claim."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pos = 0

    @property
    def at_end(self) -> bool:
        return self._pos == len(self._data)

    def count(self) -> int:
        number = int.from_bytes(self._take(_LENGTH.size), "big", signed=True)
        if number < 0:
            raise RemoteProtocolError(f"RegisterBrokerBody: negative length {number}")
        return number

    def next(self) -> bytes:
        return self._take(self.count())

    def _take(self, size: int) -> bytes:
        end = self._pos + size
        if end > len(self._data):
            raise RemoteProtocolError(f"RegisterBrokerBody: ends within {size} bytes at {self._pos}")
        taken = self._data[self._pos : end]
        self._pos = end
        return taken


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, MAX_INFLATED)
    except zlib.error as exc:
        raise RemoteProtocolError(f"RegisterBrokerBody: not compressed: {exc}") from exc
    if not inflater.eof:
        raise RemoteProtocolError(f"RegisterBrokerBody: incomplete, or inflates to more than {MAX_INFLATED} bytes")
    return inflated


def _with_length(field: bytes) -> bytes:
    return _LENGTH.pack(len(field)) + field


def _filter_servers(data: bytes) -> list[str] | None:
    servers = fastjson.loads(data)
    if servers is None:
        return None
    if not isinstance(servers, list) or not all(isinstance(server, str) for server in servers):
        raise RemoteProtocolError("RegisterBrokerBody: the filter servers are no array of texts")
    return servers


def _topic_text(topic: TopicConfig, *, with_attributes: bool) -> bytes:
    if " " in topic.topic_name:
        raise LocalProtocolError(f"topic {topic.topic_name!r} has a blank in its name and cannot be registered so")
    text = (
        f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm}"
        f" {topic.topic_filter_type.value}"
    )
    try:
        encoded = text.encode()
    except UnicodeEncodeError as exc:
        raise LocalProtocolError(f"topic {topic.topic_name!r} is not Unicode: {exc}") from exc
    # The 4.9 decoder fails on a sixth token.
    return encoded + b" " + fastjson.dumps(topic.attributes) if with_attributes and topic.attributes else encoded


def _topic_from_text(data: bytes) -> TopicConfig:
    name, *rest = data.decode("utf-8", "replace").split(" ", 5)
    if not name or len(rest) < 4 or not all(map(_NUMBER.fullmatch, rest[:3])):
        raise RemoteProtocolError(f"RegisterBrokerBody: {data[:80]!r} is no topic")
    members: dict[str, object] = {
        "topicName": name,
        "readQueueNums": rest[0],
        "writeQueueNums": rest[1],
        "perm": rest[2],
        "topicFilterType": rest[3],
        "attributes": _attributes(rest[4]) if len(rest) > 4 else None,
    }
    return convert(TopicConfig, members)


def _attributes(text: str) -> object:
    """What follows the five tokens, if it is attributes; 5.x ignores it otherwise."""
    try:
        attributes = fastjson.loads(text)
    except RemoteProtocolError:
        return None
    return attributes if isinstance(attributes, dict) else None
