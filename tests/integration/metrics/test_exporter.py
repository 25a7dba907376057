"""The exporter of a cluster: names that existing boards ask for, few requests, and nothing about what is gone."""

from __future__ import annotations

import json

import pytest
from tests.integration.broker.life_kit import Peer, eventually, new_broker, new_name_server
from tests.integration.metrics.monitor_kit import monitored, page, scrape

from pyromq.admin.exporter import Exporter
from pyromq.admin.exporter.facts import FRESH
from pyromq.client import Ack, AdminClient, Client, Consumer, DeadLetter, Producer, StartAt
from pyromq.metrics.exporter_metrics import EXPORTER

pytestmark = pytest.mark.slow

# What Grafana 10477, the two boards in rocketmq-exporter and its example rules ask for.
ASKED = {
    f"rocketmq_{name}"
    for name in (
        *("broker_tps", "broker_qps", "producer_tps", "producer_message_size", "producer_offset", "consumer_tps"),
        *("consumer_message_size", "consumer_offset", "group_diff", "group_retrydiff", "message_accumulation"),
        *("group_get_latency_by_storetime", "topic_retry_offset", "topic_dlq_offset", "client_consume_fail_msg_count"),
        *("client_consume_fail_msg_tps", "client_consume_ok_msg_tps", "client_consume_rt"),
        *("client_consumer_pull_rt", "client_consumer_pull_tps"),
    )
} | {
    f"rocketmq_brokeruntime_{name}"
    for name in (
        *("commitlog_disk_ratio", "consumequeue_disk_ratio", "commitlog_maxoffset", "commitlog_minoffset"),
        *("commitlogdir_capacity_free", "commitlogdir_capacity_total", "dispatch_behind_bytes", "put_tps10"),
        *("earliest_message_timestamp", "getfound_tps10", "getmiss_tps10", "gettotal_tps10", "gettransfered_tps10"),
        *("msg_gettotal_today_now", "msg_gettotal_todaymorning", "msg_gettotal_yesterdaymorning"),
        *("msg_put_total_today_now", "msg_puttotal_todaymorning", "msg_puttotal_yesterdaymorning"),
        *("pmdt_0ms", "pmdt_0to10ms", "pmdt_10to50ms", "pmdt_50to100ms", "pmdt_100to200ms", "pmdt_200to500ms"),
        *("pmdt_500to1s", "pmdt_1to2s", "pmdt_2to3s", "pmdt_3to4s", "pmdt_4to5s", "pmdt_5to10s", "pmdt_10stomore"),
        *("put_message_average_size", "put_message_size_total", "send_threadpoolqueue_headwait_timemills"),
        *("pull_threadpoolqueue_headwait_timemills", "query_threadpoolqueue_headwait_timemills"),
    )
}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def name_server(tmp_path):
    async with new_name_server(tmp_path / "namesrv") as running:
        yield running


@pytest.fixture
async def broker(tmp_path, name_server):
    async with new_broker(tmp_path / "store", namesrv_addr=name_server.address) as running:
        yield running


@pytest.fixture
async def admin(name_server, broker):
    async with AdminClient(name_server.address) as client:
        yield client


@pytest.mark.scenario("admin 38")
async def test_every_metric_that_boards_ask_for_is_there(name_server, broker, admin):
    async def handle(message):
        return DeadLetter() if message.body == b"bad" else Ack()

    quick = Client(name_server.address, offset_interval=0.1)
    consumer = Consumer("readers", client=quick, start_at=StartAt.FIRST)
    consumer.subscribe("orders", handler=handle)
    await admin.topics.create("orders")
    async with Producer("senders", namesrv=name_server.address) as producer, consumer:
        await producer.send("orders", b"good")
        await producer.send("orders", b"bad")
        exporter = Exporter(admin)
        async with monitored(exporter) as monitor:

            async def look():
                await exporter.ask()
                page = await scrape(monitor)
                is_done = page.of("rocketmq_topic_dlq_offset", group="readers") == [1.0]
                return page if is_done and page.names >= ASKED else None

            found = await eventually(look)
            _, ready = await page(monitor.url, "/readyz")
    assert "ok   exporter name servers" in ready
    assert found.names >= {metric.name for metric in EXPORTER}
    assert {family.type for family in found.families.values() if family.name.startswith("rocketmq_")} == {"gauge"}
    assert found.one("rocketmq_producer_offset", topic="orders") == 2
    assert found.one("rocketmq_producer_count", group="senders") == 1
    (diff,) = found.labels("rocketmq_group_diff")
    assert diff == {"group": "readers", "topic": "orders", "countOfOnlineConsumers": "1", "msgModel": "1"}
    assert found.one("rocketmq_topic_dlq_offset", group="readers") == 1


async def test_requests_grow_with_brokers_and_not_with_groups(broker, admin):
    async with Peer() as peer:
        await peer.create_topic(broker.address, "orders", 1)
        for number in range(600):
            broker._parts.tables.groups.get(f"g{number}")
            await peer.commit(broker.address, 0, group=f"g{number}")
        await peer.send(broker.address)
    exporter = Exporter(admin)
    rounds = []
    for _ in range(3):
        await exporter.ask()
        rounds.append(exporter.facts.requests)
    assert max(rounds) <= 110
    # The lag of all of them is known from the first round on; details come one after the other.
    async with monitored(exporter) as monitor:
        found = await scrape(monitor)
    assert len(found.of("rocketmq_group_diff", topic="orders")) == 600
    assert 60 < len(exporter.facts.members) < 300


async def test_what_is_gone_vanishes(tmp_path, name_server, broker, admin):
    clock = Clock()
    exporter = Exporter(admin, clock=clock)
    async with Peer() as peer, monitored(exporter) as monitor:
        await peer.create_topic(broker.address, "orders", 1)
        await peer.send(broker.address)
        broker._parts.tables.groups.get("readers")
        await peer.commit(broker.address, 0)
        await exporter.ask()
        assert (await scrape(monitor)).of("rocketmq_group_diff", group="readers") == [1.0]
        await admin.groups.delete("readers", remove_offsets=True)
        await exporter.ask()
        assert '"readers"' not in (await scrape(monitor)).text
        # A broker that does not answer is known for a minute.
        await broker.__aexit__(None, None, None)
        await exporter.ask()
        found = await scrape(monitor)
        assert found.of("rocketmq_broker_tps", broker="broker-a")
        clock.now += FRESH + 1
        await exporter.ask()
        assert "broker-a" not in (await scrape(monitor)).text


async def test_without_name_servers_it_is_not_ready_and_goes_on(admin, name_server, caplog):
    async with AdminClient("127.0.0.1:1") as nowhere:
        exporter = Exporter(nowhere)
        async with monitored(exporter) as monitor:
            await exporter.ask()
            await exporter.ask()
            status, text = await page(monitor.url, "/readyz")
            version = json.loads((await page(monitor.url, "/version"))[1])
    assert status == 503
    assert "FAIL exporter name servers" in text
    assert caplog.text.count("asking again") == 1
    assert version["servers"] == ["exporter"]
