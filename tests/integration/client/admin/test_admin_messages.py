"""Messages by the admin client: found by every name they have, tracked, and consumed on request."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from tests.integration.client.admin.admin_kit import GROUP, TOPIC, StandIn, commit, queue, send
from tests.integration.client.admin.stage import name_server_for
from tests.integration.client.cluster_kit import Spy

from pyromq.client.admin import AdminClient, TrackState, messages
from pyromq.errors import (
    ConnectFailed,
    CorruptRecord,
    NoMessage,
    NoPermission,
    PartialFailure,
    RemoteProtocolError,
    ServerError,
    TopicNotFound,
)
from pyromq.protocol.bodies import CMResult
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.headers import QueryMessage
from pyromq.protocol.ids import UniqKeys


def new_uniq_key(now=None):
    clock = (lambda: now) if now is not None else (lambda: time.time_ns() // 1_000_000)
    return UniqKeys(b"\x7f\0\0\1", 1, 2, clock=clock, zone=None).next()


@pytest.mark.scenario("client 60")
async def test_a_topic_from_its_creation_to_its_end(cluster, admin):
    """The same steps are compared with mqadmin in tests/interop."""
    await admin.topics.create(TOPIC, read_queues=4, write_queues=4)
    assert (await admin.topics.config(TOPIC))["broker-a"].write_queue_nums == 4
    uniq_key = new_uniq_key()
    offset_id = await send(cluster, b"found", queue_id=2, KEYS="k1 k2", UNIQ_KEY=uniq_key, TAGS="red")
    [by_key] = await admin.messages.by_key(TOPIC, "k2")
    by_uniq_key = await admin.messages.by_uniq_key(TOPIC, uniq_key)
    by_offset_id = await admin.messages.by_offset_id(offset_id)
    at = await admin.messages.at(queue(2), 0)
    for message in (by_key, by_uniq_key, by_offset_id, at):
        assert (message.body, message.msg_id, message.offset_msg_id) == (b"found", uniq_key, offset_id)
        assert (message.queue, message.tags, message.keys) == (queue(2), "red", ["k1", "k2"])
    assert (await admin.topics.stats(TOPIC))[queue(2)].max_offset == 1
    await commit(admin, {2: 0})
    assert (await admin.groups.progress(GROUP)).lag == 1
    await admin.topics.delete(TOPIC)
    with pytest.raises(TopicNotFound):
        await admin.topics.route(TOPIC)
    with pytest.raises(TopicNotFound):
        await admin.messages.by_key(TOPIC, "k2")


async def test_either_id_finds_a_message(cluster, admin, topic):
    uniq_key = new_uniq_key()
    offset_id = await send(cluster, b"found", UNIQ_KEY=uniq_key)
    assert (await admin.messages.get(topic, uniq_key)).body == b"found"
    assert (await admin.messages.get(topic, offset_id)).body == b"found"
    for unknown in ("7F000001" + "00000001" + "00" * 8, "my-own-id"):
        with pytest.raises(NoMessage):
            await admin.messages.get(topic, unknown)


async def test_what_is_not_found_is_said_not_to_be_there(cluster, admin, topic):
    offset_id = await send(cluster)
    beyond = offset_id[:16] + f"{1 << 40:016X}"
    for looked_for in (
        admin.messages.by_offset_id(beyond),
        admin.messages.by_key(topic, "no-such-key"),
        admin.messages.by_uniq_key(topic, new_uniq_key()),
        admin.messages.at(queue(0), 1),
        admin.messages.at(queue(1), 0),
    ):
        with pytest.raises(NoMessage):
            await looked_for
    with pytest.raises(RemoteProtocolError):
        await admin.messages.by_offset_id("nonsense")
    with pytest.raises(TopicNotFound):
        await admin.messages.by_uniq_key("missing", new_uniq_key())


async def test_messages_with_a_key_are_the_oldest_first_and_within_their_time(cluster, admin, topic):
    for number in range(3):
        await send(cluster, b"%d" % number, queue_id=number, KEYS="k")
    assert [message.body for message in await admin.messages.by_key(topic, "k")] == [b"0", b"1", b"2"]
    hour = timedelta(hours=1)
    now = datetime.now(UTC)
    assert len(await admin.messages.by_key(topic, "k", begin=now - hour, end=now + hour)) == 3
    assert len(await admin.messages.by_key(topic, "k", limit=2)) == 2
    with pytest.raises(NoMessage):
        await admin.messages.by_key(topic, "k", begin=now + hour)


async def test_keys_of_equal_hash_are_told_apart(cluster, admin, topic):
    """`Aa` and `BB` have one hash code in Java, and so one place in the index."""
    await send(cluster, b"first", KEYS="Aa")
    await send(cluster, b"second", KEYS="BB")
    assert [message.body for message in await admin.messages.by_key(topic, "Aa")] == [b"first"]


async def test_of_the_copies_of_a_message_the_first_is_found(cluster, admin, topic):
    uniq_key = new_uniq_key()
    await send(cluster, b"first", queue_id=1, UNIQ_KEY=uniq_key)
    await send(cluster, b"second", queue_id=0, UNIQ_KEY=uniq_key)
    assert (await admin.messages.by_uniq_key(topic, uniq_key)).body == b"first"


async def test_an_id_that_is_wrong_about_its_time_is_found_nevertheless(cluster, admin, topic, monkeypatch):
    """Its producer's clock is five minutes ahead of the broker's; somebody looks for it ten minutes later."""
    now = time.time_ns() // 1_000_000
    uniq_key = new_uniq_key(now + 300_000)
    await send(cluster, b"found", UNIQ_KEY=uniq_key)
    later = SimpleNamespace(time_ns=lambda: (now + 600_000) * 1_000_000)
    monkeypatch.setattr(messages, "time", later)
    assert messages.earliest(uniq_key, now + 600_000) > now
    assert (await admin.messages.by_uniq_key(topic, uniq_key)).body == b"found"


async def test_a_key_is_looked_for_on_all_brokers(cluster, admin, topic):
    await cluster.start_broker("broker-b")
    await cluster.create_topic(topic, broker="broker-b")
    await send(cluster, b"on b", broker="broker-b", KEYS="k")
    [message] = await admin.messages.by_key(topic, "k")
    assert (message.body, message.broker_name) == (b"on b", "broker-b")


async def test_what_was_found_comes_with_the_error(cluster, admin, topic):
    await cluster.start_broker("broker-b")
    await cluster.create_topic(topic, broker="broker-b")
    uniq_key = new_uniq_key()
    await send(cluster, b"on a", KEYS="k", UNIQ_KEY=uniq_key)

    async def refuse(connection, request):
        raise NoPermission("not today")

    cluster.brokers["broker-b"]._ports._servers[0].endpoint.processors[RequestCode.QUERY_MESSAGE] = refuse
    with pytest.raises(PartialFailure) as caught:
        await admin.messages.by_key(topic, "k")
    assert [message.body for message in caught.value.partial] == [b"on a"]
    # An id means one message: when that is found, nobody else is needed.
    assert (await admin.messages.by_uniq_key(topic, uniq_key)).body == b"on a"
    with pytest.raises(PartialFailure):
        await admin.messages.by_uniq_key(topic, new_uniq_key())


async def test_a_uniq_key_is_asked_for_in_its_window_and_then_at_any_time():
    now = time.time_ns() // 1_000_000
    uniq_key = new_uniq_key(now)

    def nothing(connection, request):
        return request.reply(ResponseCode.QUERY_NOT_FOUND)

    async with (
        Spy({RequestCode.QUERY_MESSAGE: nothing}) as broker,
        Spy(name_server_for(broker)) as name_server,
        AdminClient(name_server.address) as admin,
    ):
        with pytest.raises(NoMessage):
            await admin.messages.by_uniq_key(TOPIC, uniq_key)
    asked = [request.header(QueryMessage) for request in broker.asked(RequestCode.QUERY_MESSAGE)]
    assert [(header.begin_timestamp, header.max_num, header.unique_key_query) for header in asked] == [
        (now - 1000, 32, True),
        (0, 32, True),
    ]


async def test_bytes_that_are_no_record_end_in_an_error():
    def garbage(connection, request):
        return request.reply(body=b"\0\0\0\x60" + b"x" * 92)

    async with (
        Spy({RequestCode.QUERY_MESSAGE: garbage}) as broker,
        Spy(name_server_for(broker)) as name_server,
        AdminClient(name_server.address) as admin,
    ):
        with pytest.raises(CorruptRecord):
            await admin.messages.by_key(TOPIC, "k")


async def test_the_address_in_an_id_may_be_nobodys(admin):
    with pytest.raises(ConnectFailed):
        await admin.messages.by_offset_id("7F00000100000001" + "00" * 8)


async def test_an_offset_id_needs_no_name_server(cluster, admin, topic):
    offset_id = await send(cluster, b"found")
    await cluster.stop_name_server()
    message = await admin.messages.by_offset_id(offset_id)
    assert (message.body, message.broker_name) == (b"found", "")


async def test_the_entries_of_a_consume_queue(cluster, admin, topic):
    for _ in range(3):
        await send(cluster, TAGS="red")
    entries = await admin.messages.consume_queue(queue(0), 1, 10)
    assert (entries.min_queue_index, entries.max_queue_index, len(entries.queue_data)) == (0, 3, 2)
    assert entries.subscription_data is None
    assert "not online" in (await admin.messages.consume_queue(queue(0), 0, group=GROUP)).filter_data
    with pytest.raises(NoMessage):
        await admin.messages.consume_queue(queue(0), 3)
    with pytest.raises(ServerError):
        await admin.messages.consume_queue(queue(9), 0)


# What became of them


async def test_what_became_of_a_message_in_each_group(cluster, admin, topic, joined):
    message = await admin.messages.by_offset_id(await send(cluster, b"tracked", TAGS="red"))
    for group, tags in (("consumed", ["red"]), ("filtered", ["blue"]), ("behind", [])):
        await joined(StandIn(group, tags=tags))
    await commit(admin, {0: 1}, group="consumed")
    await commit(admin, {0: 1}, group="filtered")
    await commit(admin, {0: 0}, group="offline")
    tracks = {track.group: track.state for track in await admin.messages.track(message)}
    assert tracks == {
        "behind": TrackState.NOT_CONSUME_YET,
        "consumed": TrackState.CONSUMED,
        "filtered": TrackState.CONSUMED_BUT_FILTERED,
        "offline": TrackState.NOT_ONLINE,
    }


async def test_a_message_that_nobody_consumes_has_no_track(cluster, admin, topic):
    message = await admin.messages.by_offset_id(await send(cluster))
    assert await admin.messages.track(message) == []


async def test_a_consumer_is_given_a_message_on_request(cluster, admin, topic, joined):
    offset_id = await send(cluster, b"again")
    with pytest.raises(ServerError, match="not online"):
        await admin.messages.consume_directly(GROUP, offset_id, "nobody")
    consumer = StandIn()
    client_id = await joined(consumer)
    result = await admin.messages.consume_directly(GROUP, offset_id, client_id)
    assert (result.consume_result, result.spent_time_mills) == (CMResult.CR_SUCCESS, 3)
    message = await admin.messages.by_offset_id(offset_id)
    await admin.messages.consume_directly(GROUP, message)
    assert consumer.consumed == [(b"again", "broker-a")] * 2


async def test_a_half_message_is_asked_about_again():
    async with Spy() as broker, AdminClient("127.0.0.1:1") as admin:
        port = int(broker.address.rpartition(":")[2])
        offset_id = f"7F000001{port:08X}{77:016X}"
        await admin.messages.resume_check(offset_id, "half")
        [request] = broker.asked(RequestCode.RESUME_CHECK_HALF_MESSAGE)
    assert request.ext == {"msgId": offset_id, "topic": "half"}
