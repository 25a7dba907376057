"""Our producers against Apache's brokers of both lines, with the official client and `mqadmin` as witnesses."""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.interop.apache import CONSUMED_WITHIN
from tests.interop.apache_with_client import LEVEL_OF_TEN_SECONDS, Apache
from tests.interop.process import free_port
from tests.interop.received_by_us import Inbox, consumer_of, cut_off, eventually

from pyromq.client import AdminClient, Message, Producer, Sql, TransactionProducer, TxState
from pyromq.errors import BrokerError, InvalidMessage, NoMessage, ReplyTimeout
from pyromq.protocol import sysflag

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pyromq.client import ReceivedMessage

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("nothing_is_left")]

SOON = 20.0
TRACES = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic that no other test has; it comes to be with the first message."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name[5:]).strip("-")[-90:]


@pytest.fixture
async def producer(apache: Apache) -> AsyncIterator[Producer]:
    async with Producer("makers", namesrv=apache.namesrv) as producer:
        yield producer


@pytest.fixture
async def admin(apache: Apache) -> AsyncIterator[AdminClient]:
    async with AdminClient(apache.namesrv) as admin:
        yield admin


# Who sends, and where to


@pytest.mark.scenario("client 1")
async def test_two_producers_have_two_names(apache: Apache, producer: Producer, admin: AdminClient, topic: str) -> None:
    async with Producer("makers", namesrv=apache.namesrv) as other:
        names = {producer.client.client_id, other.client.client_id}
        assert len(names) == 2
        assert all(re.fullmatch(rf"[\d.]+@{os.getpid()}#\d+", name) for name in names)
        for each in (producer, other):
            await each.send(topic, b"hello")

        async def both_known() -> bool:
            return names <= {each.client_id for each in await admin.groups.producers("makers", topic)}

        await eventually(both_known, "the broker knows both")


