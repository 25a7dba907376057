"""Our consumers as members of groups at Apache's brokers: who reads what, from where, and who asks them for it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop.apache import CONSUMED_WITHIN
from tests.interop.apache_scene import Changed, Scene, scene_of
from tests.interop.apache_with_client import Apache, committed
from tests.interop.received_by_us import Inbox, consumer_of, cut_off, eventually, queues_of

from pyromq.client import (
    LocalOffsetStore,
    Message,
    Producer,
    Retry,
    StartAt,
)
from pyromq.errors import PyroMQError
from pyromq.protocol.bodies import CMResult
from pyromq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pyromq.client import Consumer, ReceivedMessage

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("nothing_is_left")]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NO_SUCH_REQUEST = 9999


@pytest.fixture
async def scene(apache: Apache, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    async with scene_of(apache, request.node.name) as scene:
        yield scene


# Members of a group


@pytest.mark.scenario("client 29")
async def test_the_queues_of_a_member_that_goes_are_taken_over(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 4)
    inboxes = [Inbox() for _ in range(3)]
    first, second, third = (scene.consumer(inbox) for inbox in inboxes)
    await first.start()
    await second.start()
    async with third:
        await eventually(
            lambda: sorted(len(queues_of(each, scene.topic)) for each in (first, second, third)) == [1, 1, 2],
            "all three have a share",
        )
        began = time.monotonic()
        await first.close()
        await eventually(
            lambda: len(queues_of(second, scene.topic)) == len(queues_of(third, scene.topic)) == 2, "two each"
        )
        assert time.monotonic() - began < 5  # 2 s on a machine that does nothing else
        await cut_off(second.client)
        await scene.owns(third, 4)
        await inboxes[2].holds_all(await scene.send_numbers(8, 4))
    await second.close()


@pytest.mark.scenario("client 31")
async def test_a_queue_whose_offset_cannot_be_asked_for_is_skipped(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    await scene.send_numbers(3)
    await scene.admin.groups.create(scene.group, brokers=scene.apache.broker.name)  # 5.x refuses unknown groups
    await scene.admin.offsets.set(scene.group, {scene.queue(): 1})
    hook = Changed(RequestCode.QUERY_CONSUMER_OFFSET, becomes=NO_SUCH_REQUEST)
    inbox = Inbox()
    async with scene.consumer(inbox, start_at=StartAt.LAST, client=scene.apache.client(hooks=[hook])) as consumer:
        await eventually(lambda: hook.count > 2, "the offset was asked for")
        assert queues_of(consumer, scene.topic) == set()
        hook.active = False
        assert sorted(await inbox.holds(2)) == ["1", "2"]


# Broadcasting


@pytest.mark.scenario("client 46")
async def test_java_goes_on_where_our_broadcasting_member_ended(scene: Scene) -> None:
    apache, name = scene.apache, f"both-{scene.apache.version.replace('.', '-')}"
    await apache.create_topic(scene.topic, 2)
    # The member's name, of which the machine's address is a part, is the name of the folder of its offsets.
    await apache.ask_java("push", name=name, group=scene.group, topic=scene.topic, broadcast=1)
    address = apache.java.client_id(name).partition("@")[0]
    await apache.ask_java("leave", name=name)
    inboxes, members, store = [], [], None
    for instance in (name, f"{name}-other"):
        client = apache.client(client_ip=address, instance_name=instance)
        folder = apache.java_home / ".rocketmq_offsets"
        store = LocalOffsetStore.of(client.client_id, scene.group, folder)
        inbox = Inbox()

        async def handler(message: ReceivedMessage, inbox: Inbox = inbox) -> Any:
            await inbox.add(message)
            return Retry if message.body == b"1" else None

        inboxes.append(inbox)
        members.append(await scene.consumer(handler, broadcast=True, client=client, offset_store=store).start())
    assert members[0].client.client_id == apache.java.client_id(name)
    for member in members:
        await scene.owns(member, 2)
    await scene.send_numbers(6, 2)
    for inbox, member in zip(inboxes, members, strict=True):
        await inbox.holds(6)
        await member.close()
        assert sorted(inbox.bodies) == list("012345"), "each once: a failure is not tried again"
    await apache.ask_java("push", name=name, group=scene.group, topic=scene.topic, broadcast=1)
    await scene.send("later")
    await apache.java_got(name, {"later"}, CONSUMED_WITHIN)
    assert apache.java.bodies(name) == ["later"]
    await apache.ask_java("leave", name=name)


# What others ask of a consumer


@pytest.mark.scenario("client 47")
async def test_consumption_starts_over_where_an_admin_says(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 2)
    bodies = await scene.send_numbers(10, 2)
    inbox = Inbox()
    async with scene.consumer(inbox) as consumer:
        await inbox.holds(10)
        await scene.commits(5, 0)
        await scene.commits(5, 1)
        reset = await scene.admin.offsets.reset(scene.group, scene.topic, EPOCH)
        assert reset.online == (scene.apache.broker.name,)
        assert set(reset.offsets.values()) == {0}
        began = time.monotonic()
        # 5.x tells consumers nothing: it answers their next pull otherwise. One that it holds may last 15 s more.
        for queue_id in range(2):
            await scene.send("new", queue_id=queue_id)
        await inbox.holds_all(bodies | {"new"})
        await eventually(lambda: all(inbox.bodies.count(body) >= 2 for body in bodies), "everything came again")
        assert time.monotonic() - began < 12
        await scene.commits(6, 0)
        await scene.commits(6, 1)
        await scene.owns(consumer, 2)


@pytest.mark.scenario("client 48")
async def test_mqadmin_and_our_admin_client_look_into_a_consumer(scene: Scene) -> None:
    apache, topic, group = scene.apache, scene.topic, scene.group
    await apache.create_topic(topic, 2)
    inbox = Inbox()

    async def handler(message: ReceivedMessage) -> Any:
        await inbox.add(message)
        return Retry if message.body == b"later" and len(inbox.messages) > 2 else None

    async with scene.consumer(handler) as consumer:
        sent = [await scene.producer.send(topic, body) for body in (b"look", b"later")]
        await inbox.holds(2)
        name = consumer.client.client_id
        of_topic = f"-t {topic} " if apache.version.startswith("5.") else ""
        status, details, directly = await apache.run_mqadmin(
            f"consumerStatus -g {group} -s true",
            f"consumerStatus -g {group} -i {name} -s true",
            f"queryMsgById {of_topic}-i {sent[0].offset_id} -g {group} -d {name}",
        )
        assert name in status
        assert "Rebalance OK" in status
        for part in ("PROP_CONSUME_TYPE", "#Consumer Offset#", "#Consumer MQ Detail#", topic):
            assert part in details
        assert "CR_SUCCESS" in directly
        await inbox.holds(3)
        result = await scene.admin.messages.consume_directly(group, sent[1].offset_id, client_id=name)
        assert result.consume_result is CMResult.CR_LATER
        info = await scene.admin.clients.running_info(group, name)
        assert {queue.queue_id for queue in info.mq_table if queue.topic == topic} == {0, 1}
        offsets = await scene.admin.clients.consume_status(group, topic)
        assert sum(offsets[name].values()) == 2


# The end


@pytest.mark.scenario("client 49")
@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
async def test_closing_under_load_drains_commits_and_says_goodbye(scene: Scene, ordered: bool) -> None:
    await scene.apache.create_topic(scene.topic, 2)
    for queue_id in range(2):
        batch = [Message(scene.topic, b"%d" % number) for number in range(400)]
        await scene.producer.send_batch(batch, queue=scene.queue(queue_id))
    done: dict[int, set[int]] = {0: set(), 1: set()}
    running, inbox = [0], Inbox()

    async def handler(message: ReceivedMessage) -> None:
        running[0] += 1
        await asyncio.sleep(0.01)
        running[0] -= 1
        done[message.queue.queue_id].add(message.offset)
        await inbox.add(message)

    consumer = scene.consumer(handler, ordered=ordered, drain=3.0, client=scene.apache.client(offset_interval=60.0))
    await consumer.start()
    await inbox.holds(20)
    began = time.monotonic()
    await consumer.close()
    assert time.monotonic() - began < 8
    assert running == [0]
    for queue_id, offsets in done.items():
        first_unfinished = next(offset for offset in range(401) if offset not in offsets)
        stored = await committed(scene.admin, scene.group, scene.queue(queue_id))
        assert (stored or 0) == first_unfinished
    with pytest.raises(PyroMQError):
        await scene.admin.groups.connections(scene.group)


# Brokers that go, and messages that are gone: these come last, for they change what the others have


@pytest.mark.scenario("client 30")
async def test_a_new_group_begins_where_it_was_told_to(scene: Scene) -> None:
    apache, topic = scene.apache, scene.topic
    await apache.create_topic(topic, 1)
    body = bytes(200_000)  # a hundred of them are more than a file of the commit log
    async with Producer("big", namesrv=apache.namesrv, compress_over=1 << 30) as producer:
        for number in range(100):
            await producer.send(Message(topic, b"%d " % number + body), queue=scene.queue())
            if number == 97:
                await asyncio.sleep(1.0)
                between = datetime.now(UTC)  # much nearer to the next message, which is what 4.9 goes by
                await asyncio.sleep(0.1)
    await scene.admin.brokers.set_config({"fileReservedTime": "0"}, brokers=apache.broker.name)
    await scene.admin.brokers.clean_log(brokers=apache.broker.name)

    async def begins() -> int:
        return await scene.admin.offsets.minimum(scene.queue())

    try:
        first = await eventually(begins, "the first file is deleted", 90.0)
    finally:
        await scene.admin.brokers.set_config({"fileReservedTime": "72"}, brokers=apache.broker.name)

    async def starting(start_at: StartAt | datetime, name: str) -> tuple[Inbox, Consumer]:
        inbox = Inbox()
        settings = {"start_at": start_at, "max_concurrency": 1, "client": apache.client()}
        consumer = await consumer_of(f"{name}-{scene.group}"[-120:], topic, inbox, **settings).start()
        await scene.owns(consumer, 1)
        return inbox, consumer

    def numbers(inbox: Inbox) -> list[int]:
        return sorted(int(message.body.split()[0]) for message in inbox.messages)

    from_first, one = await starting(StartAt.FIRST, "first")
    from_last, two = await starting(StartAt.LAST, "last")
    from_time, three = await starting(between, "time")
    try:
        await scene.send("100 next")
        await from_first.holds(101 - first)
        assert numbers(from_first) == list(range(first, 101))
        await from_time.holds(3)
        assert numbers(from_time) == [98, 99, 100]
        await from_last.holds(1)
        assert numbers(from_last) == [100]
    finally:
        for consumer in (one, two, three):
            await consumer.close()


@pytest.mark.scenario("client 34")
@pytest.mark.scenario("client 49")
async def test_consumption_goes_on_after_the_broker_was_killed_and_started_again(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 4)
    inbox, other = Inbox(), Inbox()
    leaving = await consumer_of(f"{scene.group}-2", scene.topic, other, client=scene.apache.client()).start()
    async with scene.consumer(inbox) as consumer:
        stored = await scene.send_numbers(20, 4)
        await inbox.holds_all(stored)
        await other.holds_all(stored)
        await asyncio.to_thread(scene.apache.kill_broker)
        began = time.monotonic()
        await leaving.close()
        assert time.monotonic() - began < 15  # 10 for handlers and 5 for the rest; nobody is there to be told
        scene.apache.spawn_broker()
        await asyncio.to_thread(scene.apache.wait_for_broker)
        acknowledged = set()
        for number in range(20, 40):
            with contextlib.suppress(PyroMQError):  # what is not acknowledged may or may not be there
                await scene.send(str(number), queue_id=number % 4)
                acknowledged.add(str(number))
        assert len(acknowledged) > 10
        await inbox.holds_all(stored | acknowledged, 140.0)
        assert queues_of(consumer, scene.topic) == {0, 1, 2, 3}
