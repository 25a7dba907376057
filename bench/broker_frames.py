"""Ready-made requests to a broker, as a Java client makes them, and a way to try one of them."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from pyromq.protocol import frame
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command, Language, SerializeType
from pyromq.protocol.headers import PullMessage, SendMessageV2

from .codec import PROPERTIES

if TYPE_CHECKING:
    from pyromq.remoting import SigningHook

TOPIC = "TopicTest"
QUEUE = 2
SUBSCRIPTION = 4  # the bit of a pull's sysFlag that says: the request names its subscription, ask no heartbeat
ASK_SECONDS = 5.0


def send(
    body: int,
    serialize: SerializeType = SerializeType.JSON,
    topic: str = TOPIC,
    queue: int = QUEUE,
    *,
    signs: SigningHook | None = None,
) -> bytes:
    """A message with a tag and two keys; with the default arguments in a topic that the broker makes by itself."""
    header = SendMessageV2("bench", topic, "TBW102", 4, queue, 0, 1700000000000, 0, PROPERTIES, broker_name="broker-a")
    request = Command.request(RequestCode.SEND_MESSAGE_V2, header, b"x" * body, serialize=serialize)
    if signs is not None:
        signs.before_request("", request)
    return _frame(request)


def pull(topic: str, queue: int, offset: int, count: int) -> bytes:
    """A pull that needs no consumer to be known and is not held if nothing is there."""
    header = PullMessage("bench-pull", topic, queue, offset, count, SUBSCRIPTION, 0, 0, 0, "*", "TAG")
    return _frame(Command.request(RequestCode.PULL_MESSAGE, header, serialize=SerializeType.JSON))


def ask(port: int, request: bytes) -> Command:
    """The answer to one request on a connection of its own. OSError if there is none."""
    with socket.create_connection(("127.0.0.1", port), ASK_SECONDS) as sock, sock.makefile("rb") as replies:
        sock.sendall(request)
        length = replies.read(4)
        decoder = frame.FrameDecoder()
        decoder.feed(length + replies.read(int.from_bytes(length, "big")))
        reply = decoder.next()
    if reply is None:
        raise ConnectionResetError("the broker closed the connection")
    return reply


def _frame(command: Command) -> bytes:
    command.language = Language.JAVA
    return frame.encode(command)
