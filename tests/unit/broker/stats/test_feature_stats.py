"""What is counted of messages that take a detour: delayed, sent back, dead letters (docs/spec/broker.md 13.2)."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.broker.message_kit import Parts, Peer, pull_request, request
from tests.unit.settings_kit import change

from pyromq.broker.timers.schedule import CONSUMER
from pyromq.protocol.bodies.register import TopicConfig
from pyromq.protocol.headers import ConsumerSendMessageBack

if TYPE_CHECKING:
    from collections.abc import Iterable

WAITING, RETRY, DEAD = "SCHEDULE_TOPIC_XXXX", "%RETRY%billing", "%DLQ%billing"
LEVEL_3 = f"{WAITING}@2"


class Counted(Parts):
    """Messages may be delayed and sent back; everything is counted."""

    def __init__(self, folder) -> None:
        super().__init__(folder)
        self.topics.update(TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4))

    async def send_back(self, topic: str, **fields: Any) -> None:
        *_, last = self.messages(topic, 0)
        values: dict[str, Any] = {"offset": last.physical_offset, "group": "billing", "delay_level": 0} | fields
        reply = await self.ask(Peer(), request(36, ConsumerSendMessageBack(**values)))
        assert reply is not None
        assert reply.code == 0

    async def deliver(self) -> None:
        self.now += 30_000
        for _ in range(20):
            self.schedule.step()
            await asyncio.sleep(0)

    def counts(self, item: str, keys: Iterable[str]) -> list[int]:
        """The counters as an operator sees them."""
        self.now += 10_000
        self.stats.sample(self.now)
        views = [self.stats.view(item, key) for key in keys]
        return [0 if view is None else view.stats_minute.sum for view in views]


@pytest.fixture
async def parts(tmp_path):
    made = Counted(tmp_path)
    yield made
    made.close()


async def test_a_delayed_message_counts_where_it_waits_and_where_it_goes(parts):
    await parts.send(b"x", "DELAY\x013")
    assert parts.counts("TOPIC_PUT_NUMS", [WAITING, "orders"]) == [1, 0]
    assert parts.counts("QUEUE_PUT_NUMS", [LEVEL_3]) == [1]
    await parts.deliver()
    (delivered,) = parts.messages("orders", 0)
    assert parts.counts("QUEUE_GET_NUMS", [f"{LEVEL_3}@{CONSUMER}"]) == [1]
    assert parts.counts("TOPIC_PUT_NUMS", ["orders"]) == [1]
    assert parts.counts("TOPIC_PUT_SIZE", ["orders"]) == [delivered.store_size]


async def test_what_is_sent_back_counts_for_the_topic_it_came_from_however_often(parts):
    await parts.send(b"hard")
    await parts.send_back("orders")
    await parts.deliver()
    await parts.send_back(RETRY)
    assert parts.counts("SNDBCK_PUT_NUMS", ["orders@billing", f"{RETRY}@billing"]) == [2, 0]


async def test_what_is_sent_back_counts_where_it_waits(parts):
    await parts.send(b"hard")
    await parts.send_back("orders")
    assert parts.counts("TOPIC_PUT_NUMS", [WAITING, RETRY]) == [1, 0]
    assert parts.counts("QUEUE_PUT_NUMS", [LEVEL_3]) == [1]
    await parts.deliver()
    assert parts.counts("TOPIC_PUT_NUMS", [RETRY]) == [1]


async def test_dead_letters_are_counted(parts):
    await parts.send(b"hopeless")
    await parts.send_back("orders", delay_level=-1)
    (dead,) = parts.messages(DEAD, 0)
    assert parts.counts("TOPIC_PUT_NUMS", [DEAD, WAITING]) == [1, 0]
    assert parts.counts("TOPIC_PUT_SIZE", [DEAD]) == [dead.store_size]
    assert parts.counts("SNDBCK_PUT_NUMS", ["orders@billing"]) == [1]
    assert parts.counts("BROKER_PUT_NUMS", [parts.live.config.cluster_name]) == [2]


async def test_what_could_not_be_stored_was_not_sent_back(parts):
    await parts.send(b"hard")
    (original,) = parts.messages("orders", 0)
    parts.store.refusals["test"] = "no more"
    header = ConsumerSendMessageBack(offset=original.physical_offset, group="billing", delay_level=0)
    reply = await parts.ask(Peer(), request(36, header))
    assert reply is not None
    assert reply.code == 1
    del parts.store.refusals["test"]
    assert parts.stats.view("SNDBCK_PUT_NUMS", "orders@billing") is None


@pytest.mark.parametrize("detailed", [True, False])
async def test_how_long_pulls_take_is_counted_by_queue_or_by_topic(parts, detailed):
    change(parts.live, b"enableDetailStat=%s" % str(detailed).lower().encode(), "test", now=parts.now)
    await parts.send(b"x")
    real = parts.store.get

    def slow(*wanted: Any, **how: Any) -> Any:
        time.sleep(0.02)
        return real(*wanted, **how)

    parts.store.get = slow
    await parts.ask(Peer(), pull_request(0))
    await parts.ask(Peer(), pull_request(1))  # finds nothing
    key = "0@orders@billing" if detailed else "orders@billing"
    parts.counts("GROUP_GET_LATENCY", [])
    view = parts.stats.view("GROUP_GET_LATENCY", key)
    assert 20 <= view.stats_minute.sum < 2000
    assert view.stats_minute.avgpt == view.stats_minute.sum
