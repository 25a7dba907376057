"""Our consumers and official ones in one group: they share queues without overlap or gap, whoever comes and goes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.interop.apache import CONSUMED_WITHIN
from tests.interop.meeting import JAVA, NAME, ROOM
from tests.interop.received_by_us import Inbox, consumer_of, eventually, queues_of

from pyromq.client import (
    Averagely,
    AveragelyByCircle,
    Config,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    MessageQueue,
    Producer,
)

if TYPE_CHECKING:
    from tests.interop.drivers import Driver
    from tests.interop.meeting import Meeting

    from pyromq.client import Consumer, Strategy

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("nothing_is_left")]

QUEUES = 8
# Code 40 tells members at once, but a Java consumer that misses it looks only every 20 s.
SHARED_WITHIN = 45.0


def queue_room(queue: MessageQueue) -> str:
    return f"r{queue.queue_id % 2}"


def member_room(client_id: str) -> str:
    return client_id.rpartition("@")[2].partition("-")[0]


STRATEGIES: dict[str, Strategy] = {
    each.name: each
    for each in (
        Averagely(),
        AveragelyByCircle(),
        ConsistentHash(),
        MachineRoom([ROOM]),
        MachineRoomNearby(Averagely(), queue_room, member_room),
    )
}


@dataclass
class Group:
    """The members of a group, one of them ours, and what each should have by the strategy."""

    java: Driver
    name: str
    topic: str
    ours: Consumer
    strategy: Strategy
    theirs: list[str]

    async def shares(self) -> dict[str, set[int]]:
        """The queues of every member, by client id."""
        shares = {self.ours.client.client_id: queues_of(self.ours, self.topic)}
        for member in self.theirs:
            names = await asyncio.to_thread(self.java.queues, member)
            shares[self.java.client_id(member)] = {int(name.rpartition(":")[2]) for name in names}
        return shares

    async def settled(self) -> dict[str, set[int]]:
        """Wait until every member has its share; gives the shares."""
        queues = [MessageQueue(broker_name=NAME, queue_id=number, topic=self.topic) for number in range(QUEUES)]
        members = sorted([self.ours.client.client_id, *map(self.java.client_id, self.theirs)])
        expected = {
            member: {queue.queue_id for queue in self.strategy.allocate(self.name, member, queues, members)}
            for member in members
        }
        assert sorted(number for share in expected.values() for number in share) == list(range(QUEUES))

        async def as_expected() -> bool:
            return await self.shares() == expected

        try:
            await eventually(as_expected, "the shares are settled", SHARED_WITHIN)
        except AssertionError:
            raise AssertionError(f"{await self.shares()} should be {expected}") from None
        return expected


@pytest.mark.scenario("client 28")
@pytest.mark.parametrize("version", JAVA)
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_members_of_both_makes_share_the_queues(meeting: Meeting, version: str, strategy: str) -> None:
    java = meeting.java(version)
    topic = f"mixed-{strategy}-{version.replace('.', '-')}"
    await meeting.create_topic(topic, QUEUES)
    inbox = Inbox()
    first, second = f"r0-{topic}", f"r1-{topic}"
    await join(java, first, topic, strategy)
    ours = consumer_of(
        f"g-{topic}",
        topic,
        inbox,
        allocate=STRATEGIES[strategy],
        client=meeting.client(instance_name=f"r1-ours-{topic}"),
    )
    async with Producer("makers", namesrv=meeting.namesrv) as producer, ours:
        group = Group(java, f"g-{topic}", topic, ours, STRATEGIES[strategy], [first])

        async def all_of_it_arrives_once(run: str) -> None:
            """Send to every queue; then every message has come once, to the owner of its queue."""
            shares = await group.settled()
            bodies = set()
            for queue in meeting.queues(topic, QUEUES):
                for number in range(5):
                    bodies.add(body := f"{run}-{queue.queue_id}-{number}")
                    await producer.send(topic, body.encode(), queue=queue)

            def got() -> list[tuple[str, str]]:
                return [(ours.client.client_id, body) for body in inbox.bodies if body in bodies] + [
                    (java.client_id(member), each.body)
                    for member in group.theirs
                    for each in java.received(member)
                    if each.body in bodies
                ]

            def missing() -> set[str]:
                return bodies - {body for _, body in got()}

            try:
                await eventually(lambda: not missing(), f"all of {run} arrived", CONSUMED_WITHIN)
            except AssertionError as exc:
                raise AssertionError(f"{exc}; {sorted(missing())} are missing, {shares} are the shares") from None
            assert len(got()) == len(bodies), "some came twice"
            assert all(int(body.split("-")[-2]) in shares[member] for member, body in got())

        await all_of_it_arrives_once("two")
        await join(java, second, topic, strategy)
        group.theirs = [first, second]
        await all_of_it_arrives_once("three")
        await asyncio.to_thread(java.do, "leave", name=first)
        group.theirs = [second]
        await all_of_it_arrives_once("left")
        await asyncio.to_thread(java.do, "leave", name=second)
        group.theirs = []
        await all_of_it_arrives_once("alone")


async def join(java: Driver, member: str, topic: str, strategy: str, **options: object) -> None:
    """A member of Java's joins the group of the topic."""
    more = {"strategy": strategy, "rooms": ROOM, "broker": NAME} | options
    await asyncio.to_thread(java.do, "push", name=member, group=f"g-{topic}", topic=topic, **more)