@pytest.mark.scenario("client 3")
async def test_a_dead_name_server_is_passed_over(apache: Apache, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", f"127.0.0.1:{free_port()};{apache.namesrv}")
    async with Producer("makers", timeout=10.0) as producer:
        began = time.monotonic()
        await producer.queues(topic)
        assert time.monotonic() - began < 4
        assert (await producer.send(topic, b"hello")).queue.broker_name == apache.broker.name


@pytest.mark.scenario("client 6")
async def test_a_topic_comes_to_be_with_its_first_message(producer: Producer, admin: AdminClient, topic: str) -> None:
    await producer.send(topic, b"hello")
    [config] = (await admin.topics.config(topic)).values()
    assert (config.read_queue_nums, config.write_queue_nums) == (4, 4)


@pytest.mark.scenario("client 19")
async def test_a_shard_key_means_the_same_queue_as_in_java(apache: Apache, producer: Producer, topic: str) -> None:
    await apache.create_topic(topic, 8)
    for key, expected in (("order-1", 6), ("order-1001", 7), ("größe-🎉", None)):
        result = await producer.send(topic, b"ours", shard_key=key)
        [theirs] = await asyncio.to_thread(apache.java.send, topic=topic, body="theirs", shard=key)
        assert result.queue.queue_id == theirs.queue
        assert expected in (None, theirs.queue)


# What is sent


@pytest.mark.scenario("client 15")
async def test_bodies_from_4096_bytes_on_are_compressed_and_read_by_java(
    apache: Apache, producer: Producer, admin: AdminClient, topic: str
) -> None:
    flags = {}
    for size in (4095, 4096):
        message = Message(topic, b"x" * size)
        result = await producer.send(message)
        assert message == Message(topic, b"x" * size)
        stored = await admin.messages.by_offset_id(result.offset_id)
        assert stored.body == message.body
        flags[size] = stored.record.sys_flag & (sysflag.COMPRESSED | sysflag.COMPRESSION_MASK)
    assert flags == {4095: 0, 4096: 0x301}
    await apache.ask_java("push", name=topic, group=f"g-{topic}", topic=topic)
    await apache.java_got(topic, {"x" * 4095, "x" * 4096}, CONSUMED_WITHIN)
    await apache.ask_java("leave", name=topic)


@pytest.mark.scenario("client 16")
async def test_java_reads_the_time_and_the_process_out_of_an_id(
    apache: Apache, producer: Producer, admin: AdminClient, topic: str
) -> None:
    result = await producer.send(topic, b"hello")
    [line] = [line for line in await apache.ask_java("id", id=result.id) if line.startswith("id ")]
    milliseconds, process = map(int, line.split()[1:])
    assert abs(milliseconds / 1000 - time.time()) < 10
    assert process == os.getpid() & 0xFFFF
    found = await eventually(lambda: _by_uniq_key(admin, topic, result.id), "the message is in the index")
    assert found.body == b"hello"


async def _by_uniq_key(admin: AdminClient, topic: str, message_id: str) -> object:
    try:
        return await admin.messages.by_uniq_key(topic, message_id)
    except NoMessage:
        return None


@pytest.mark.scenario("client 18")
async def test_a_batch_is_consumed_as_its_messages(apache: Apache, producer: Producer, topic: str) -> None:
    [result] = await producer.send_batch([Message(topic, b"batch-%d" % n, tags="T", keys=[f"k{n}"]) for n in range(3)])
    assert len(set(result.id.split(","))) == len(set(result.offset_id.split(","))) == 3
    inbox = Inbox()
    async with consumer_of(f"g-{topic}", topic, inbox, client=apache.client()):
        assert sorted(await inbox.holds(3)) == ["batch-0", "batch-1", "batch-2"]
        assert {message.id for message in inbox.messages} == set(result.id.split(","))
        assert {(message.tags, len(message.keys)) for message in inbox.messages} == {("T", 1)}
    await apache.ask_java("push", name=topic, group=f"java-{topic}", topic=topic, tags="T")
    await apache.java_got(topic, {"batch-0", "batch-1", "batch-2"}, CONSUMED_WITHIN)
    await apache.ask_java("leave", name=topic)
    for wrong in (Message(topic, b"x", delay_level=1), Message(f"{topic}-2", b"x")):
        with pytest.raises(InvalidMessage):
            await producer.send_batch([Message(topic, b"x"), wrong])


@pytest.mark.scenario("client 18")
async def test_ten_mebibytes_leave_in_parts(producer: Producer, admin: AdminClient, topic: str) -> None:
    results = await producer.send_batch((Message(topic, b"x" * (1 << 20)) for _ in range(10)), timeout=20.0)
    assert [len(result.id.split(",")) for result in results] == [3, 3, 3, 1]

    async def stored() -> bool:
        return sum(ends.max_offset for ends in (await admin.topics.stats(topic)).values()) == 10

    await eventually(stored, "ten messages are stored")


@pytest.mark.scenario("client 61")
async def test_a_cancelled_send_leaves_a_usable_connection(
    apache: Apache, producer: Producer, admin: AdminClient, topic: str
) -> None:
    await producer.send(topic, b"first")
    for _ in range(20):
        sending = asyncio.create_task(producer.send(topic, b"cancelled"))
        await asyncio.sleep(random.random() * 0.002)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    connections = [
        each for each in producer.client.remoting.endpoint.connections if each.context == apache.broker.address
    ]
    assert len(connections) == 1
    assert connections[0].calls_under_way == 0
    result = await producer.send(topic, b"last")
    assert (await admin.messages.by_offset_id(result.offset_id)).body == b"last"


# Request and reply


@pytest.mark.scenario("client 21")
async def test_java_answers_our_requests(apache: Apache, topic: str) -> None:
    await apache.create_topic(topic)
    await apache.ask_java("push", name=topic, group=f"g-{topic}", topic=topic, reply=1)
    async with Producer("askers", namesrv=apache.namesrv) as producer:
        for number in range(3):
            reply = await producer.request(topic, b"question-%d" % number, timeout=CONSUMED_WITHIN)
            assert reply.body == b"re:question-%d" % number
    await apache.ask_java("leave", name=topic)


@pytest.mark.scenario("client 21")
async def test_we_answer_the_requests_of_java(apache: Apache, topic: str) -> None:
    await apache.create_topic(topic)

    async def answer(message: ReceivedMessage) -> None:
        await message.reply(b"re:" + message.body)

    async with consumer_of(f"g-{topic}", topic, answer, client=apache.client()):
        said = await apache.ask_java("request", topic=topic, body="question")
    assert "reply re:question" in said


@pytest.mark.scenario("client 21")
async def test_a_request_that_nobody_answers_in_time_fails(
    apache: Apache, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    await apache.create_topic(topic)
    answered = asyncio.Event()
    async with Producer("askers", namesrv=apache.namesrv) as producer:
        with pytest.raises(ReplyTimeout) as caught:
            await producer.request(topic, b"anybody?", timeout=1.0)
        assert caught.value.code == 10006

        async def late(message: ReceivedMessage) -> None:
            await message.reply(b"too late")
            answered.set()

        async with consumer_of(f"g-{topic}", topic, late, client=apache.client()):
            await asyncio.wait_for(answered.wait(), SOON)
            await eventually(lambda: "no request waits for the reply" in caplog.text, "the late reply is noted")


# Transactions


@pytest.mark.scenario("client 22")
async def test_transactions_end_as_the_sender_decides(apache: Apache, topic: str) -> None:
    checked: list[str] = []

    async def check(message: ReceivedMessage) -> TxState:
        checked.append(message.id)
        return TxState.COMMIT

    def fail(message: Message) -> TxState:
        raise ValueError("the local work failed")

    group = f"payers-{apache.version.replace('.', '-')}"
    inbox = Inbox()
    async with (
        TransactionProducer(group, check=check, namesrv=apache.namesrv) as producer,
        consumer_of(f"g-{topic}", topic, inbox, client=apache.client()),
    ):
        committed = await producer.send_in_transaction(topic, lambda _: TxState.COMMIT, b"committed", keys=["k"])
        rolled_back = await producer.send_in_transaction(topic, lambda _: TxState.ROLLBACK, b"rolled back")
        undecided = await producer.send_in_transaction(topic, fail, b"checked")
        assert [each.state for each in (committed, rolled_back, undecided)] == [
            TxState.COMMIT,
            TxState.ROLLBACK,
            TxState.UNKNOWN,
        ]
        await inbox.holds_all({"committed", "checked"})
        assert checked == [undecided.id]
        assert sorted(inbox.bodies) == ["checked", "committed"]
        by_body = {message.body: message for message in inbox.messages}
        assert by_body[b"committed"].id == committed.id
        assert by_body[b"committed"].transaction_id == committed.id


@pytest.mark.scenario("client 24")
async def test_another_member_of_the_group_decides_for_one_that_was_killed(apache: Apache, topic: str) -> None:
    group = f"heirs-{apache.version.replace('.', '-')}"
    asked: list[bytes] = []

    def check(message: ReceivedMessage) -> TxState:
        asked.append(message.body)
        return TxState.COMMIT if message.body == b"yes" else TxState.ROLLBACK

    first = await TransactionProducer(group, check=lambda _: TxState.UNKNOWN, namesrv=apache.namesrv).start()
    for body in (b"yes", b"no"):
        await first.send_in_transaction(topic, lambda _: TxState.UNKNOWN, body)
    await cut_off(first.client)
    inbox = Inbox()
    async with (
        TransactionProducer(group, check=check, namesrv=apache.namesrv) as heir,
        consumer_of(f"g-{topic}", topic, inbox, client=apache.client()),
    ):
        await heir.send_in_transaction(topic, lambda _: TxState.COMMIT, b"its own")
        await inbox.holds_all({"yes", "its own"})
        await eventually(lambda: set(asked) == {b"yes", b"no"}, "both are decided")
        assert sorted(inbox.bodies) == ["its own", "yes"]
    await first.close()


# Delays


@pytest.mark.scenario("client 25")
async def test_delayed_messages_come_when_they_are_due(apache: Apache, producer: Producer, topic: str) -> None:
    await apache.create_topic(topic, 1)
    inbox = Inbox()
    async with consumer_of(f"g-{topic}", topic, inbox, client=apache.client()):
        await producer.send(topic, b"now")
        await inbox.holds(1)
        began, wall = time.monotonic(), datetime.now(UTC)
        due = {"level": 10.0}
        await producer.send(topic, b"level", delay_level=LEVEL_OF_TEN_SECONDS)
        if apache.version.startswith("5."):
            due |= {"at": 5.0, "after": 7.0}
            await producer.send(topic, b"at", deliver_at=wall + timedelta(seconds=5))
            await producer.send(topic, b"after", delay=timedelta(seconds=7))
            recalled = await producer.send(topic, b"recalled", deliver_at=wall + timedelta(seconds=6))
            assert recalled.recall_handle is not None
            assert await producer.recall(topic, recalled.recall_handle) == recalled.id
        await inbox.holds(1 + len(due))
        came = {body: at - began for body, at in zip(inbox.bodies, inbox.times, strict=True) if body != "now"}
        assert came.keys() == due.keys()
        # The timer of 5.x looks once a second.
        assert all(-0.1 < came[body] - due[body] < 2.5 for body in due), came


async def test_a_broker_that_cannot_recall_says_so(apache: Apache, producer: Producer, topic: str) -> None:
    result = await producer.send(topic, b"later", delay_level=1)
    if apache.version.startswith("4."):
        assert result.recall_handle is None
    with pytest.raises((BrokerError, InvalidMessage)):
        await producer.recall(topic, result.recall_handle or "djEgdCBiIDEgaWQ=")


# Traces


@pytest.mark.scenario("client 26")
async def test_traces_of_sends_and_deliveries_are_found_by_the_id_of_the_message(
    apache: Apache, admin: AdminClient, topic: str
) -> None:
    inbox = Inbox()
    async with (
        Producer("traced", client=apache.client(trace=True)) as producer,
        consumer_of(f"g-{topic}", topic, inbox, client=apache.client(trace=True)),
    ):
        result = await producer.send(topic, b"hello", tags="TagA", keys=["k-17"])
        await inbox.holds(1)

        async def records() -> dict[str, list[str]] | None:
            try:
                found = await admin.messages.by_key(TRACES, result.id)
            except NoMessage:
                return None
            split = [record.split("\x01") for message in found for record in message.body.decode().split("\x02")]
            table = {fields[0]: fields[1:] for fields in split if result.id in fields}
            return table if len(table) == 3 else None

        table = await eventually(records, "three records")
    time_ms, region, group, of, msg_id, tags, keys, address, size, cost, kind, offset_id, success = table["Pub"]
    assert (region, group, of, msg_id, tags, keys) == ("DefaultRegion", "traced", topic, result.id, "TagA", "k-17")
    assert (address, size, kind, offset_id, success) == (apache.broker.address, "5", "0", result.offset_id, "true")
    assert abs(int(time_ms) / 1000 - time.time()) < 60
    assert int(cost) < 5000
    _, region, group, request_id, msg_id, times, keys = table["SubBefore"]
    # The region is what the broker has put into the message: nothing, in 4.9.
    assert region == ("DefaultRegion" if apache.version.startswith("5.") else "null")
    assert (group, msg_id, times, keys) == (f"g-{topic}", result.id, "0", "k-17")
    after_id, msg_id, _, success, keys, code, _, group = table["SubAfter"]
    assert (after_id, msg_id, success, keys, code) == (request_id, result.id, "true", "k-17", "0")
    assert group == f"g-{topic}"
    # The official tool reads the same records.
    [shown] = await apache.run_mqadmin(f"queryMsgTraceById -i {result.id}")
    assert "Pub" in shown
    assert "success" in shown


# Selecting by SQL


async def test_sql_selects_among_the_messages_of_both(apache: Apache, producer: Producer, topic: str) -> None:
    await apache.create_topic(topic)
    for number in range(6):
        await producer.send(topic, b"ours-%d" % number, properties={"price": str(number)}, tags="T")
        await apache.ask_java("send", topic=topic, body=f"java-{number}", property=f"price:{number}", tags="T")
    wanted = {f"{sender}-{number}" for sender in ("ours", "java") for number in (4, 5)}
    inbox = Inbox()
    async with consumer_of(f"g-{topic}", topic, inbox, expr=Sql("price > 3 AND TAGS = 'T'"), client=apache.client()):
        await inbox.holds_all(wanted)
        await apache.ask_java("push", name=topic, group=f"java-{topic}", topic=topic, sql="price+>+3+AND+TAGS+=+'T'")
        await apache.java_got(topic, wanted, CONSUMED_WITHIN)
        assert sorted(inbox.bodies) == sorted(apache.java.bodies(topic)) == sorted(wanted)
    await apache.ask_java("leave", name=topic)
    with pytest.raises(BrokerError):
        await consumer_of(f"bad-{topic}", topic, inbox, expr=Sql("price >"), client=apache.client()).start()


# The admin client


@pytest.mark.scenario("client 60")
async def test_our_admin_client_and_mqadmin_see_the_same(
    apache: Apache, producer: Producer, admin: AdminClient, topic: str
) -> None:
    name = apache.broker.name
    await admin.topics.create(topic, brokers=name, read_queues=2, write_queues=2)
    results = [await producer.send(topic, b"%d" % n, keys=["key"], tags="red") for n in range(4)]
    inbox, group = Inbox(), f"g-{topic}"
    async with consumer_of(group, topic, inbox, client=apache.client()):
        await inbox.holds(4)

        async def caught_up() -> bool:
            rows = (await admin.groups.progress(group, topic)).rows
            return len(rows) == 2 and not any(row.lag for row in rows)

        await eventually(caught_up, "everything is committed")
        of_topic = f"-t {topic} " if apache.version.startswith("5.") else ""
        listed, status, by_key, by_id, by_uniq_key, progress = await apache.run_mqadmin(
            "topicList",
            f"topicStatus -t {topic}",
            f"queryMsgByKey -t {topic} -k key",
            f"queryMsgById {of_topic}-i {results[1].offset_id}",
            f"queryMsgByUniqueKey -t {topic} -i {results[1].id}",
            f"consumerProgress -g {group}",
        )
        assert set(await admin.topics.names()) == set(listed.split())
        stats = {
            (str(queue.queue_id), str(ends.min_offset), str(ends.max_offset))
            for queue, ends in (await admin.topics.stats(topic)).items()
        }
        assert stats == {tuple(row[1:4]) for row in map(str.split, status.splitlines()) if row and row[0] == name}
        ours = await admin.messages.by_key(topic, "key")
        theirs = [row.split()[:3] for row in by_key.splitlines() if row.strip() and not row.startswith("#")]
        assert sorted([each.msg_id, str(each.queue_id), str(each.queue_offset)] for each in ours) == sorted(theirs)
        for text, found in (
            (by_id, await admin.messages.by_offset_id(results[1].offset_id)),
            (by_uniq_key, await admin.messages.by_uniq_key(topic, results[1].id)),
        ):
            assert re.search(rf"CommitLog Offset:\s+{found.record.physical_offset}\b", text), text
            assert found.body == b"1"
        rows = {(str(row.queue.queue_id), str(row.broker_offset), str(row.consumer_offset), str(row.lag))
                for row in (await admin.groups.progress(group, topic)).rows}  # fmt: skip
        assert rows == {tuple(row[2:6]) for row in map(str.split, progress.splitlines()) if row and row[0] == topic}
    await admin.topics.delete(topic)
    [listed] = await apache.run_mqadmin("topicList")
    assert topic not in listed.split()
