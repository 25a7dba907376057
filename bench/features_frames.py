"""Ready-made requests for messages with properties of their own, and questions to a broker about its queues."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.interop import wire

from pyromq.protocol import frame
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command, Language, SerializeType
from pyromq.protocol.headers import PullMessage, SendMessageV2

from .broker_frames import SUBSCRIPTION
from .broker_rounds import GET_MAX_OFFSET
from .codec import PROPERTIES

if TYPE_CHECKING:
    from .broker_peers import Peer

_LOOK_EVERY = 0.05


def send(topic: str, body: int, properties: str) -> bytes:
    """A message to queue 0 with these properties besides the usual ones."""
    text = f"{properties}\x02{PROPERTIES}"
    header = SendMessageV2("bench", topic, "TBW102", 4, 0, 0, 1700000000000, 0, text, broker_name="broker-a")
    return _frame(Command.request(RequestCode.SEND_MESSAGE_V2, header, b"x" * body, serialize=SerializeType.JSON))


def pull_by_sql(topic: str, offset: int, count: int, expression: str) -> bytes:
    """A pull that brings its expression along, so that nobody need be subscribed."""
    header = PullMessage("bench-pull", topic, 0, offset, count, SUBSCRIPTION, 0, 0, 0, expression, "SQL92")
    return _frame(Command.request(RequestCode.PULL_MESSAGE, header, serialize=SerializeType.JSON))


def create_topic(peer: Peer, topic: str) -> None:
    with wire.Connection(peer.address) as connection:
        wire.create_topic(connection, topic, 1)


def stored(peer: Peer, topic: str) -> int:
    """How many messages queue 0 of a topic has."""
    with wire.Connection(peer.address) as connection:
        return int(connection.ask(GET_MAX_OFFSET, topic=topic, queueId=0).ext["offset"])


def wait_until_stored(peer: Peer, topic: str, count: int, seconds: float) -> bool:
    """Whether queue 0 of a topic has so many messages before the time is over."""
    deadline = time.monotonic() + seconds
    while stored(peer, topic) < count:
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_EVERY)
    return True


def _frame(command: Command) -> bytes:
    command.language = Language.JAVA
    return frame.encode(command)
