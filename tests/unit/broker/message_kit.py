"""A broker that is asked without a socket; only the connection is a stand-in, which keeps replies."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from pyromq.broker import assembly
from pyromq.broker.config import BrokerConfig, LiveConfig
from pyromq.errors import BrokerError, NotSaved, PyroMQError
from pyromq.protocol.command import Command
from pyromq.protocol.frame import FrameDecoder
from pyromq.protocol.headers import PullMessage, SendMessageV2
from pyromq.protocol.record import MessageRecord, decode_records
from pyromq.remoting import RemotingClient
from pyromq.store import MessageStore, StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyromq.protocol.header import Header

STORE_HOST = bytes((10, 0, 0, 1, 0, 0, 42, 159))


class Peer:
    """Keeps the replies to the requests that it made."""

    def __init__(self, peer: str = "192.168.1.10:54321") -> None:
        self.peer = peer
        self.closed = False
        self.context = None
        self.replies: list[Command] = []

    def send_reply_frame(self, request: Command, frame: bytes) -> bool:
        decoder = FrameDecoder()
        decoder.feed(frame)
        response = decoder.next()
        assert response is not None
        self.replies.append(response)
        return True

    def reply(self, request: Command, response: Command, *, held: bool = False) -> None:
        assert response.opaque == request.opaque
        self.replies.append(response)


def assembled(live: LiveConfig, store: MessageStore, clock: Callable[[], int]) -> assembly.Parts:
    """A broker on an open store, put together as in real life. Nothing is loaded yet, and nothing runs by itself."""
    return assembly.Parts(
        live,
        store,
        RemotingClient(),
        clock,
        clock,
        address="10.0.0.1:10911",
        ha_address="10.0.0.1:10912",
        store_host=STORE_HOST,
        access=assembly.access_control(live.settings),
    )


class Parts:
    """A broker without its ports, on a clock that stands still until it is turned."""

    def __init__(self, folder: Path, config: BrokerConfig | None = None, **store: object) -> None:
        self.now = 1_700_000_000_000
        settings = {"commit_log_file_size": 1 << 20, "consume_queue_file_size": 6000, "index": False} | store
        self.store = MessageStore(
            StoreConfig(root=str(folder), **settings),  # type: ignore[arg-type]
            clock=lambda: self.now / 1000,
        )
        self.store.open()
        self.live = LiveConfig.of(config or BrokerConfig(broker_name="broker-a", broker_ip1="10.0.0.1"))
        self.broker = assembled(self.live, self.store, self.clock)
        self.context, self.tables = self.broker.context, self.broker.tables
        self.appends, self.stats = self.context.appends, self.context.stats
        self.topics, self.groups, self.offsets = self.tables.topics, self.tables.groups, self.tables.offsets
        self.filters, self.clients = self.tables.filters, self.tables.clients
        self.sends, self.pulls, self.schedule = self.broker.sends, self.broker.pulls, self.broker.schedule
        self.processors = self.broker.processors

    def clock(self) -> int:
        return self.now

    def close(self) -> None:
        self.store.close()

    async def ask(self, peer: Peer, request: Command) -> Command | None:
        """The answer that a request gets at once or by the end of this turn; None if it has to wait."""
        before = len(peer.replies)
        try:
            result = self.processors[request.code](peer, request)  # type: ignore[arg-type]
        except BrokerError as exc:
            return request.reply(exc.code, exc.remark)
        except PyroMQError as exc:
            return request.reply(1, str(exc))
        if asyncio.iscoroutine(result):
            result = await result
        if isinstance(result, Command):
            return result
        # What makes a topic is answered when that is saved; a message may make two, one after the other.
        for _ in range(2):
            with contextlib.suppress(NotSaved):
                await self.broker.gate.topics_settled()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return peer.replies[-1] if len(peer.replies) > before else None

    async def send(self, body: bytes, properties: str = "", *, topic: str = "orders", queue_id: int = 0) -> Command:
        reply = await self.ask(Peer(), send_request(body, properties, topic=topic, queue_id=queue_id))
        assert reply is not None
        return reply

    def messages(self, topic: str, queue_id: int) -> list[MessageRecord]:
        """All messages of a queue."""
        queue = self.store.queue(topic, queue_id)
        found: list[MessageRecord] = []
        offset = int(queue.min_offset)
        while offset < queue.max_offset:
            result = self.store.get(queue, offset, 32)
            found += [record for piece in result.slices for record in decode_records(piece)]
            offset = result.next_offset
        return found


def send_request(
    body: bytes, properties: str = "", *, topic: str = "orders", queue_id: int = 0, code: int = 310, **fields: object
) -> Command:
    values: dict[str, object] = {
        "producer_group": "shop",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": queue_id,
        "sys_flag": 0,
        "born_timestamp": 1_699_999_999_000,
        "flag": 0,
        "properties": properties,
    } | fields
    return request(code, SendMessageV2(**values), body)  # type: ignore[arg-type]


def pull_request(
    offset: int,
    *,
    topic: str = "orders",
    queue_id: int = 0,
    sys_flag: int = 4,
    subscription: str = "*",
    **fields: object,
) -> Command:
    values: dict[str, object] = {
        "consumer_group": "billing",
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": offset,
        "max_msg_nums": 32,
        "sys_flag": sys_flag,
        "commit_offset": 0,
        "suspend_timeout_millis": 15000,
        "sub_version": 0,
        "subscription": subscription,
    } | fields
    return request(11, PullMessage(**values))  # type: ignore[arg-type]


def request(code: int, header: Header, body: bytes | None = None) -> Command:
    made = Command.request(code, header, body)
    made.opaque = 7
    return made
