"""Asking a name server over a bare socket: what the tests compare with, so it shares no code with `pyromq`."""

from __future__ import annotations

import json
import re
import socket
import ssl
import struct
from dataclasses import dataclass
from typing import Any

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

    @property
    def json(self) -> Any:
        """The body as JSON. Java leaves numeric keys unquoted."""
        return json.loads(re.sub(rb"([{,])(\d+):", rb'\1"\2":', self.body))


def ask(address: str, code: int, *, tls: bool = False, **ext: str) -> Answer:
    """Send one request with a JSON header and return the answer."""
    header = {"code": code, "language": "JAVA", "version": 409, "opaque": 7, "flag": 0, "extFields": ext}
    text = json.dumps(header).encode()
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_SECONDS) as connection:
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # self-signed
            connection = context.wrap_socket(connection)
        with connection, connection.makefile("rwb") as stream:
            stream.write(struct.pack(">II", 4 + len(text), len(text)) + text)
            stream.flush()
            length, header_length = struct.unpack(">II", stream.read(8))  # the type byte in front is 0 for JSON
            answered = json.loads(stream.read(header_length))
            return Answer(answered["code"], answered.get("extFields") or {}, stream.read(length - 4 - header_length))


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
