"""What a send request and its reply cost to encode and decode, next to the json module on the same header."""

from __future__ import annotations

import json
import time
import timeit
from typing import TYPE_CHECKING

from pyromq.protocol import frame, json_header
from pyromq.protocol.command import Command, Language, SerializeType
from pyromq.protocol.headers import SendMessageReply, SendMessageV2

from .table import show

if TYPE_CHECKING:
    from collections.abc import Callable

PROPERTIES = "KEYS\x01k1\x02UNIQ_KEY\x01C0A8010A04D218B4AAC247B760000001\x02WAIT\x01true\x02TAGS\x01TagA"
MESSAGES_PER_READ = 64


def send_request(serialize: SerializeType, body: int = 1024) -> Command:
    """A SEND_MESSAGE_V2 request as a Java producer makes it."""
    header = SendMessageV2(
        "bench", "TopicTest", "TBW102", 4, 2, 0, 1700000000000, 0, PROPERTIES, broker_name="broker-a"
    )
    command = Command.request(310, header, b"x" * body, serialize=serialize)
    command.language = Language.JAVA
    return command


def send_reply(serialize: SerializeType) -> Command:
    header = SendMessageReply("0A00000100002A9F0000000000000000", 2, 12345, region="DefaultRegion", trace_on=True)
    return send_request(serialize).reply(header=header)


def micros(call: Callable[[], object], per: int = 1) -> float:
    """The least CPU time of `call` over several tries, in microseconds for each of `per` things that it does."""
    number = max(1, int(0.05 / max(timeit.timeit(call, number=10, timer=time.process_time) / 10, 1e-7)))
    return min(timeit.repeat(call, number=number, repeat=7, timer=time.process_time)) / number / per * 1e6


def decode(data: bytes) -> None:
    decoder = frame.FrameDecoder()
    decoder.feed(data)
    while decoder.next() is not None:
        pass


def main(seconds: float) -> None:
    rows = []
    for serialize in SerializeType:
        for name, command in (("request, 1 KB body", send_request(serialize)), ("reply", send_reply(serialize))):
            header = json.loads(json_header.encode(command))
            text = json.dumps(header)
            bare = micros(lambda h=header: json.dumps(h)) + micros(lambda t=text: json.loads(t))  # type: ignore[misc]
            encode = micros(lambda c=command: frame.encode(c))  # type: ignore[misc]
            data = frame.encode(command) * MESSAGES_PER_READ
            decoding = micros(lambda d=data: decode(d), MESSAGES_PER_READ)  # type: ignore[misc]
            ratio = (encode + decoding) / bare
            rows.append((f"{serialize.name} {name}", encode, decoding, encode + decoding, bare, ratio))
    show(
        "SEND_MESSAGE_V2, µs of CPU; frames against json.loads + json.dumps of the header alone",
        ("frame", "encode", "decode", "both", "json module", "ratio"),
        rows,
    )
