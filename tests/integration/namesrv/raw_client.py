"""A client that knows the wire by itself, not through the code under test, and the words of the scenarios on it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import struct
from dataclasses import dataclass, field
from typing import Any

PATIENCE = 30.0  # seconds before a test gives up; nothing waits so long when all is well

_opaques = itertools.count(1)


@dataclass(frozen=True)
class Reply:
    kind: int
    header: dict[str, Any]
    body: bytes | None

    @property
    def code(self):
        return self.header.get("code", 0)

    @property
    def remark(self):
        return self.header.get("remark")

    @property
    def ext(self):
        return self.header.get("extFields") or {}

    @property
    def json(self):
        assert self.body is not None, self.header
        return json.loads(self.body)


def frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def json_request(code, ext=None, body=b"", *, version=409, flag=0, opaque=None):
    header: dict[str, Any] = {"code": code, "flag": flag, "language": "JAVA", "version": version}
    header["opaque"] = next(_opaques) if opaque is None else opaque
    if ext is not None:
        header["extFields"] = {key: str(value) for key, value in ext.items()}
    return frame(json.dumps(header).encode(), body)


def binary_request(code, ext, body=b"", *, version=409, flag=0, opaque=7):
    entries = b"".join(
        struct.pack(">h", len(key)) + key.encode() + struct.pack(">i", len(value)) + value.encode()
        for key, value in ext.items()
    )
    header = struct.pack(">hbhiii", code, 0, version, opaque, flag, 0) + struct.pack(">i", len(entries)) + entries
    return frame(header, body, kind=1)


def _binary_header(data: bytes) -> dict[str, Any]:
    code, _, version, opaque, flag, size = struct.unpack_from(">hbhiii", data)
    return {
        "code": code,
        "version": version,
        "opaque": opaque,
        "flag": flag,
        "remark": data[17 : 17 + size].decode() or None,
    }


@dataclass
class RawClient:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    seen: list[Reply] = field(default_factory=list)

    @classmethod
    async def connect(cls, port: int, host: str = "127.0.0.1") -> RawClient:
        return cls(*await asyncio.open_connection(host, port))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def receive(self) -> Reply:
        async with asyncio.timeout(PATIENCE):
            size, word = struct.unpack(">iI", await self.reader.readexactly(8))
            rest = await self.reader.readexactly(size - 4)
        kind, length = word >> 24, word & 0xFFFFFF
        header = _binary_header(rest[:length]) if kind else json.loads(rest[:length])
        reply = Reply(kind, header, rest[length:] or None)
        self.seen.append(reply)
        return reply

    async def call(self, code, ext=None, body=b"", **more) -> Reply:
        opaque = next(_opaques)
        self.send(json_request(code, ext, body, opaque=opaque, **more))
        reply = await self.receive()
        assert reply.header["opaque"] == opaque
        assert reply.header["flag"] & 1
        return reply

    async def closed_by_server(self) -> bytes:
        """Wait for the end of the stream; gives what came before it."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    async def close(self) -> None:
        """Close, and wait until the server has taken notice: it closes its side only after that."""
        if not self.writer.is_closing() and self.writer.can_write_eof():  # not with TLS
            self.writer.write_eof()
            await self.closed_by_server()
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def topic_config(name, perm=6, flag=0, queues=4):
    return {
        "order": False,
        "perm": perm,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": flag,
        "writeQueueNums": queues,
    }


def topics_wrapper(version, topics, **data_version):
    topics = topics if isinstance(topics, dict) else {name: topic_config(name) for name in topics}
    return {
        "dataVersion": {"counter": version, "timestamp": 1, **data_version},
        "topicConfigTable": topics,
    }


def register_body(version, topics, **data_version):
    wrapper = topics_wrapper(version, topics, **data_version)
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()


def identity(name, broker_id, address, cluster="c1"):
    return {"brokerName": name, "brokerAddr": address, "clusterName": cluster, "brokerId": broker_id}


class Scenes:
    """REG, ROUTE and the rest of the notation of docs/spec/namesrv.md 8, on one name server."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.clients: list[RawClient] = []
        self.brokers: dict[str, RawClient] = {}

    async def connect(self) -> RawClient:
        client = await RawClient.connect(self.port)
        self.clients.append(client)
        return client

    async def reg(
        self,
        name="b",
        broker_id=0,
        address="10.0.0.1:10911",
        version=1,
        topics=("T",),
        *,
        on: RawClient | None = None,
        cluster="c1",
        ext=None,
        body=None,
        frame_version=409,
        **data_version,
    ) -> Reply:
        """REG. On its own connection, kept under the address, unless `on` names one."""
        client = on or await self.connect()
        self.brokers[address] = client
        host, _, port = address.partition(":")
        header = identity(name, broker_id, address, cluster)
        header |= {"haServerAddr": f"{host}:{int(port) + 1}"} | (ext or {})
        content = register_body(version, topics, **data_version) if body is None else body
        return await client.call(103, header, content, version=frame_version)

    async def call(self, code, ext=None, body=b"", **more) -> Reply:
        """A request of somebody who is no broker, on a connection of its own."""
        client = self.brokers.get("")
        if client is None:
            client = self.brokers[""] = await self.connect()
        return await client.call(code, ext, body, **more)

    async def route(self, topic="T", **more) -> Reply:
        return await self.call(105, {"topic": topic}, **more)

    async def addresses(self, topic="T") -> dict[str, dict[str, str]] | None:
        reply = await self.route(topic)
        if reply.code == 17:
            return None
        assert reply.code == 0, reply
        return {data["brokerName"]: data["brokerAddrs"] for data in reply.json["brokerDatas"]}

    async def perm(self, topic="T") -> int:
        [queues] = (await self.route(topic)).json["queueDatas"]
        perm: int = queues["perm"]
        return perm

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
