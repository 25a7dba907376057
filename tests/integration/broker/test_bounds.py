"""What clients can make a broker keep by itself is bounded, and the refusal names the setting."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import threading

import pytest
from tests.integration.broker.scene_kit import SUBSCRIPTION, SUSPEND, heartbeat, pull_ext, send_ext

from pyromq.broker.offsets import room
from pyromq.store.disk import Disk


async def count_of_queues(client):
    topics = await client.topics()
    return sum(max(each["readQueueNums"], each["writeQueueNums"]) for each in topics.values())


async def create_group(client, name, **more):
    return await client.call(200, body=json.dumps({"groupName": name} | more).encode())


@pytest.mark.limit("maxAutoCreatedTopics")
async def test_a_send_creates_no_topic_beyond_the_bound_but_an_operator_does(start):
    async with start() as scene:
        client = await scene.connect()
        there = len(await client.topics())
        await client.configure(f"maxAutoCreatedTopics={there + 2}")
        assert [(await client.put(topic=f"new{n}")).code for n in range(3)] == [0, 0, 17]
        for topic in ("new2", "%RETRY%nobody"):
            reply = await client.put(topic=topic)
            assert reply.code == 17
            assert f"there are {there + 2} topics or more (maxAutoCreatedTopics)" in reply.remark
        assert (await client.put(topic="new1")).code == 0
        assert (await client.create_topic("made")).code == 0
        assert (await client.put(topic="made")).code == 0


@pytest.mark.limit("maxAutoCreatedGroups")
async def test_a_consumer_creates_no_group_beyond_the_bound(start, caplog):
    async with start("maxAutoCreatedGroups=0") as scene:
        client = await scene.connect()
        await client.sent()
        before = set(await client.topics())
        await client.beat(groups=("g1", "g2"))
        assert (await client.pull(group="g1")).code == 26
        assert set(await client.topics()) == before
        assert caplog.text.count("maxAutoCreatedGroups") == 1
        await client.configure("maxAutoCreatedGroups=1000")
        assert (await client.pull(group="g1")).code == 0


@pytest.mark.limit("maxConsumerOffsets")
async def test_offsets_are_bounded(start, monkeypatch):
    async with start("maxConsumerOffsets=2") as scene:
        client = await scene.connect()
        await client.sent()
        await client.beat()
        await client.commit(1, queue_id=0)
        await client.commit(1, queue_id=1)
        ext = {"consumerGroup": "g", "topic": "T", "queueId": 2, "commitOffset": 1}
        reply = await client.call(15, ext)
        assert reply.code == 1
        assert "there are 2 or more already (maxConsumerOffsets)" in reply.remark
        # A pull that carries such an offset is served all the same.
        assert (await client.pull(queue_id=2, sysFlag=1 | 4, commitOffset=1)).code == 19
        await client.commit(2, queue_id=1)
        # What went makes room.
        monkeypatch.setattr(room, "_COUNT_AGAIN", -1.0)
        assert (await client.call(207, {"groupName": "g", "cleanOffset": "true"})).code == 0
        assert (await client.call(15, ext)).code == 0


@pytest.mark.limit("maxTopics")
async def test_topics_are_bounded_for_operators_and_senders_alike(start):
    async with start() as scene:
        client = await scene.connect()
        there = len(await client.topics())
        await client.configure(f"maxTopics={there + 1}")
        assert (await client.create_topic("a")).code == 0
        refused = await client.create_topic("b")
        assert refused.code == 1
        full = f"there are {there + 1} topics or more (maxTopics)"
        assert refused.remark == f"The topic[b] is not created: {full}."
        refused = await client.put(topic="c")
        assert (refused.code, refused.remark) == (17, f"topic[c] not exist, and is not created: {full}")
        # What is there can be changed, and what goes makes room.
        assert (await client.create_topic("a", read=8, write=8)).code == 0
        assert (await client.call(215, {"topic": "a"})).code == 0
        assert (await client.create_topic("b")).code == 0
        # A group gets its retry topic all the same.
        await client.beat()
        assert "%RETRY%g" in await client.topics()


@pytest.mark.limit("maxQueues")
async def test_queues_of_all_topics_are_bounded(start):
    async with start() as scene:
        client = await scene.connect()
        there = await count_of_queues(client)
        await client.configure(f"maxQueues={there + 10}")
        assert (await client.create_topic("a", read=4, write=6)).code == 0
        refused = await client.create_topic("b", read=5)
        assert refused.code == 1
        assert refused.remark == (
            f"The topic[b] is not created: all topics together can have at most {there + 10} queues (maxQueues)."
        )
        assert (await client.create_topic("a", read=11)).remark.startswith("The topic[a] is not changed: ")
        assert (await client.put(topic="c", queues=5)).code == 17
        assert (await client.create_topic("a", read=2, write=3)).code == 0
        assert (await client.put(topic="c", queues=7)).code == 0
        assert await count_of_queues(client) == there + 10


@pytest.mark.limit("maxQueuesPerTopic")
async def test_queues_of_one_topic_are_bounded_and_may_shrink_if_there_are_more(start):
    async with start() as scene:
        client = await scene.connect()
        assert (await client.create_topic("a", read=8, write=8)).code == 0
        await client.configure("maxQueuesPerTopic=5")
        refused = await client.create_topic("b", read=6)
        assert (refused.code, refused.remark) == (1, "The topic[b] can have at most 5 queues (maxQueuesPerTopic).")
        assert (await client.create_topic("a", read=9, write=8)).code == 1
        assert (await client.create_topic("a", read=8, write=4)).code == 0
        refused = await create_group(client, "g", retryQueueNums=6)
        assert (refused.code, "maxQueuesPerTopic" in refused.remark) == (1, True)


@pytest.mark.limit("maxGroups")
async def test_groups_are_bounded_for_operators_and_consumers_alike(start, caplog):
    async with start() as scene:
        client = await scene.connect()
        await client.sent()
        there = len((await client.call(201)).json["subscriptionGroupTable"])
        await client.configure(f"maxGroups={there + 1}")
        assert (await create_group(client, "a")).code == 0
        refused = await create_group(client, "b")
        remark = f"The group[b] is not created: there are {there + 1} groups or more (maxGroups)."
        assert (refused.code, refused.remark) == (1, remark)
        assert (await client.pull(group="c")).code == 26
        assert "group c not created" in caplog.text
        assert "(maxGroups)" in caplog.text
        assert (await create_group(client, "a", retryQueueNums=2)).code == 0
        assert (await client.call(207, {"groupName": "a"})).code == 0
        assert (await create_group(client, "b")).code == 0


@pytest.mark.limit("maxGroupsPerClient")
async def test_groups_of_one_client_are_bounded_over_all_its_heartbeats(start):
    async with start("maxGroupsPerClient=3") as scene:
        client, other = await scene.connect(), await scene.connect()
        await client.beat(groups=("a", "b"))
        await client.beat(groups=("a", "c"))
        before = set(await client.topics())
        refused = await client.call(34, body=heartbeat("c1", ("d",)))
        remark = "one client can have at most 3 groups, not 4 (maxGroupsPerClient)"
        assert (refused.code, refused.remark) == (1, remark)
        producers = {"clientID": "c1", "consumerDataSet": [], "producerDataSet": [{"groupName": "p"}]}
        assert (await client.call(34, body=json.dumps(producers).encode())).remark == remark
        long = producers | {"producerDataSet": [{"groupName": "p" * 5000}]}
        assert (await other.call(34, body=json.dumps(long).encode())).code == 1
        # Nothing came of it, the groups that it has stay, and one that it leaves makes room.
        assert set(await client.topics()) == before
        assert await client.members("d") == []
        await client.beat(groups=("a", "b", "c"))
        await other.beat("c2", groups=("d",))
        assert (await client.call(35, {"clientID": "c1", "consumerGroup": "b"})).code == 0
        await client.beat(groups=("d",))


@pytest.mark.limit("maxSubscriptionsPerClient")
async def test_subscriptions_of_one_client_are_bounded_over_all_its_groups(start):
    async with start("maxSubscriptionsPerClient=5") as scene:
        client = await scene.connect()
        await client.beat(groups=("a",), topics=("t1", "t2", "t3"))
        refused = await client.call(34, body=heartbeat("c1", ("b",), ("t1", "t2", "t3")))
        remark = "one client can have at most 5 subscriptions, not 6 (maxSubscriptionsPerClient)"
        assert (refused.code, refused.remark) == (1, remark)
        await client.beat(groups=("a",), topics=("t1",))
        await client.beat(groups=("b",), topics=("t1", "t2", "t3"))
        # A filter of many kilobytes takes as much memory as many small ones.
        assert (await client.call(34, body=heartbeat("c1", ("a",), ("t1",), tags="x" * 3000))).code == 1


@pytest.mark.limit("maxHeldPulls")
@pytest.mark.limit("maxHeldPullsPerConnection")
@pytest.mark.limit("maxHeldPullsPerQueue")
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("maxHeldPulls", "this broker already has 3 waiting pulls, the most allowed (maxHeldPulls)"),
        ("maxHeldPullsPerConnection", "this connection already has 3 waiting pulls, the most allowed (maxHeld"),
        ("maxHeldPullsPerQueue", "this queue already has 3 waiting pulls, the most allowed (maxHeldPullsPerQueue)"),
    ],
)
async def test_pulls_that_wait_are_bounded(start, setting, said):
    async with start(f"{setting}=3") as scene:
        client = await scene.connect()
        await client.sent()
        waiting = [client.ask(11, pull_ext(offset=1, flag=SUBSCRIPTION | SUSPEND)) for _ in range(3)]
        refused = await client.pull(offset=1, flag=SUBSCRIPTION | SUSPEND)
        assert refused.code == 2
        assert said in refused.remark
        # Others get what is there, and those that wait are answered and make room.
        assert len(await client.read()) == 1
        await client.sent()
        assert [(await client.answer_to(each)).code for each in waiting] == [0] * 3
        assert await client.is_silent(client.ask(11, pull_ext(offset=2, flag=SUBSCRIPTION | SUSPEND)))


async def test_a_pull_that_says_very_much_counts_as_several(start):
    async with start("maxHeldPullsPerConnection=3") as scene:
        client = await scene.connect()
        await client.sent()
        long = pull_ext(offset=1, flag=SUBSCRIPTION | SUSPEND, nobodyReadsThis="x" * 20_000)
        assert await client.is_silent(client.ask(11, long))
        assert (await client.pull(offset=1, flag=SUBSCRIPTION | SUSPEND)).code == 2


@pytest.mark.limit("maxConnectionsPerAddress")
async def test_connections_of_one_address_are_bounded_over_both_ports(start):
    async with start("maxConnectionsPerAddress=3") as scene, contextlib.AsyncExitStack() as clients:
        client = await scene.connect()
        for port in (scene.port, scene.port - 2):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            clients.callback(writer.close)
            # Counted once it is accepted, which what comes next does not wait for.
            writer.write(struct.pack(">i", 100))
        await client.call(26)
        for port in (scene.port, scene.port - 2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            clients.callback(writer.close)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        # Another address is not affected.
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        sock.setblocking(False)
        sock.bind(("127.0.0.2", 0))
        await loop.sock_connect(sock, ("127.0.0.1", scene.port))
        reader, writer = await asyncio.open_connection(sock=sock)
        clients.callback(writer.close)
        writer.write(struct.pack(">ii", 8, 4) + b'{"":')
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
        assert (await client.call(26)).code == 0


@pytest.mark.limit("maxRequestsPerSecond")
@pytest.mark.limit("maxBytesPerSecond")
@pytest.mark.parametrize("change", ["maxRequestsPerSecond=5", "maxBytesPerSecond=2000"])
async def test_rates_can_be_limited_while_the_broker_runs(start, change):
    async with start() as scene:
        client = await scene.connect()
        for _ in range(50):
            await client.sent()
        assert (await client.configure(change)).code == 0
        codes = [(await client.call(26)).code for _ in range(30)]
        assert codes[0] == 0
        assert 2 in codes
        key = change.partition("=")[0]

        async def switched_off():
            return (await client.configure(f"{key}=0")).code == 0

        await client.until(switched_off)
        for _ in range(50):
            await client.sent()


@pytest.mark.limit("maxRequestHeaderSize")
async def test_a_header_is_bounded_and_the_log_says_so(start, caplog):
    async with start("maxRequestHeaderSize=64k") as scene:
        client = await scene.connect()
        assert (await client.call(26, {"x": "y" * 60_000})).code == 0
        client.send(struct.pack(">ii", 70_004, 70_000) + b" " * 1000)
        assert await client.closed_by_server() == b""
        assert "header of 70000 bytes; at most 65536 are taken (maxRequestHeaderSize)" in caplog.text


@pytest.mark.limit("com.rocketmq.remoting.frameMaxLength")
async def test_a_frame_is_bounded(start, caplog):
    async with start("com.rocketmq.remoting.frameMaxLength=1m") as scene:
        client = await scene.connect()
        client.send(struct.pack(">i", 1 << 20))
        assert await client.closed_by_server() == b""
        assert f"frame length {1 << 20} is not within 4 and {(1 << 20) - 4}" in caplog.text


@pytest.mark.limit("endTransactionPoolQueueCapacity")
async def test_ends_of_transactions_are_refused_while_too_many_wait_for_the_disk(start, monkeypatch):
    free = threading.Event()
    free.set()
    sync = Disk.sync

    def sync_when_it_can(disk, fd):
        assert free.wait(30)
        sync(disk, fd)

    monkeypatch.setattr(Disk, "sync", sync_when_it_can)
    async with start("flushDiskType=SYNC_FLUSH", "endTransactionPoolQueueCapacity=1") as scene:
        client = await scene.connect()
        await client.sent()
        free.clear()
        waiting = client.ask(310, send_ext(), b"m")
        await client.call(26)
        ends = {"producerGroup": "p", "tranStateTableOffset": 0, "commitLogOffset": 0, "commitOrRollback": 8}
        refused = await client.call(37, ends | {"fromTransactionCheck": "false", "msgId": "m", "transactionId": "m"})
        free.set()
        assert (refused.code, refused.remark) == (2, "[OVERLOAD]system busy, start flow control for a while")
        assert (await client.answer_to(waiting)).code == 0
