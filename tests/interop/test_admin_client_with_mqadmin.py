"""Our admin client beside the official `mqadmin`: both look at our broker and must see the same; then ours looks at
Apache's brokers.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop.apache import CLUSTER as APACHE_CLUSTER
from tests.interop.apache import Admin
from tests.interop.drivers import Driver, Sent
from tests.interop.pyromq_up import BROKER, CLUSTER, PyroMQ

from pyromq.client.admin import AdminClient, TrackState
from pyromq.client.consumer.push_consumer import Consumer
from pyromq.client.producer.producer import Producer
from pyromq.errors import NoMessage, TopicNotFound
from pyromq.protocol.bodies import CMResult
from pyromq.protocol.message import Message
from pyromq.protocol.message_queue import MessageQueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from tests.interop.conftest import Cluster

pytestmark = pytest.mark.interop

SOON = 10.0
# A consumer of 5.x that joins may wait for its next heartbeat, and mqadmin takes seconds each time.
LATER = 60.0
TOPIC, GROUP = "seen-twice", "seen-twice-group"
MESSAGES = 8
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
QUICK_OFFSETS = 0.5


@dataclass(frozen=True, slots=True)
class Scene:
    """A broker of ours whose topic `TOPIC` was sent `MESSAGES` messages, all of them consumed by a Java consumer."""

    up: PyroMQ
    mqadmin: Admin
    client: Driver
    sent: list[Sent]

    async def run(self, *commands: str) -> list[str]:
        """What mqadmin prints; it prints exceptions, too, and ends well in any case."""
        said = await asyncio.to_thread(self.mqadmin.run, *commands)
        for command, text in zip(commands, said, strict=True):
            assert "Exception" not in text.replace("exceptionDesc=null", ""), f"{command}\n{text}"
        return said


@pytest.fixture(scope="module")
def scene(java_packages: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    home = tmp_path_factory.mktemp("admin-client")
    with PyroMQ(home / "up") as up, Driver("java-5.5.0", home / "client", up.namesrv) as client:
        up.create_topic(TOPIC)
        sent = [client.send(topic=TOPIC, body=f"body-{n}", keys=f"key-{n}", tags="red")[0] for n in range(MESSAGES)]
        client.do("push", name="one", group=GROUP, topic=TOPIC)
        client.wait_for_bodies("one", {f"body-{n}" for n in range(MESSAGES)}, SOON)
        yield Scene(up, Admin("5.5.0", home / "admin", up.namesrv), client, sent)


@pytest.fixture
async def admin(scene: Scene) -> AsyncIterator[AdminClient]:
    async with AdminClient(scene.up.namesrv) as admin:
        yield admin


def rows(text: str) -> list[list[str]]:
    """The words of each line of a table."""
    return [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def fields(text: str, separator: str) -> dict[str, str]:
    pairs = [line.split(separator, 1) for line in text.splitlines() if separator in line]
    return {key.strip(): value.strip() for key, value in pairs}


async def eventually(condition: Callable[[], Awaitable[Any]], seconds: float = LATER) -> Any:
    """Ask until the answer is true, and give it. The peers are other processes: no event tells us."""
    async with asyncio.timeout(seconds):
        while True:
            if answer := await condition():
                return answer
            await asyncio.sleep(0.2)


@pytest.mark.scenario("client 60")
async def test_topics_are_the_same_to_both(scene: Scene, admin: AdminClient) -> None:
    await admin.topics.create("made-by-us", read_queues=6, write_queues=5, cluster=CLUSTER)
    listed, route, status, clusters = await scene.run(
        "topicList", "topicRoute -t made-by-us", "topicStatus -t made-by-us", "topicClusterList -t made-by-us"
    )
    assert set(await admin.topics.names()) == set(listed.split())
    assert '"readQueueNums":6' in "".join(route.split())
    assert await admin.topics.clusters("made-by-us") == clusters.split()
    stats = await admin.topics.stats("made-by-us")
    assert sorted(
        [BROKER, str(queue.queue_id), str(ends.min_offset), str(ends.max_offset)] for queue, ends in stats.items()
    ) == sorted(row[:4] for row in rows(status) if row[0] == BROKER)
    await admin.topics.update("made-by-us", perm=4)
    [changed] = await scene.run(f"updateTopicPerm -t made-by-us -b {scene.up.address} -p 6")
    assert "update topic perm from 4 to 6" in changed
    assert (await admin.topics.config("made-by-us"))[BROKER].perm == 6
    await admin.topics.delete("made-by-us", cluster=CLUSTER)
    [listed] = await scene.run("topicList")
    assert "made-by-us" not in listed.split()


@pytest.mark.scenario("client 60")
async def test_messages_are_found_by_both(scene: Scene, admin: AdminClient) -> None:
    sent = scene.sent[5]
    place = f"-i {sent.queue} -o {sent.offset}"
    said = await scene.run(
        f"queryMsgById -t {TOPIC} -i {sent.offset_id}",
        f"queryMsgByOffset -t {TOPIC} -b {BROKER} {place}",
        f"queryMsgByUniqueKey -t {TOPIC} -i {sent.message_id}",
    )
    queue = MessageQueue(broker_name=BROKER, queue_id=sent.queue, topic=TOPIC)
    found = [
        await admin.messages.by_offset_id(sent.offset_id),
        await admin.messages.at(queue, sent.offset),
        await admin.messages.by_uniq_key(TOPIC, sent.message_id),
    ]
    for text, message in zip(said, found, strict=True):
        shown = fields(text, ":")
        assert (shown["Topic"], shown["Queue ID"], shown["Queue Offset"]) == (
            message.topic,
            str(message.queue_id),
            str(message.queue_offset),
        )
        assert shown["CommitLog Offset"] == str(message.record.physical_offset)
        assert shown["Reconsume Times"] == str(message.reconsume_times)
        assert (shown["Tags"], shown["Keys"]) == (f"[{message.tags}]", f"[{' '.join(message.keys)}]")
        assert message.body == b"body-5"
        tracks = {track.group: track.state for track in await admin.messages.track(message)}
        assert f"trackType={tracks[GROUP].value}" in text
        assert tracks[GROUP] is TrackState.CONSUMED
    [by_key] = await scene.run(f"queryMsgByKey -t {TOPIC} -k key-5")
    assert [
        [message.msg_id, str(message.queue_id), str(message.queue_offset)]
        for message in await admin.messages.by_key(TOPIC, "key-5")
    ] == [row[:3] for row in rows(by_key)]


@pytest.mark.scenario("client 60")
async def test_the_lag_of_a_group_is_the_same_to_both(scene: Scene, admin: AdminClient) -> None:
    async def caught_up() -> bool:
        progress = await admin.groups.progress(GROUP)
        # The consumer commits in its retry topic, too, a little later than in the other.
        return progress.lag == 0 and len({row.queue.topic for row in progress.rows}) == 2

    await eventually(caught_up)
    [text, members, status] = await scene.run(
        f"consumerProgress -g {GROUP}", f"consumerConnection -g {GROUP}", f"consumerStatus -g {GROUP}"
    )
    progress = await admin.groups.progress(GROUP, clients=True)
    ours = [
        [
            row.queue.topic,
            row.queue.broker_name,
            *map(str, (row.queue.queue_id, row.broker_offset, row.consumer_offset, row.lag)),
        ]
        for row in progress.rows
    ]
    theirs = [row[:6] for row in rows(text) if len(row) > 5 and row[1] == BROKER]
    assert sorted(ours) == sorted(theirs)
    assert f"Diff Total: {progress.lag}" in text
    [member] = (await admin.groups.connections(GROUP)).connection_set
    assert member.client_id in members
    assert {row.client_id for row in progress.rows} == {member.client_id}
    assert member.client_id in status
    info = await admin.clients.running_info(GROUP, member.client_id, stacks=True)
    assert len([queue for queue in info.mq_table if queue.topic == TOPIC]) == 4
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert "ConsumeMessageThread" in (info.jstack or "")
    offsets = await admin.clients.consume_status(GROUP, TOPIC)
    assert sum(offsets[member.client_id].values()) >= MESSAGES
    assert [each.client_id for each in await admin.groups.producers("interop-producer", TOPIC)]


async def test_the_broker_is_the_same_to_both(scene: Scene, admin: AdminClient) -> None:
    address = scene.up.address
    await admin.brokers.set_config({"fileReservedTime": "12"}, brokers=BROKER)
    listing, status, settings = await scene.run(
        "clusterList", f"brokerStatus -b {address}", f"getBrokerConfig -b {address}"
    )
    info = await admin.brokers.cluster_info()
    assert [CLUSTER, BROKER, "0", info.broker_addr_table[BROKER].broker_addrs[0]] in [row[:4] for row in rows(listing)]
    assert fields(settings, "=")["fileReservedTime"] == "12"
    assert (await admin.brokers.config(BROKER)).keys() == fields(settings, "=").keys() - {""}
    assert (await admin.brokers.runtime(BROKER)).keys() == fields(status, ":").keys()


async def test_groups_are_the_same_to_both(scene: Scene, admin: AdminClient) -> None:
    await scene.run(f"updateSubGroup -c {CLUSTER} -g made-by-them -r 7 -q 2")
    [config] = (await admin.groups.config("made-by-them")).values()
    assert (config.retry_max_times, config.retry_queue_nums) == (7, 2)
    await admin.groups.delete("made-by-them")
    assert "made-by-them" not in await admin.groups.names()


async def test_keys_of_the_name_server_are_the_same_to_both(scene: Scene, admin: AdminClient) -> None:
    await scene.run("updateKvConfig -s space -k key -v value")
    assert await admin.namesrv.get_kv("space", "key") == "value"
    await admin.topics.set_order(TOPIC, {BROKER: 4})
    [order] = await scene.run(f"updateOrderConf -t {TOPIC} -m get")
    assert f"{BROKER}:4" in order
    await admin.topics.delete_order(TOPIC)


async def test_a_java_consumer_is_told_to_begin_anew_and_consumes_on_request(scene: Scene, admin: AdminClient) -> None:
    client, topic, group = scene.client, "told-by-us", "told-by-us-group"
    await admin.topics.create(topic, read_queues=4, write_queues=4)
    bodies = [f"told-{n}" for n in range(4)]
    sent = [(await asyncio.to_thread(client.send, topic=topic, body=body))[0] for body in bodies]
    await asyncio.to_thread(client.do, "push", name="told", group=group, topic=topic)
    await asyncio.to_thread(client.wait_for_bodies, "told", set(bodies), SOON)

    async def committed() -> bool:
        progress = await admin.groups.progress(group, topic)
        return sum(row.consumer_offset for row in progress.rows) == 4

    await eventually(committed)
    result = await admin.messages.consume_directly(group, sent[0].offset_id)
    assert result.consume_result is CMResult.CR_SUCCESS
    assert sorted(client.bodies("told")) == sorted([*bodies, "told-0"])
    reset = await admin.offsets.reset(group, topic, EPOCH)
    assert (reset.online, set(reset.offsets.values())) == ((BROKER,), {0})

    async def all_again() -> bool:
        return sorted(client.bodies("told")) == sorted([*bodies, "told-0", *bodies])

    await eventually(all_again)
    await asyncio.to_thread(client.do, "leave", name="told")


@pytest.mark.scenario("client 48")
async def test_mqadmin_looks_into_our_consumer(scene: Scene, admin: AdminClient) -> None:
    topic, group = "ours-looked-into", "ours-looked-into-group"
    await admin.topics.create(topic, read_queues=4, write_queues=4)
    got: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle(message: Any) -> None:
        got.put_nowait(message.body)

    consumer = Consumer(group, namesrv=scene.up.namesrv)
    consumer.subscribe(topic, "*", handle)
    async with consumer, asyncio.timeout(LATER):
        [sent] = await asyncio.to_thread(scene.client.send, topic=topic, body="look")
        assert await got.get() == b"look"
        [member] = (await admin.groups.connections(group)).connection_set
        status, details, consumed = await scene.run(
            f"consumerStatus -g {group} -s true",
            f"consumerStatus -g {group} -i {member.client_id} -s true",
            f"queryMsgById -t {topic} -i {sent.offset_id} -g {group} -d {member.client_id}",
        )
        assert member.client_id in status
        assert "Rebalance OK" in status
        assert f"{topic}" in details
        assert "PROP_CONSUME_TYPE" in details
        assert "CR_SUCCESS" in consumed
        assert await got.get() == b"look"


# Apache's brokers


@pytest.mark.scenario("client 60")
@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
async def test_our_admin_client_works_with_brokers_of_apache(cluster: Cluster, version: str) -> None:
    [broker] = [each for each in cluster.brokers if each.name.endswith(version)]
    topic, group = f"apache-{version.replace('.', '-')}", f"apache-group-{version.replace('.', '-')}"
    queue = MessageQueue(broker_name=broker.name, queue_id=0, topic=topic)
    async with AdminClient(cluster.namesrv.address) as admin:
        assert await admin.topics.create(topic, brokers=broker.name, read_queues=1, write_queues=1) == [broker.address]
        assert (await admin.topics.config(topic))[broker.name].write_queue_nums == 1
        await admin.groups.create(group, brokers=broker.name)
        assert group in await admin.groups.configs(broker.name)
        async with Producer("admin-producers", namesrv=cluster.namesrv.address) as producer:
            sent = [
                await producer.send(Message(topic, b"%d" % number, keys=["k", f"k-{number}"], tags="red"))
                for number in range(3)
            ]
        assert (await admin.topics.stats(topic))[queue].max_offset == 3

        async def indexed() -> bool:
            try:
                return len(await admin.messages.by_key(topic, "k")) == 3
            except NoMessage:
                return False

        await eventually(indexed)
        [by_key] = await admin.messages.by_key(topic, "k-1")
        for message in (
            by_key,
            await admin.messages.by_uniq_key(topic, sent[1].id),
            await admin.messages.by_offset_id(sent[1].offset_id),
            await admin.messages.get(topic, sent[1].offset_id),
            await admin.messages.at(queue, 1),
        ):
            assert (message.body, message.queue, message.queue_offset) == (b"1", queue, 1)
        with pytest.raises(NoMessage):
            await admin.messages.by_key(topic, "no-such-key")
        assert len((await admin.messages.consume_queue(queue, 0)).queue_data) == 3

        # A group that nobody has joined: all of it is done at the broker.
        await admin.offsets.set(group, {queue: 1})
        assert await admin.offsets.committed(group, queue) == 1
        [row] = (await admin.groups.progress(group, topic)).rows
        assert (row.broker_offset, row.consumer_offset, row.lag) == (3, 1, 2)
        assert (await admin.groups.progress(group)).lag == 2
        assert (await admin.offsets.reset(group, topic, None)).offsets == {queue: 3}
        assert await admin.offsets.at_time(queue, EPOCH) == 0
        copy = f"{group}-copy"
        await admin.groups.create(copy, brokers=broker.name)
        assert await admin.offsets.clone(group, copy, topic) == [topic]
        assert await admin.offsets.committed(copy, queue) == await admin.offsets.committed(group, queue)
        assert group in await admin.topics.groups(topic)
        assert {track.state for track in await admin.messages.track(by_key)} == {TrackState.NOT_ONLINE}
        assert (await admin.groups.time_span(group, topic))[0].message_queue == queue

        assert (await admin.brokers.config(broker.name))["brokerName"] == broker.name
        await admin.brokers.set_config({"fileReservedTime": "73"}, brokers=broker.name)
        assert (await admin.brokers.config(broker.name))["fileReservedTime"] == "73"
        assert int((await admin.brokers.runtime(broker.name))["msgPutTotalTodayNow"]) >= 3
        assert broker.name in (await admin.brokers.cluster_info()).cluster_addr_table[APACHE_CLUSTER]
        stats = await admin.brokers.consume_stats(broker.name)
        assert any(group in each for each in stats.consume_stats_list)
        assert "TBW102" in await admin.topics.system()
        for clean in (admin.brokers.clean_queues, admin.brokers.clean_topics, admin.brokers.clean_log):
            assert await clean(brokers=broker.name) == [broker.address]

        await admin.groups.delete(group, brokers=broker.name, remove_offsets=True)
        assert group not in await admin.groups.configs(broker.name)
        await admin.topics.delete(topic)
        with pytest.raises(TopicNotFound):
            await admin.topics.route(topic)
