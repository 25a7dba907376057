"""What our producers send is read by the official client, and the reverse, on our broker and on Apache's."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.interop.apache import CONSUMED_WITHIN
from tests.interop.meeting import JAVA
from tests.interop.received_by_us import Inbox, consumer_of, cut_off, eventually

from pyromq.client import Message, Producer, TransactionProducer, TxState
from pyromq.protocol import sysflag

if TYPE_CHECKING:
    from tests.interop.apache_with_client import Apache
    from tests.interop.drivers import Driver
    from tests.interop.meeting import Meeting

    from pyromq.client import ReceivedMessage

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("nothing_is_left")]

UNICODE = "grüße-世界-🎉-é"
# What each line of the official client can read and write. 4.9 writes zlib and has no setting for it.
COMPRESSIONS = [("5.5.0", "ZLIB", 3), ("5.5.0", "LZ4", 1), ("5.5.0", "ZSTD", 2), ("4.9.8", "", 3)]
VERSIONS = pytest.mark.parametrize("version", JAVA)


def topic_of(what: str, version: str) -> str:
    return f"between-{what}-{version.replace('.', '-')}"


async def starts(java: Driver, topic: str, **options: object) -> None:
    """A consumer of Java's, named like the topic."""
    await asyncio.to_thread(java.do, "push", name=topic, group=f"java-{topic}", topic=topic, **options)


async def sends(java: Driver, command: str = "send", **options: object) -> None:
    await asyncio.to_thread(java.send, command, **options)


async def got(java: Driver, topic: str, *bodies: str) -> None:
    """Wait until Java's consumer has exactly these, and end it."""
    await asyncio.to_thread(java.wait_for_bodies, topic, set(bodies), CONSUMED_WITHIN)
    assert sorted(java.bodies(topic)) == sorted(bodies)
    await asyncio.to_thread(java.do, "leave", name=topic)


@pytest.mark.parametrize(("version", "compression", "number"), COMPRESSIONS)
async def test_compressed_bodies(meeting: Meeting, version: str, compression: str, number: int) -> None:
    java, topic = meeting.java(version), topic_of(f"compressed-{compression}", version)
    await meeting.create_topic(topic, 2)
    ours, theirs = "ours-" + "a" * 9000, "java-" + "b" * 9000
    inbox = Inbox()
    async with (
        Producer("makers", namesrv=meeting.namesrv, compression=compression.lower() or "zlib") as producer,
        consumer_of(f"g-{topic}", topic, inbox, client=meeting.client()),
    ):
        await starts(java, topic)
        await producer.send(topic, ours.encode())
        await sends(java, topic=topic, body=theirs, **({"compression": compression} if compression else {}))
        assert sorted(await inbox.holds(2)) == sorted([ours, theirs])
        await got(java, topic, ours, theirs)
    flags = {message.body[:4]: message.raw.record.sys_flag & sysflag.COMPRESSION_MASK for message in inbox.messages}
    assert flags[b"ours"] == number << sysflag.COMPRESSION_SHIFT
    # The first releases wrote no type for zlib, and readers still take none for it.
    assert flags[b"java"] in (number << sysflag.COMPRESSION_SHIFT, 0 if version.startswith("4.") else None)
    assert all(message.raw.record.sys_flag & sysflag.COMPRESSED for message in inbox.messages)


@VERSIONS
async def test_batches(meeting: Meeting, version: str) -> None:
    java, topic = meeting.java(version), topic_of("batch", version)
    await meeting.create_topic(topic, 2)
    inbox = Inbox()
    async with (
        Producer("makers", namesrv=meeting.namesrv) as producer,
        consumer_of(f"g-{topic}", topic, inbox, client=meeting.client()),
    ):
        await starts(java, topic)
        await producer.send_batch([Message(topic, b"ours-%d" % number, tags="T") for number in range(10)])
        await sends(java, "batch", topic=topic, count=10)
        bodies = [f"{sender}-{number}" for sender in ("ours", topic) for number in range(10)]
        assert sorted(await inbox.holds(20)) == sorted(bodies)
        await got(java, topic, *bodies)


@VERSIONS
async def test_messages_that_lingered_together(meeting: Meeting, version: str) -> None:
    java, topic = meeting.java(version), topic_of("linger", version)
    await meeting.create_topic(topic, 2)
    await starts(java, topic)
    async with Producer("makers", namesrv=meeting.namesrv, linger=0.05) as producer:
        results = await asyncio.gather(
            *[await producer.submit(topic, b"%d" % number, keys=[f"k{number}"]) for number in range(20)]
        )
    assert len({result.id for result in results}) == 20
    await got(java, topic, *map(str, range(20)))


@VERSIONS
async def test_delayed_messages(meeting: Meeting, version: str) -> None:
    java, topic = meeting.java(version), topic_of("delayed", version)
    await meeting.create_topic(topic, 1)
    inbox = Inbox()
    async with (
        Producer("makers", namesrv=meeting.namesrv) as producer,
        consumer_of(f"g-{topic}", topic, inbox, client=meeting.client()),
    ):
        await starts(java, topic)
        began = time.monotonic()
        await producer.send(topic, b"ours", delay_level=1)
        await sends(java, topic=topic, body="java", delay=1)
        assert sorted(await inbox.holds(2)) == ["java", "ours"]
        assert inbox.times[0] - began > 0.9
        await got(java, topic, "ours", "java")


