"""Our consumers against Apache's brokers of both lines: groups, retries, order, broadcasting, and brokers that go."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop.apache_with_client import LEVEL_OF_A_SECOND, Apache, committed
from tests.interop.received_by_us import Inbox, consumer_of, cut_off, eventually, queues_of

from pyromq.client import (
    AckUpTo,
    AdminClient,
    DeadLetter,
    Hook,
    LocalOffsetStore,
    Message,
    Producer,
    PullConsumer,
    Retry,
    StartAt,
)
from pyromq.errors import PyroMQError, StateError
from pyromq.protocol.bodies import CMResult
from pyromq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pyromq.client import Consumer, MessageQueue, ReceivedMessage
    from pyromq.protocol.command import Command

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("nothing_is_left")]

SOON = 20.0
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NO_SUCH_REQUEST = 9999


class Scene:
    """What one test works with: a topic and a group of its own at a broker, and someone to send and to look."""

    def __init__(self, apache: Apache, topic: str, producer: Producer, admin: AdminClient) -> None:
        self.apache = apache
        self.topic = topic
        self.group = f"g-{topic}"
        self.producer = producer
        self.admin = admin

    def consumer(self, handler: Any = None, **settings: Any) -> Consumer:
        if "client" not in settings:
            settings["client"] = self.apache.client()
        return consumer_of(self.group, self.topic, handler, **settings)

    def queue(self, queue_id: int = 0) -> MessageQueue:
        return self.apache.queue(self.topic, queue_id)

    async def send(self, *bodies: str, queue_id: int = 0, **fields: Any) -> None:
        for body in bodies:
            await self.producer.send(Message(self.topic, body.encode(), **fields), queue=self.queue(queue_id))

    async def send_numbers(self, count: int, queues: int = 1) -> set[str]:
        """Send 0, 1, … to the queues in turn; gives the bodies."""
        for number in range(count):
            await self.send(str(number), queue_id=number % queues)
        return set(map(str, range(count)))

    async def commits(self, offset: int, queue_id: int = 0) -> None:
        async def reached() -> bool:
            return await committed(self.admin, self.group, self.queue(queue_id)) == offset

        await eventually(reached, f"{offset} is committed")

    async def owns(self, consumer: Consumer, count: int) -> None:
        await eventually(lambda: len(queues_of(consumer, self.topic)) == count, f"{count} queues are owned")

    async def dead_letters(self, count: int) -> list[ReceivedMessage]:
        """Wait until the group has so many dead letters; gives them."""
        inbox = Inbox()
        consumer = consumer_of(f"{self.group}-dead", f"%DLQ%{self.group}", inbox, client=self.apache.client())
        async with consumer:
            await inbox.holds(count)
        return inbox.messages


@pytest.fixture
async def scene(apache: Apache, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    letters = (letter if letter.isalnum() else "-" for letter in request.node.name[5:])
    name = "".join(letters).strip("-")[-90:]
    async with Producer("makers", namesrv=apache.namesrv) as producer, AdminClient(apache.namesrv) as admin:
        yield Scene(apache, name, producer, admin)


class Changed(Hook):
    """Changes requests of one code on their way out, so that the broker has a reason to refuse them."""

    def __init__(self, code: int, **changes: object) -> None:
        self.code = code
        self.changes = changes
        self.count = 0
        self.active = True

    def before_rpc(self, address: str, request: Command) -> None:
        if self.active and request.code == self.code:
            self.count += 1
            for name, value in self.changes.items():
                if name == "code":
                    request.code = int(str(value))
                else:
                    request.ext[name] = str(value)


class Counted(Hook):
    """Counts the pulls of each queue."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.pulls: dict[str, int] = {}
        self.codes: set[int] = set()

    def before_rpc(self, address: str, request: Command) -> None:
        self.codes.add(int(request.code))
        if request.code == RequestCode.PULL_MESSAGE and request.ext["topic"] == self._topic:
            queue = request.ext["queueId"]
            self.pulls[queue] = self.pulls.get(queue, 0) + 1


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
        await cut_off(second)
        await scene.owns(third, 4)
        await inboxes[2].holds_all(await scene.send_numbers(8, 4))


