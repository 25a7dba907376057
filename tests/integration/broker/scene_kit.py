"""A broker over real sockets, and a client that knows the wire by itself: the stage of the scenarios of
docs/spec/broker.md 14.

Nothing of the code under test is used to make requests or to read answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import struct
import time
from dataclasses import dataclass, field
from typing import Any

from tests.integration.broker.life_kit import new_broker
from tests.integration.namesrv.raw_client import PATIENCE, RawClient, Reply, frame

from pyromq.store import StoreConfig
from pyromq.store.check.store_check import Severity, check_store

TOPIC = "T"
GROUP = "g"

COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4

_PATIENCE = 5.0
_opaques = itertools.count(1)

_RECORD = struct.Struct(">iiiiiqqiq4siq4siiqi")
_QUEUE_KEY = re.compile(r'([{,])\{"brokerName":"[^"]*","queueId":(\d+),"topic":"([^"]*)"\}:')
_NUMBER_KEY = re.compile(r"([{,])(-?\d+):")


def loose_json(body: bytes | None) -> Any:
    """What FastJSON wrote: a queue as a key becomes the text `topic@queueId`, a number as a key its text."""
    assert body is not None
    text = _QUEUE_KEY.sub(r'\1"\3@\2":', body.decode())
    return json.loads(_NUMBER_KEY.sub(r'\1"\2":', text))


@dataclass(frozen=True)
class Message:
    """A record as it lies in the log."""

    topic: str
    queue_id: int
    offset: int
    physical: int
    body: bytes
    properties: dict[str, str]
    reconsume_times: int
    store_time: int
    sys_flag: int


def messages_in(body: bytes | None) -> list[Message]:
    messages = []
    data, at = body or b"", 0
    while at < len(data):
        fields = _RECORD.unpack_from(data, at)
        size, _, _, queue_id, _, offset, physical, sys_flag, _, _, _, store_time, _, _, times, _, length = fields
        start = at + _RECORD.size
        content = data[start : start + length]
        topic_at = start + length
        topic_end = topic_at + 1 + data[topic_at]
        (width,) = struct.unpack_from(">h", data, topic_end)
        text = data[topic_end + 2 : topic_end + 2 + width].decode()
        assert topic_end + 2 + width == at + size
        messages.append(
            Message(
                data[topic_at + 1 : topic_end].decode(),
                queue_id,
                offset,
                physical,
                content,
                parse_properties(text),
                times,
                store_time,
                sys_flag,
            )
        )
        at += size
    return messages


def parse_properties(text: str) -> dict[str, str]:
    pairs = (pair.partition("\x01") for pair in text.split("\x02") if pair)
    return {name: value for name, _, value in pairs}


def properties_text(**properties: object) -> str:
    return "\x02".join(f"{name}\x01{value}" for name, value in properties.items())


def send_ext(
    topic=TOPIC, queue_id: object = 0, *, default_topic="TBW102", queues: object = 4, **more
) -> dict[str, str]:
    """The header of 310. `properties` may be a dictionary; other names are letters."""
    properties = more.pop("properties", None)
    ext = {"a": "producers", "b": topic, "c": default_topic, "d": queues, "e": queue_id, "f": 0, "g": 1000, "h": 0}
    if properties:
        ext["i"] = properties if isinstance(properties, str) else properties_text(**properties)
    return {name: str(value) for name, value in (ext | {"j": 0, "k": "false", "m": "false"} | more).items()}


def pull_ext(topic=TOPIC, queue_id=0, offset=0, *, group=GROUP, count=32, flag=SUBSCRIPTION, **more) -> dict[str, str]:
    ext = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": offset,
        "maxMsgNums": count,
        "sysFlag": flag,
        "commitOffset": 0,
        "suspendTimeoutMillis": 15_000,
        "subVersion": 0,
    }
    if flag & SUBSCRIPTION:
        ext |= {"subscription": "*", "expressionType": "TAG"}
    return {name: str(value) for name, value in (ext | more).items()}


def heartbeat(client_id, groups=(GROUP,), topics=(TOPIC,), *, sub_version=1, tags="*", model="CLUSTERING") -> bytes:
    wanted = [
        {"classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": tags, "tagsSet": []}
        | {"subVersion": sub_version, "topic": topic}
        for topic in topics
    ]
    consumers = [
        {"consumeType": "CONSUME_PASSIVELY", "groupName": group, "messageModel": model, "unitMode": False}
        | {"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": wanted}
        for group in groups
    ]
    return json.dumps({"clientID": client_id, "consumerDataSet": consumers, "producerDataSet": []}).encode()


def batch_body(*bodies: bytes, properties: str = "") -> bytes:
    text = properties.encode()
    return b"".join(
        struct.pack(">iiiii", 22 + len(body) + len(text), 0, 0, 0, len(body))
        + body
        + struct.pack(">h", len(text))
        + text
        for body in bodies
    )


@dataclass
class Client(RawClient):
    """A raw client that keeps what the broker asks of it apart from the answers to its own requests."""

    asked: list[Reply] = field(default_factory=list)
    answered: dict[int, Reply] = field(default_factory=dict)

    def ask(self, code, ext=None, body=b"", *, flag=0, version=409) -> int:
        """Send a request without waiting; gives what its answer will be called by."""
        opaque = next(_opaques)
        header = {"code": code, "flag": flag, "language": "JAVA", "opaque": opaque, "version": version}
        if ext is not None:
            header["extFields"] = {name: str(value) for name, value in ext.items()}
        self.send(frame(json.dumps(header).encode(), body))
        return opaque

    async def call(self, code, ext=None, body=b"", **more) -> Reply:
        return await self.answer_to(self.ask(code, ext, body, **more))

    async def answer_to(self, opaque) -> Reply:
        while opaque not in self.answered:
            await self._take_one()
        return self.answered.pop(opaque)

    async def request(self, code=None) -> Reply:
        """The next thing that the broker asks, or the next of this kind."""
        while True:
            for number, command in enumerate(self.asked):
                if code in (None, command.code):
                    return self.asked.pop(number)
            await self._take_one()

    def answer(self, request: Reply, body=b"", code=0) -> None:
        header = {"code": code, "flag": 1, "language": "JAVA", "opaque": request.header["opaque"], "version": 409}
        self.send(frame(json.dumps(header).encode(), body))

    async def _take_one(self):
        command = await self.receive()
        if command.header["flag"] & 1:
            self.answered[command.header["opaque"]] = command
        else:
            self.asked.append(command)

    async def is_silent(self, opaque) -> bool:
        """Whether a request has no answer yet, although one that came after it has."""
        await self.call(26)
        return opaque not in self.answered

    async def until(self, condition):
        """Ask again and again, with a coroutine function, until the answer is true."""
        async with asyncio.timeout(PATIENCE):
            while True:
                if result := await condition():
                    return result
                await asyncio.sleep(0.005)

    # The words of the scenarios

    async def put(self, body=b"hello", topic=TOPIC, queue_id: object = 0, **more) -> Reply:
        """Send a message; whatever the answer is."""
        return await self.call(310, send_ext(topic, queue_id, **more), body)

    async def sent(self, body=b"hello", topic=TOPIC, queue_id: object = 0, **more) -> Reply:
        """Send a message, which must be taken."""
        reply = await self.put(body, topic, queue_id, **more)
        assert reply.code == 0, reply
        return reply

    async def pull(self, topic=TOPIC, queue_id=0, offset=0, **more) -> Reply:
        return await self.call(11, pull_ext(topic, queue_id, offset, **more))

    async def read(self, topic=TOPIC, queue_id=0, offset=0, **more) -> list[Message]:
        """The messages from `offset` on; none if there are none."""
        reply = await self.pull(topic, queue_id, offset, **more)
        assert reply.code in (0, 19), reply
        return messages_in(reply.body)

    async def first(self, topic=TOPIC, queue_id=0, offset=0, **more) -> Message:
        """Wait for the message at `offset`."""
        flag = SUBSCRIPTION | SUSPEND
        while True:
            reply = await self.pull(topic, queue_id, offset, flag=flag, suspendTimeoutMillis=10_000, **more)
            if reply.code == 0:
                return messages_in(reply.body)[0]
            assert reply.code in (17, 19), reply
            await asyncio.sleep(0.01)

    async def topics(self) -> dict[str, Any]:
        table: dict[str, Any] = (await self.call(21)).json["topicConfigTable"]
        return table

    async def create_topic(self, topic=TOPIC, read=4, write=4, perm=6) -> Reply:
        ext = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": read, "writeQueueNums": write, "perm": perm}
        return await self.call(17, ext | {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"})

    async def configure(self, text: str) -> Reply:
        return await self.call(25, body=text.encode())

    async def beat(self, client_id="c1", groups=(GROUP,), topics=(TOPIC,), **more) -> None:
        assert (await self.call(34, body=heartbeat(client_id, groups, topics, **more))).code == 0

    async def members(self, group=GROUP) -> list[str]:
        reply = await self.call(38, {"consumerGroup": group})
        ids: list[str] = reply.json["consumerIdList"] if reply.code == 0 else []
        return ids

    async def commit(self, offset, topic=TOPIC, queue_id=0, group=GROUP) -> None:
        ext = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
        assert (await self.call(15, ext)).code == 0

    async def committed(self, topic=TOPIC, queue_id=0, group=GROUP) -> Reply:
        return await self.call(14, {"consumerGroup": group, "topic": topic, "queueId": queue_id})

    async def max_offset(self, topic=TOPIC, queue_id=0) -> int:
        return int((await self.call(30, {"topic": topic, "queueId": queue_id})).ext["offset"])

    async def send_back(self, physical, delay_level=0, group=GROUP, **more) -> Reply:
        ext = {"offset": physical, "group": group, "delayLevel": delay_level, "originTopic": TOPIC}
        return await self.call(36, ext | more)

    async def lock(self, client_id, *queue_ids, group=GROUP, code=41) -> list[int]:
        queues = [{"brokerName": "broker-a", "queueId": queue_id, "topic": TOPIC} for queue_id in queue_ids]
        body = json.dumps({"clientId": client_id, "consumerGroup": group, "mqSet": queues}).encode()
        reply = await self.call(code, body=body)
        assert reply.code == 0, reply
        return sorted(queue["queueId"] for queue in reply.json["lockOKMQSet"]) if code == 41 else []


class Scene:
    """One running broker."""

    def __init__(self, broker, clients: contextlib.AsyncExitStack) -> None:
        self.broker = broker
        self.port: int = broker.port
        self._clients = clients

    async def connect(self) -> Client:
        client = await Client.connect(self.port)
        assert isinstance(client, Client)
        self._clients.push_async_callback(client.close)
        return client


@contextlib.asynccontextmanager
async def running(folder, *sets, namesrv_addr=None, disk=None):
    """A broker in `folder`. When it has ended, no task of it is left and its store is in order.

    Other brokers of the test may run on, so a task may also be theirs, with an answer for the one that went.
    """
    before = asyncio.all_tasks()
    async with (
        new_broker(folder, *sets, namesrv_addr=namesrv_addr, disk=disk) as broker,
        contextlib.AsyncExitStack() as clients,
    ):
        config = broker._live.settings[StoreConfig]
        yield Scene(broker, clients)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=_PATIENCE)
    assert not left, left
    wrong = [finding for finding in check_store(folder, config) if finding.severity is not Severity.NOTE]
    assert not wrong, wrong


class Shift:
    """A clock that goes like any other, only ahead of it by as much as a test likes. Gives epoch milliseconds."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + int(self._ahead * 1000)

    def advance(self, seconds: float) -> None:
        self._ahead += seconds