@VERSIONS
async def test_unicode_everywhere(meeting: Meeting, version: str) -> None:
    java, topic = meeting.java(version), topic_of("unicode", version)
    await meeting.create_topic(topic, 1)
    inbox = Inbox()
    message = Message(topic, f"ours-{UNICODE}".encode(), tags=UNICODE, keys=[UNICODE], properties={"farbe": UNICODE})
    async with (
        Producer("makers", namesrv=meeting.namesrv) as producer,
        consumer_of(f"g-{topic}", topic, inbox, expr=UNICODE, client=meeting.client()),
    ):
        await starts(java, topic, tags=UNICODE, show="farbe")
        await producer.send(message)
        await producer.send(topic, b"of another tag", tags="other")
        await sends(java, topic=topic, body=f"java-{UNICODE}", tags=UNICODE, keys=UNICODE, property=f"farbe:{UNICODE}")
        assert sorted(await inbox.holds(2)) == [f"java-{UNICODE}", f"ours-{UNICODE}"]
        assert [(each.tags, each.keys, each.properties["farbe"]) for each in inbox.messages] == [
            (UNICODE, [UNICODE], UNICODE)
        ] * 2
        await got(java, topic, f"ours-{UNICODE}", f"java-{UNICODE}")
        assert java.said("shown", topic) == [UNICODE] * 2
        assert {each.tags for each in java.received(topic)} == {UNICODE}


@VERSIONS
async def test_order_by_key(meeting: Meeting, version: str) -> None:
    java, topic = meeting.java(version), topic_of("ordered", version)
    await meeting.create_topic(topic, 4)
    inbox = Inbox()
    async with (
        Producer("makers", namesrv=meeting.namesrv) as producer,
        consumer_of(f"g-{topic}", topic, inbox, ordered=True, client=meeting.client()),
    ):
        await starts(java, topic, orderly=1)
        for step in range(10):
            for key in ("k1", "k2", "k3"):
                await producer.send(topic, f"{key}-{step}".encode(), shard_key=key)
        await sends(java, "ordered", topic=topic, orders=4, count=10)
        keys = ["k1", "k2", "k3", *"abcd"]
        bodies = [f"{key}-{step}" for step in range(10) for key in keys]
        assert sorted(await inbox.holds(70)) == sorted(bodies)
        await got(java, topic, *bodies)
    for received in (inbox.bodies, java.bodies(topic)):
        for key in keys:
            assert [body for body in received if body.startswith(f"{key}-")] == [f"{key}-{step}" for step in range(10)]


# Transactions


def decided(state: TxState, message: Message) -> TxState:
    return state


@pytest.mark.scenario("client 22")
async def test_transactions_are_seen_by_the_other(apache: Apache) -> None:
    java, topic = apache.java, topic_of("transactions", apache.version)
    await apache.create_topic(topic)
    inbox = Inbox()
    async with (
        TransactionProducer(f"ours-{topic}", check=lambda _: TxState.COMMIT, namesrv=apache.namesrv) as producer,
        consumer_of(f"g-{topic}", topic, inbox, client=apache.client()),
    ):
        await starts(java, topic)
        for state in TxState:
            await producer.send_in_transaction(topic, partial(decided, state), f"ours-{state.name}".encode())
        for name in ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"):
            options = {"topic": topic, "body": f"java-{name}", "state": name, "check": "COMMIT_MESSAGE"}
            await sends(java, "transaction", group=f"java-{topic}", **options)
        seen = ["ours-COMMIT", "ours-UNKNOWN", "java-COMMIT_MESSAGE", "java-UNKNOW"]
        assert sorted(await inbox.holds(4)) == sorted(seen)
        await got(java, topic, *seen)
        assert sorted(inbox.bodies) == sorted(seen)


@pytest.mark.scenario("client 24")
async def test_members_of_both_makes_decide_for_each_other(apache: Apache) -> None:
    java, topic = apache.java, topic_of("heirs", apache.version)
    group = f"both-{topic}"
    await apache.create_topic(topic)
    asked: list[bytes] = []

    def check(message: ReceivedMessage) -> TxState:
        asked.append(message.body)
        return TxState.COMMIT

    inbox = Inbox()
    async with consumer_of(f"g-{topic}", topic, inbox, client=apache.client()):
        # Ours begins and is killed, Java decides.
        ours = await TransactionProducer(group, check=lambda _: TxState.UNKNOWN, namesrv=apache.namesrv).start()
        begun = await ours.send_in_transaction(topic, lambda _: TxState.UNKNOWN, b"begun-by-ours")
        await cut_off(ours.client)
        await ours.close()
        options = {"topic": topic, "check": "COMMIT_MESSAGE"}
        await sends(java, "transaction", group=group, body="its-own", state="COMMIT_MESSAGE", **options)
        await inbox.holds_all({"its-own", "begun-by-ours"})
        assert any(begun.id in line.split() for line in java.said("checked", group))
        # Java begins and does not know; ours, which joins, is asked sooner or later.
        async with TransactionProducer(group, check=check, namesrv=apache.namesrv) as heir:
            await heir.send_in_transaction(topic, lambda _: TxState.COMMIT, b"another")
            await sends(java, "transaction", group=group, body="begun-by-java", state="UNKNOW", topic=topic)
            await inbox.holds_all({"begun-by-java"})
            await eventually(lambda: b"begun-by-java" in asked, "ours was asked")
