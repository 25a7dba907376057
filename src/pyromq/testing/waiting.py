"""TestBroker: a cluster in a thread, with what tests usually need: send this, wait for that.

    def test_a_paid_order_is_shipped(pyromq_broker):
        pyromq_broker.send("orders", b'{"id": 1, "paid": true}')
        ship_orders(pyromq_broker.namesrv)
        [shipped] = pyromq_broker.wait_for("shipments")
        assert shipped.body == b"1"

Every wait ends as soon as its condition holds; if it gives up, the error says what was there instead.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from pyromq import sync
from pyromq.errors import ConsumerNotOnline, RequestTimeout, RouteNotFound, TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyromq.client import MessageQueue, ReceivedMessage, SendResult

    from .cluster import Cluster

PATIENCE = 10.0
_PAUSE = 0.01
_BATCH = 1000
_NOT_THERE = (ConsumerNotOnline, TopicNotFound, RouteNotFound)


class NotThereInTime(AssertionError):
    """What a test waited for did not happen. An AssertionError, so that pytest reports a failure."""


class TestBroker:
    """A running cluster, for tests without an event loop; any thread may use it.

    `namesrv` is the address for the code under test. Reading here uses no group and commits nothing, so it takes no
    messages from anyone.
    """

    __test__ = False  # for pytest, which would take the class for a test

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.namesrv = cluster.namesrv
        self._producer: sync.Producer | None = None
        self._admin: sync.AdminClient | None = None
        self._reader: sync.PullConsumer | None = None

    @property
    def folder(self) -> Path:
        """Where it keeps its files while it runs."""
        return self._cluster.folder

    @property
    def admin(self) -> sync.AdminClient:
        if self._admin is None:
            self._admin = sync.AdminClient(client=self._client())
            self._admin.start()
        return self._admin

    def create_topic(self, topic: str, *, queues: int = 4) -> None:
        """Create a topic. Otherwise the first message does, with the broker's default number of queues."""
        self.admin.topics.create(topic, read_queues=queues, write_queues=queues)

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str = "",
        keys: str | list[str] | None = None,
        properties: dict[str, str] | None = None,
        shard_key: str | None = None,
    ) -> SendResult:
        """Send one message as the producer group `tests`; it is stored when this returns."""
        from pyromq.client import Message

        if self._producer is None:
            self._producer = sync.Producer("tests", client=self._client())
            self._producer.start()
        message = Message(topic, body, tags=tags or None, keys=keys or (), properties=properties or {})
        return self._producer.send(message, shard_key=shard_key)

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """All messages in a topic now, in the order they were stored; none if it does not exist."""
        try:
            ends = self.admin.topics.stats(topic)
        except (TopicNotFound, RouteNotFound):
            return []
        found: list[ReceivedMessage] = []
        for queue, end in ends.items():
            offset = end.min_offset
            while offset < end.max_offset:
                pulled = self._started_reader().pull(queue, offset, max=_BATCH)
                found += pulled.messages
                if pulled.next_offset <= offset:
                    break
                offset = pulled.next_offset
        return sorted(found, key=lambda message: message.commit_offset)

    def wait_for(
        self,
        topic: str,
        count: int = 1,
        *,
        where: Callable[[ReceivedMessage], object] = lambda message: True,
        timeout: float = PATIENCE,
    ) -> list[ReceivedMessage]:
        """Wait until a topic has `count` messages or more for which `where` is true, and return them."""
        deadline = time.monotonic() + timeout
        while True:
            there = self.messages(topic)
            if len(found := [message for message in there if where(message)]) >= count:
                return found
            if time.monotonic() > deadline:
                raise NotThereInTime(
                    f"{len(found)} of {count} messages in topic {topic} within {timeout:g} s; "
                    f"the topic has {len(there)} in all: {_shown(there)}"
                )
            time.sleep(_PAUSE)

    def wait_until_consumed(self, group: str, topic: str | None = None, *, timeout: float = PATIENCE) -> None:
        """Wait until a group has read everything in its topics, or in one of them."""
        deadline = time.monotonic() + timeout
        while (lag := self._lag(group, topic)) != 0:
            if time.monotonic() > deadline:
                said = "has read nothing" if lag is None else f"is still {lag} messages behind"
                raise NotThereInTime(f"group {group} {said} after {timeout:g} s")
            time.sleep(_PAUSE)

    def close(self) -> None:
        for each in (self._producer, self._reader, self._admin):
            if each is not None:
                each.close()

    def _client(self, *, stream: bool = False) -> sync.Client:
        return sync.Client(self.namesrv, stream=stream, **self._cluster.client_settings)

    def _started_reader(self) -> sync.PullConsumer:
        if self._reader is None:
            self._reader = sync.PullConsumer("tests-reader", client=self._client(stream=True), auto_commit=False)
            self._reader.start()
        return self._reader

    def _lag(self, group: str, topic: str | None) -> int | None:
        """How many messages a group has yet to read; None if it is not known to have read any.

        Members commit only every few seconds, so this asks the members themselves.
        """
        done: dict[MessageQueue, int] = {}
        with contextlib.suppress(*_NOT_THERE):
            done |= {row.queue: row.consumer_offset for row in self.admin.groups.progress(group).rows}
        with contextlib.suppress(*_NOT_THERE, RequestTimeout):  # the member may just have left
            for member in self.admin.groups.connections(group).connection_set:
                for queue, held in self.admin.clients.running_info(group, member.client_id).mq_table.items():
                    done[queue] = max(held.commit_offset, done.get(queue, 0))
        topics = {queue.topic for queue in done if topic in (None, queue.topic)}
        ends = [end for each in topics for end in self.admin.topics.stats(each).items()]
        return sum(end.max_offset - done.get(queue, end.min_offset) for queue, end in ends) if ends else None


def _shown(messages: list[ReceivedMessage]) -> str:
    bodies = [repr(message.body[:40]) for message in messages[-5:]]
    return ", ".join(bodies) or "none"