@pytest.mark.scenario("client 31")
async def test_a_queue_whose_offset_cannot_be_asked_for_is_skipped(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    await scene.send_numbers(3)
    await scene.admin.offsets.set(scene.group, {scene.queue(): 1})
    hook = Changed(RequestCode.QUERY_CONSUMER_OFFSET, code=NO_SUCH_REQUEST)
    inbox = Inbox()
    async with scene.consumer(inbox, start_at=StartAt.LAST, client=scene.apache.client(hooks=[hook])) as consumer:
        await eventually(lambda: hook.count > 2, "the offset was asked for")
        assert queues_of(consumer, scene.topic) == set()
        hook.active = False
        assert sorted(await inbox.holds(2)) == ["1", "2"]


# Pulling


@pytest.mark.scenario("client 33")
async def test_messages_come_at_once_and_idle_queues_are_hardly_asked(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 2)
    hook, inbox = Counted(scene.topic), Inbox()
    async with scene.consumer(inbox, client=scene.apache.client(hooks=[hook])) as consumer:
        await scene.owns(consumer, 2)
        await eventually(lambda: set(hook.pulls) == {"0", "1"}, "both queues are asked")
        await asyncio.sleep(1)
        before = dict(hook.pulls)
        await asyncio.sleep(3)
        assert all(hook.pulls[queue] - before[queue] <= 1 for queue in before)
        latencies = []
        for number in range(10):
            await scene.send(str(number))
            sent = time.monotonic()
            await inbox.holds(number + 1)
            latencies.append(inbox.times[-1] - sent)
        assert statistics.median(latencies) < 0.1, latencies


@pytest.mark.scenario("client 36")
async def test_of_tags_with_the_same_hash_only_the_wanted_one_comes(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    for number, tag in enumerate(("BB", "Aa", "BB", "Aa")):
        await scene.send(str(number), tags=tag)
    inbox = Inbox()
    async with scene.consumer(inbox, expr="Aa"):
        assert sorted(await inbox.holds(2)) == ["1", "3"]
        await scene.commits(4)
        assert len(inbox.messages) == 2


@pytest.mark.scenario("client 37")
async def test_progress_stays_at_the_smallest_unfinished_message(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    await scene.send_numbers(10)
    gates = {"0": asyncio.Event(), "5": asyncio.Event()}
    inbox = Inbox()

    async def handler(message: ReceivedMessage) -> None:
        await inbox.add(message)
        if gate := gates.get(message.body.decode()):
            await gate.wait()

    async with scene.consumer(handler):
        await inbox.holds(10)
        await asyncio.sleep(1)  # several commits
        assert await committed(scene.admin, scene.group, scene.queue()) in (None, 0)
        gates["0"].set()
        await scene.commits(5)
        gates["5"].set()
        await scene.commits(10)


# Failures


@pytest.mark.scenario("client 38")
async def test_a_message_that_fails_comes_again_and_ends_among_the_dead_letters(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    inbox = Inbox()

    async def handler(message: ReceivedMessage) -> None:
        await inbox.add(message)
        raise ValueError("no")

    async with scene.consumer(handler):
        sent = await scene.producer.send(scene.topic, b"poison", tags="T")
        await inbox.holds(17, 60.0)
        # The first retry takes the third level, which is a second here.
        assert 0.8 < inbox.times[1] - inbox.times[0] < 5
        assert [message.reconsume_times for message in inbox.messages] == list(range(17))
        assert {(message.topic, message.id) for message in inbox.messages} == {(scene.topic, sent.id)}
        [letter] = await scene.dead_letters(1)
        assert (letter.body, letter.tags, letter.id) == (b"poison", "T", sent.id)
        await scene.commits(1)
        assert len(inbox.messages) == 17


@pytest.mark.scenario("client 39")
async def test_dead_letters_and_chosen_delays(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    inbox = Inbox()

    async def handler(message: ReceivedMessage) -> Any:
        await inbox.add(message)
        if message.body == b"dead":
            return DeadLetter
        return Retry(LEVEL_OF_A_SECOND) if message.reconsume_times == 0 else None

    async with scene.consumer(handler):
        await scene.send("dead", "again")
        await inbox.holds(3)
        assert [letter.body for letter in await scene.dead_letters(1)] == [b"dead"]
        again = [at for body, at in zip(inbox.bodies, inbox.times, strict=True) if body == "again"]
        assert 0.8 < again[1] - again[0] < 4
        await scene.commits(2)
        assert inbox.bodies.count("dead") == 1


@pytest.mark.scenario("client 40")
async def test_what_the_broker_will_not_take_back_is_sent_to_the_retry_topic(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    # There is no message at this place of the commit log, so the broker refuses.
    hook, inbox = Changed(RequestCode.CONSUMER_SEND_MSG_BACK, offset=1 << 50), Inbox()

    async def handler(message: ReceivedMessage) -> Any:
        await inbox.add(message)
        return Retry if message.reconsume_times == 0 else None

    async with scene.consumer(handler, client=scene.apache.client(hooks=[hook])):
        await scene.send("x", keys=["k"], properties={"colour": "red"})
        await inbox.holds(2)
        assert hook.count == 1
        again = inbox.messages[1]
        assert (again.topic, again.reconsume_times, again.keys) == (scene.topic, 1, ["k"])
        assert again.id == inbox.messages[0].id
        assert again.properties["colour"] == "red"
        await scene.commits(1)


@pytest.mark.scenario("client 40")
async def test_what_the_broker_takes_in_no_way_is_tried_again_here(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    name = scene.apache.broker.name
    inbox = Inbox()

    async def handler(message: ReceivedMessage) -> Any:
        await inbox.add(message)
        return Retry if message.body == b"0" and len(inbox.messages) < 3 else None

    await scene.send("0", "1")
    await scene.admin.brokers.set_config({"brokerPermission": "4"}, brokers=name)  # it can be read, not written
    try:
        async with scene.consumer(handler):
            await inbox.holds(3)
            assert (inbox.bodies[-1], inbox.messages[-1].reconsume_times) == ("0", 1)
            assert inbox.times[2] - inbox.times[0] > 4.5
            await scene.commits(2)
    finally:
        await scene.admin.brokers.set_config({"brokerPermission": "6"}, brokers=name)


@pytest.mark.scenario("client 41")
async def test_of_a_batch_the_rest_is_delivered_again(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    await scene.producer.send_batch([Message(scene.topic, b"%d" % number) for number in range(5)])
    inbox, batches = Inbox(), []

    async def handler(messages: list[ReceivedMessage]) -> Any:
        batches.append(sorted(message.body.decode() for message in messages))
        for message in messages:
            await inbox.add(message)
        return AckUpTo(1) if messages[0].reconsume_times == 0 else None

    async with scene.consumer(handler, batch=5):
        await inbox.holds(8)
        assert batches[0] == ["0", "1", "2", "3", "4"]
        assert sorted(inbox.bodies[5:]) == ["2", "3", "4"]
        await scene.commits(5)


@pytest.mark.scenario("client 42")
async def test_a_handler_that_takes_too_long_has_its_message_given_back(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    await scene.send_numbers(2)
    stuck, inbox = asyncio.Event(), Inbox()

    async def handler(message: ReceivedMessage) -> Any:
        await inbox.add(message)
        if message.body == b"0" and message.reconsume_times == 0:
            await stuck.wait()
            return Retry
        return None

    async with scene.consumer(handler, consume_timeout=0.5):
        await scene.commits(2)
        await inbox.holds(3)
        assert [(each.body, each.reconsume_times) for each in inbox.messages if each.reconsume_times] == [(b"0", 1)]
        stuck.set()
    assert len(inbox.messages) == 3


# Order


@pytest.mark.scenario("client 43")
async def test_the_order_of_a_queue_is_kept_under_failures(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 4)
    await scene.send_numbers(40, 4)
    done: dict[int, list[int]] = {queue_id: [] for queue_id in range(4)}
    failed: dict[int, list[float]] = {}
    inbox = Inbox()

    async def handler(message: ReceivedMessage) -> None:
        number = int(message.body)
        if number in (1, 22) and len(failed.setdefault(number, [])) < 2:
            failed[number].append(time.monotonic())
            raise ValueError("not yet")
        done[message.queue.queue_id].append(number)
        await inbox.add(message)

    async with scene.consumer(handler, ordered=True, suspend=1.0):
        await inbox.holds(40)
        assert done == {queue_id: list(range(queue_id, 40, 4)) for queue_id in range(4)}
        assert all(0.9 < second - first < 3 for first, second in failed.values())
        # The queues of the failing messages waited, the others did not.
        last = {message.queue.queue_id: at for message, at in zip(inbox.messages, inbox.times, strict=True)}
        assert max(last[0], last[3]) < min(last[1], last[2])
        for queue_id in range(4):
            await scene.commits(10, queue_id)


@pytest.mark.scenario("client 44")
async def test_in_order_a_poison_message_ends_among_the_dead_letters_and_its_queue_goes_on(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    inbox = Inbox()

    async def handler(message: ReceivedMessage) -> None:
        await inbox.add(message)
        if message.body == b"poison":
            raise ValueError("no")

    async with scene.consumer(handler, ordered=True, max_retries=3, suspend=0.05):
        await scene.send("poison", "good")
        await inbox.holds(5)
        assert inbox.bodies == ["poison"] * 4 + ["good"]
        assert [letter.body for letter in await scene.dead_letters(1)] == [b"poison"]
        await scene.commits(2)


@pytest.mark.scenario("client 43")
async def test_two_members_in_order_never_share_a_queue(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 4)
    got: dict[int, list[int]] = {queue_id: [] for queue_id in range(4)}
    busy: set[int] = set()
    inbox = Inbox()

    async def handler(message: ReceivedMessage) -> None:
        queue_id = message.queue.queue_id
        assert queue_id not in busy, "two members at once"
        busy.add(queue_id)
        await asyncio.sleep(0.005)
        got[queue_id].append(int(message.body))
        busy.discard(queue_id)
        await inbox.add(message)

    async with scene.consumer(handler, ordered=True) as first:
        await scene.owns(first, 4)
        sending = asyncio.create_task(scene.send_numbers(200, 4))
        async with scene.consumer(handler, ordered=True) as second:
            await eventually(
                lambda: len(queues_of(first, scene.topic)) == len(queues_of(second, scene.topic)) == 2, "two each"
            )
            await inbox.holds_all(await sending)
    for queue_id, numbers in got.items():
        assert list(dict.fromkeys(numbers)) == list(range(queue_id, 200, 4))  # some may come twice, none out of turn


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
    await apache.java_got(name, {"later"}, SOON)
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
        await inbox.holds(20)
        assert time.monotonic() - began < 12
        assert set(inbox.bodies[10:]) == bodies
        await scene.commits(5, 0)
        await scene.commits(5, 1)
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


@pytest.mark.scenario("client 55")
async def test_a_loop_that_raises_leaves_its_message_to_be_delivered_again(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    await scene.send_numbers(4)
    seen: list[str] = []

    async def fail_at_the_third(consumer: Consumer) -> None:
        async for message in consumer:
            seen.append(message.body.decode())
            if len(seen) == 3:
                raise ValueError("third")

    async with scene.consumer() as consumer:
        with pytest.raises(ValueError, match="third"):
            await asyncio.wait_for(fail_at_the_third(consumer), SOON)
        third = seen[2]
        async with asyncio.timeout(SOON):
            async for message in consumer:
                seen.append(message.body.decode())
                if len(seen) == 5:
                    message.ack()
                    break
        await scene.commits(4)
    assert sorted(seen) == sorted([*"0123", third])


# Polling


@pytest.mark.scenario("client 51")
@pytest.mark.scenario("client 53")
async def test_what_was_polled_comes_again_unless_it_was_committed(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    await scene.send_numbers(6)
    hook = Counted(scene.topic)

    def member() -> PullConsumer:
        client = scene.apache.client(stream=True, hooks=[hook])
        return PullConsumer(scene.group, {scene.topic: "*"}, client=client, pull_batch=2, start_at=StartAt.FIRST)

    async def polled(consumer: PullConsumer, count: int) -> list[str]:
        bodies: list[str] = []
        async with asyncio.timeout(SOON):
            while len(bodies) < count:
                bodies += [message.body.decode() for message in await consumer.poll(max=count - len(bodies))]
        return bodies

    crashed = await member().start()
    assert await polled(crashed, 2) == ["0", "1"]
    await cut_off(crashed)
    with contextlib.suppress(PyroMQError):
        await crashed.close()
    async with member() as again:
        assert await polled(again, 4) == ["0", "1", "2", "3"]
        await again.commit()
    async with member() as at_last:
        assert await polled(at_last, 2) == ["4", "5"]
    assert RequestCode.PULL_MESSAGE in hook.codes
    assert RequestCode.LITE_PULL_MESSAGE not in hook.codes


@pytest.mark.scenario("client 52")
async def test_seeking_and_assigning(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 2)
    await scene.send_numbers(10, 2)
    with pytest.raises(StateError):
        PullConsumer(scene.group, {scene.topic: "*"}, namesrv=scene.apache.namesrv).assign([scene.queue()])
    consumer = PullConsumer(scene.group, client=scene.apache.client(stream=True), start_at=StartAt.FIRST)
    consumer.assign([scene.queue(0)])

    async def read(count: int) -> list[str]:
        bodies: list[str] = []
        async with asyncio.timeout(SOON):
            while len(bodies) < count:
                bodies += [message.body.decode() for message in await consumer.poll()]
        return bodies

    async with consumer:
        assert await read(5) == ["0", "2", "4", "6", "8"]
        for outside in (-1, 6):
            with pytest.raises(PyroMQError):
                await consumer.seek(scene.queue(0), outside)
        await consumer.seek(scene.queue(0), 3)
        assert await read(2) == ["6", "8"]
        await consumer.seek(scene.queue(0), StartAt.FIRST)
        assert await read(5) == ["0", "2", "4", "6", "8"]
        found = await consumer.pull(scene.queue(1), 2, 2)
        assert [message.body for message in found.messages] == [b"5", b"7"]
        assert (found.next_offset, found.min_offset, found.max_offset) == (4, 0, 5)


# Brokers that go, and messages that are gone: these come last, for they change what the others have


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
        await asyncio.to_thread(scene.apache.start_broker)
        acknowledged = set()
        for number in range(20, 40):
            with contextlib.suppress(PyroMQError):  # what is not acknowledged may or may not be there
                await scene.send(str(number), queue_id=number % 4)
                acknowledged.add(str(number))
        assert len(acknowledged) > 10
        await inbox.holds_all(stored | acknowledged, 140.0)
        assert queues_of(consumer, scene.topic) == {0, 1, 2, 3}


@pytest.mark.scenario("client 30")
async def test_a_new_group_begins_where_it_was_told_to(scene: Scene) -> None:
    apache, topic = scene.apache, scene.topic
    await apache.create_topic(topic, 1)
    body = bytes(200_000)  # a hundred of them are more than a file of the commit log
    async with Producer("big", namesrv=apache.namesrv, compress_over=1 << 30) as producer:
        for number in range(100):
            await producer.send(Message(topic, b"%d " % number + body), queue=scene.queue())
            if number == 97:
                await asyncio.sleep(0.5)
                between = datetime.now(UTC)
                await asyncio.sleep(0.5)
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
