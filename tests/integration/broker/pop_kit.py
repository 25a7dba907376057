"""The words of POP for the raw client of the scenarios: nothing of the code under test is used."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.integration.broker.scene_kit import GROUP, TOPIC, messages_in

if TYPE_CHECKING:
    from tests.integration.broker.scene_kit import Client, Message
    from tests.integration.namesrv.raw_client import Reply

POP, ACK, PEEK, CHANGE, NOTIFY, POLLING, BATCH_ACK = 200050, 200051, 200052, 200053, 200054, 200055, 200151
RETRY = f"%RETRY%{GROUP}_{TOPIC}"
RETRY_V2 = f"%RETRY%{GROUP}+{TOPIC}"
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
QUICK = ("timerPrecisionMs=100", "reviveInterval=10")


@dataclass(frozen=True)
class Popped:
    """A message, and the handle that clients make for it."""

    message: Message
    handle: str

    @property
    def topic(self) -> str:
        """The topic of the queue that it was popped from."""
        return {"0": TOPIC, "1": RETRY, "2": RETRY_V2}[self.handle.split(" ")[4]]


def pop_ext(queue_id=-1, *, count=32, invisible=60_000, poll=0, **more) -> dict[str, str]:
    ext = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": queue_id,
        "maxMsgNums": count,
        "invisibleTime": invisible,
        "pollTime": poll,
        "bornTime": int(time.time() * 1000),
        "initMode": 0,
        "expType": "TAG",
        "exp": "*",
    }
    return {name: str(value) for name, value in (ext | more).items()}


def popped(reply: Reply) -> list[Popped]:
    """The messages of an answer with their handles, put together as the Java client does."""
    if reply.code != 0:
        return []
    ext = reply.ext
    starts = dict(_pairs(ext["startOffsetInfo"]))
    offsets = {place: list(map(int, text.split(","))) for place, text in _pairs(ext["msgOffsetInfo"])}
    found = []
    for message in messages_in(reply.body):
        handle = message.properties.get("POP_CK")
        if handle is None:
            place = ("0", str(message.queue_id))
            assert message.offset in offsets[place]
            handle = f"{starts[place]} {ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']} "
            handle += f"0 broker-a {message.queue_id} {message.offset}"
        found.append(Popped(message, handle))
    assert sum(map(len, offsets.values())) == len(found)
    return found


def _pairs(info: str) -> list[tuple[tuple[str, str], str]]:
    return [((mark, queue), value) for mark, queue, value in (part.split(" ") for part in info.split(";"))]


async def pop(client: Client, queue_id=-1, **more) -> list[Popped]:
    """Pop what there is; nothing if there is nothing, soon or within the `poll` time."""
    reply = await client.call(POP, pop_ext(queue_id, **more))
    assert reply.code in (0, 210), reply
    return popped(reply)


def ack_ext(one: Popped, **more) -> dict[str, str]:
    parts = one.handle.split(" ")
    ext = {"consumerGroup": GROUP, "topic": one.topic, "queueId": parts[6], "extraInfo": one.handle, "offset": parts[7]}
    return {name: str(value) for name, value in (ext | more).items()}


async def ack(client: Client, *some: Popped) -> None:
    answers = [client.ask(ACK, ack_ext(one)) for one in some]
    for opaque in answers:
        reply = await client.answer_to(opaque)
        assert reply.code == 0, reply


async def change(client: Client, one: Popped, invisible: int) -> Popped:
    """Change when a message comes back; it has another handle then."""
    reply = await client.call(CHANGE, ack_ext(one, invisibleTime=invisible))
    assert reply.code == 0, reply
    _, _, _, _, mark, broker, queue_id, offset = one.handle.split(" ")
    ext = reply.ext
    parts = (offset, ext["popTime"], ext["invisibleTime"], ext["reviveQid"], mark, broker, queue_id, offset)
    return Popped(one.message, " ".join(parts))


def batch_of(*some: Popped) -> bytes:
    """An ack of several messages, one of the batches for each checkpoint."""
    parts: dict[tuple[str, ...], int] = {}
    for one in some:
        *place, offset = one.handle.split(" ")
        key = tuple(place)
        parts[key] = parts.get(key, 0) | 1 << int(offset) - int(place[0])
    acks = [
        {"c": GROUP, "t": TOPIC, "r": mark, "so": int(start), "q": int(queue_id), "rq": int(revive)}
        | {"pt": int(pop_time), "it": int(invisible)}
        | {"b": base64.b64encode(bits.to_bytes(bits.bit_length() // 8 + 1, "little").rstrip(b"\0")).decode()}
        for (start, pop_time, invisible, revive, mark, _, queue_id), bits in parts.items()
    ]
    return json.dumps({"acks": acks, "brokerName": "broker-a"}).encode()


def bodies(some: list[Popped]) -> list[bytes]:
    return sorted(one.message.body for one in some)