@pytest.mark.scenario("client 28")
@pytest.mark.parametrize("version", JAVA)
async def test_members_of_both_makes_keep_to_the_queues_they_were_given(meeting: Meeting, version: str) -> None:
    java, topic = meeting.java(version), f"mixed-CONFIG-{version.replace('.', '-')}"
    await meeting.create_topic(topic, QUEUES)
    queues = meeting.queues(topic, QUEUES)
    inbox = Inbox()
    await join(java, topic, topic, "CONFIG", ids="0,2,4,6,7")
    ours = consumer_of(f"g-{topic}", topic, inbox, allocate=Config([queues[1], queues[3], queues[5]]),
                       client=meeting.client())  # fmt: skip
    async with Producer("makers", namesrv=meeting.namesrv) as producer, ours:
        await eventually(lambda: queues_of(ours, topic) == {1, 3, 5}, "ours has its queues")
        for queue in queues:
            await producer.send(topic, b"%d" % queue.queue_id, queue=queue)
        await inbox.holds(3)
        await asyncio.to_thread(java.wait_for_bodies, topic, set("02467"), CONSUMED_WITHIN)
        assert sorted(inbox.bodies) == ["1", "3", "5"]
        assert sorted(java.bodies(topic)) == ["0", "2", "4", "6", "7"]
        await asyncio.to_thread(java.do, "leave", name=topic)


@pytest.mark.parametrize("version", JAVA)
async def test_ordered_members_of_both_makes_hand_queues_over_in_order(meeting: Meeting, version: str) -> None:
    java, topic = meeting.java(version), f"mixed-ordered-{version.replace('.', '-')}"
    await meeting.create_topic(topic, QUEUES)
    inbox = Inbox()
    await join(java, topic, topic, "AVG", orderly=1)
    ours = consumer_of(f"g-{topic}", topic, inbox, ordered=True, client=meeting.client())
    group = Group(java, f"g-{topic}", topic, ours, STRATEGIES["AVG"], [topic])
    async with Producer("makers", namesrv=meeting.namesrv) as producer:

        async def send(numbers: range) -> set[str]:
            for number in numbers:
                for queue in meeting.queues(topic, QUEUES):
                    await producer.send(topic, b"%d-%d" % (queue.queue_id, number), queue=queue)
            return {f"{queue_id}-{number}" for queue_id in range(QUEUES) for number in numbers}

        bodies = await send(range(5))
        async with ours:
            await group.settled()
            bodies |= await send(range(5, 10))
            await eventually(
                lambda: bodies <= {*inbox.bodies, *java.bodies(topic)}, "all of it arrived", CONSUMED_WITHIN
            )
            await asyncio.to_thread(java.do, "leave", name=topic)
            group.theirs = []
            await group.settled()
            await inbox.holds_all(await send(range(10, 15)))
    for bodies_of_one in (inbox.bodies, java.bodies(topic)):
        for queue_id in range(QUEUES):
            numbers = [int(body.split("-")[1]) for body in bodies_of_one if body.startswith(f"{queue_id}-")]
            assert list(dict.fromkeys(numbers)) == sorted(set(numbers))
