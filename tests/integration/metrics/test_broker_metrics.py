"""A broker's metrics over real HTTP, while real clients send and consume."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from datetime import timedelta

import pytest
from tests.integration.broker.life_kit import Peer, eventually, new_broker, new_name_server
from tests.integration.metrics.monitor_kit import Scrape, monitored, scrape

from pyromq.client import Ack, AdminClient, Consumer, DeadLetter, Producer, StartAt, TransactionProducer, TxState
from pyromq.metrics.broker_metrics import BROKER
from pyromq.protocol.message import Message

pytestmark = pytest.mark.slow

# Those that only a broker with something to tell has: half messages, slaves.
SELDOM = {"rocketmq_half_messages", "pyromq_replication_behind_bytes", "rocketmq_rollback_messages_total"}
COMMON = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}


@pytest.fixture
async def name_server(tmp_path):
    async with new_name_server(tmp_path / "namesrv") as running:
        yield running


@pytest.fixture
async def broker(tmp_path, name_server):
    async with new_broker(tmp_path / "store", "timerPrecisionMs=100", namesrv_addr=name_server.address) as running:
        yield running


@pytest.fixture
async def monitor(name_server, broker):
    async with monitored(name_server, broker, label="dc:east") as running:
        yield running


async def met(monitor, condition) -> Scrape:
    """Read until a condition is met; gives that reading."""

    async def look():
        found = await scrape(monitor)
        return found if condition(found) else None

    found: Scrape = await eventually(look)
    return found


@pytest.mark.scenario("admin 37")
async def test_traffic_shows_with_all_names_and_labels(name_server, broker, monitor):
    async def handle(message):
        return DeadLetter() if message.body == b"bad" else Ack()

    address = name_server.address
    async with (
        AdminClient(address) as admin,
        Producer("senders", namesrv=address) as producer,
        TransactionProducer("payers", namesrv=address, check=lambda message: TxState.COMMIT) as payer,
    ):
        await admin.topics.create("orders")
        await admin.groups.create("readers")
        for size in (10, 2000, 100_000):
            await producer.send("orders", os.urandom(size))  # nothing to compress
        await producer.send("orders", b"fifo", shard_key="k")
        await producer.send("orders", b"bad")
        await producer.send(Message("orders", b"later", delay=timedelta(seconds=0.2)))
        await producer.send(Message("orders", b"much later", delay=timedelta(hours=2)))
        await producer.send(Message("orders", b"level", delay_level=1))
        async with payer.transaction(Message("orders", b"paid")):
            pass
        consumer = Consumer("readers", namesrv=address, start_at=StartAt.FIRST)
        consumer.subscribe("orders", handler=handle)
        async with consumer:
            found = await met(
                monitor,
                lambda page: (
                    page.of("rocketmq_messages_out_total", topic="orders", consumer_group="readers") >= [6.0]
                    and page.of("rocketmq_timer_dequeue_total", topic="orders") == [1.0]
                    and page.of("rocketmq_send_to_dlq_messages_total", consumer_group="readers", topic="orders")
                    == [1.0]
                    and page.of("rocketmq_messages_in_total", topic="orders", message_type="delay") >= [2.0]
                ),
            )
    missing = {metric.exposed() for metric in BROKER} - {family.name for family in found.families.values()}
    missing -= {f"{name.removesuffix('_total')}_total" for name in found.families}
    assert missing <= SELDOM
    assert found.one("rocketmq_messages_in_total", topic="orders", message_type="normal") == 4
    assert found.one("rocketmq_messages_in_total", topic="orders", message_type="fifo") == 1
    assert found.one("rocketmq_messages_in_total", topic="orders", message_type="transaction") == 1
    assert found.one("rocketmq_commit_messages_total", topic="orders") == 1
    assert found.one("rocketmq_timing_messages", topic="orders") == 1
    assert found.one("rocketmq_timer_message_snapshot", timer_bound_s="14400") == 1
    sizes = {"topic": "orders", "message_type": "normal"}
    assert found.one("rocketmq_message_size_bucket", **sizes, le="1024") == 2
    assert found.one("rocketmq_message_size_bucket", **sizes, le="4096") == 3
    assert found.one("rocketmq_message_size_bucket", **sizes, le="524288") == 4
    assert found.one("rocketmq_message_size_count", **sizes) == 4
    sent = found.one(
        "rocketmq_rpc_latency_milliseconds_count",
        request_code="send_message_v2",
        response_code="success",
        is_long_polling="false",
        result="success",
        protocol_type="remoting",
    )
    assert sent >= 6
    assert found.of("rocketmq_rpc_latency_milliseconds_count", request_code="pull_message", is_long_polling="true")
    for labels in found.labels("rocketmq_messages_in_total"):
        assert labels.items() >= (COMMON | {"dc": "east"}).items()
        assert labels.keys() == COMMON.keys() | {"dc", "topic", "message_type", "is_system"}
    assert found.one("rocketmq_broker_permission") == 6
    assert found.one("rocketmq_consumer_connections", consumer_group="readers", language="PYTHON") == 1
    assert found.one("pyromq_namesrv_brokers", cluster="DefaultCluster") == 1


async def test_lag_in_messages_and_milliseconds(broker, monitor):
    async with Peer() as peer:
        await peer.create_topic(broker.address, "orders", 1)
        for _ in range(5):
            await peer.send(broker.address)
        await peer.commit(broker.address, 1)
        await peer.pull(broker.address, 1)  # takes all of them
        await peer.send(broker.address)
        found = await scrape(monitor)
    labels = {"consumer_group": "readers", "topic": "orders", "is_retry": "false", "is_system": "false"}
    assert found.one("rocketmq_consumer_lag_messages", **labels) == 5
    assert found.one("rocketmq_consumer_inflight_messages", **labels) == 4
    assert found.one("rocketmq_consumer_ready_messages", **labels) == 1
    lag, queueing = (
        found.one(f"rocketmq_consumer_{name}_latency_milliseconds", **labels) for name in ("lag", "queueing")
    )
    assert lag >= queueing >= 0


@pytest.mark.scenario("admin 39")
async def test_the_series_of_a_deleted_group_and_topic_are_gone(name_server, broker, monitor):
    async with Peer() as peer, AdminClient(name_server.address) as admin:
        await peer.create_topic(broker.address, "orders", 1)
        await peer.send(broker.address)
        await peer.pull(broker.address, 0)
        await peer.commit(broker.address, 1)
        before = await scrape(monitor)
        assert before.of("rocketmq_messages_out_total", consumer_group="readers")
        await admin.groups.delete("readers")
        after = await scrape(monitor)
        assert '"readers"' in before.text
        assert '"readers"' not in after.text
        assert after.of("rocketmq_messages_in_total", topic="orders")
        await admin.topics.delete("orders")
        assert '"orders"' not in (await scrape(monitor)).text


async def test_many_groups_are_read_in_turns(broker, monitor, monkeypatch):
    monkeypatch.setattr("pyromq.metrics.exposition._TURN", 0.0)
    async with Peer() as peer:
        await peer.create_topic(broker.address, "orders", 1)
        await peer.send(broker.address)
        for number in range(500):
            broker._parts.tables.groups.get(f"g{number}")
            await peer.commit(broker.address, 0, group=f"g{number}")
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    found = await scrape(monitor)
    counting.cancel()
    assert len(found.of("rocketmq_consumer_lag_messages", topic="orders")) == 500
    # 2,500 series, and a turn for others after every few of them.
    assert turns > 150


async def test_promtool_finds_nothing_to_complain_about(name_server, broker, monitor):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed; it comes with Debian's prometheus")
    async with Peer() as peer:
        await peer.send(broker.address, topic="orders")
    text = (await scrape(monitor)).text
    done = await asyncio.to_thread(
        subprocess.run, [promtool, "check", "metrics"], input=text.encode(), capture_output=True, check=False
    )
    # RocketMQ's own names do not follow all of its advice about style.
    complaints = [line for line in done.stderr.decode().splitlines() if not line.startswith("rocketmq_")]
    assert complaints == []


async def test_series_above_the_limit_are_added_up(broker):
    async with Peer() as peer:
        for number in range(5):
            await peer.send(broker.address, topic=f"t{number}")
    async with monitored(broker, cardinality_limit=3) as monitor:
        found = await scrape(monitor)
    assert len(found.of("rocketmq_messages_in_total")) == 4
    assert sum(found.of("rocketmq_messages_in_total")) == 5
