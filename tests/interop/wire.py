"""Asking a server over a bare socket: what the tests compare with, so it shares no code with `pyromq`."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import struct
from dataclasses import dataclass
from typing import Any, Self

SEND_MESSAGE = 10
UPDATE_AND_CREATE_TOPIC = 17
PUT_KV_CONFIG = 100
GET_KV_CONFIG = 101
DELETE_KV_CONFIG = 102
GET_ROUTEINFO_BY_TOPIC = 105
GET_BROKER_CLUSTER_INFO = 106
GET_NAMESRV_CONFIG = 319
TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    ext: dict[str, str]
    body: bytes
    remark: str = ""

    @property
    def json(self) -> Any:
        """The body as JSON. Java leaves numeric keys unquoted."""
        return json.loads(re.sub(rb"([{,])(\d+):", rb'\1"\2":', self.body))


class Connection:
    """A connection that asks one thing after the other, in the words of a client of 4.9. For one thread."""

    def __init__(self, address: str, *, tls: bool = False) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_SECONDS)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # self-signed
            self._socket = context.wrap_socket(self._socket)
        self._stream = self._socket.makefile("rwb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what could not be sent to a peer that is gone
            self._stream.close()
        self._socket.close()

    def ask(self, code: int, body: bytes = b"", /, **ext: object) -> Answer:
        """Send one request with a JSON header and return the answer. OSError if the peer goes away before that."""
        self.say(code, body, **ext)
        return self.answer()

    def say(self, code: int, body: bytes = b"", /, **ext: object) -> None:
        """Send one request; its `answer` may come later."""
        fields = {name: str(value) for name, value in ext.items()}
        header = {"code": code, "language": "JAVA", "version": 409, "opaque": 7, "flag": 0, "extFields": fields}
        text = json.dumps(header).encode()
        self._stream.write(struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body)
        self._stream.flush()

    def answer(self) -> Answer:
        length, header_length = struct.unpack(">II", self._read(8))  # the type byte in front is 0 for JSON
        answered = json.loads(self._read(header_length))
        body = self._read(length - 4 - header_length)
        return Answer(answered["code"], answered.get("extFields") or {}, body, answered.get("remark") or "")

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise ConnectionResetError("the peer closed the connection")
        return data


def ask(address: str, code: int, *, tls: bool = False, **ext: object) -> Answer:
    """Ask one thing only."""
    with Connection(address, tls=tls) as connection:
        return connection.ask(code, **ext)


def brokers(address: str, *, tls: bool = False) -> dict[str, dict[str, str]]:
    """Which brokers the name server knows: name to broker id to address; none if it cannot be reached."""
    try:
        table = ask(address, GET_BROKER_CLUSTER_INFO, tls=tls).json["brokerAddrTable"]
    except OSError:
        return {}
    return {name: data["brokerAddrs"] for name, data in table.items() if data["brokerAddrs"]}


def route(address: str, topic: str) -> dict[str, tuple[str, int, int]]:
    """The route of a topic: broker name to address of the master, write queues and perm; empty if there is none."""
    answer = ask(address, GET_ROUTEINFO_BY_TOPIC, topic=topic)
    if answer.code != 0:
        return {}
    masters = {data["brokerName"]: data["brokerAddrs"]["0"] for data in answer.json["brokerDatas"]}
    return {
        data["brokerName"]: (masters[data["brokerName"]], data["writeQueueNums"], data["perm"])
        for data in answer.json["queueDatas"]
    }


def create_topic(connection: Connection, topic: str, queues: int, **ext: object) -> None:
    """Make a topic at a broker, as an operator does."""
    answer = connection.ask(
        UPDATE_AND_CREATE_TOPIC,
        topic=topic,
        defaultTopic="TBW102",
        readQueueNums=queues,
        writeQueueNums=queues,
        perm=6,
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order="false",
        **ext,
    )
    assert answer.code == 0, answer


def send(connection: Connection, topic: str, queue_id: int, body: bytes, **properties: str) -> int:
    """Send a message to a broker as a bare request; the queue offset that it got."""
    answer = connection.ask(SEND_MESSAGE, body, **message(topic, queue_id, **properties))
    assert answer.code == 0, answer
    return int(answer.ext["queueOffset"])


def message(topic: str, queue_id: int, **properties: str) -> dict[str, object]:
    """The fields of a request that sends a message."""
    return {
        "producerGroup": "p",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": queue_id,
        "sysFlag": 0,
        "bornTimestamp": 1_700_000_000_000,
        "flag": 7,
        "properties": "\x02".join(f"{name}\x01{value}" for name, value in properties.items()),
        "reconsumeTimes": 0,
        "unitMode": "false",
        "batch": "false",
    }
