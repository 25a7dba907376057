"""Groups by the admin client: settings, members, progress; what single consumers say; offsets moved on- and offline."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.integration.client.admin.admin_kit import GROUP, TOPIC, StandIn, StandInProducer, commit, queue, send
from tests.integration.client.admin.stage import name_server_for
from tests.integration.client.cluster_kit import Spy

from pyromq.client.admin import AdminClient
from pyromq.errors import (
    ConsumerNotOnline,
    InvalidMessage,
    NoMessage,
    NoPermission,
    PartialFailure,
    QueryNotFound,
    RouteNotFound,
    ServerError,
    SubscriptionGroupNotExist,
    TopicNotFound,
)
from pyromq.protocol.bodies import SubscriptionGroupConfig
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import ResetOffset

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PATIENCE = 30.0


@pytest.fixture
async def ten(cluster, topic):
    """Ten messages in queue 0, two in queue 1."""
    for number in range(10):
        await send(cluster, b"%d" % number)
    for number in range(2):
        await send(cluster, b"%d" % number, queue_id=1)


# Settings


async def test_a_group_is_made_shown_changed_and_deleted(cluster, admin):
    assert await admin.groups.create(GROUP) == [cluster.address()]
    assert GROUP in await admin.groups.names()
    changed = SubscriptionGroupConfig(group_name=GROUP, retry_max_times=3)
    await admin.groups.create(changed, cluster="DefaultCluster")
    assert await admin.groups.config(GROUP) == {cluster.address(): changed}
    assert (await admin.groups.configs("broker-a"))[GROUP] == changed
    await admin.groups.delete(GROUP, remove_offsets=True)
    assert GROUP not in await admin.groups.names()
    with pytest.raises(SubscriptionGroupNotExist):
        await admin.groups.config(GROUP)


async def test_with_a_group_its_own_topics_and_offsets_go(cluster, admin, ten, joined):
    client_id = await joined(StandIn())
    assert client_id in cluster.consumers(GROUP)
    await commit(admin, {0: 3})
    await cluster.routed(f"%RETRY%{GROUP}")  # a broker says a new topic a moment later
    assert f"%RETRY%{GROUP}" in await admin.topics.names()
    await admin.groups.delete(GROUP, remove_offsets=True)
    assert f"%RETRY%{GROUP}" not in await admin.topics.names()
    assert await admin.offsets.committed(GROUP, queue()) == 0


async def test_a_group_that_is_deleted_on_one_broker_keeps_its_offsets(admin, ten):
    await admin.groups.create(GROUP)
    await commit(admin, {0: 3})
    await admin.groups.delete(GROUP, brokers="broker-a")
    assert await admin.offsets.committed(GROUP, queue()) == 3


async def test_a_name_that_no_group_can_have_is_refused_here(admin):
    with pytest.raises(InvalidMessage):
        await admin.groups.create("a b")


# Progress


async def test_how_far_a_group_is_offline(admin, ten):
    await commit(admin, {0: 7, 1: 2})
    progress = await admin.groups.progress(GROUP)
    rows = {row.queue.queue_id: row for row in progress.rows}
    assert {number: (row.broker_offset, row.consumer_offset, row.lag) for number, row in rows.items()} == {
        0: (10, 7, 3),
        1: (2, 2, 0),
        2: (0, 0, 0),
        3: (0, 0, 0),
    }
    assert progress.lag == 3
    assert datetime.now(UTC) - rows[0].last_time < timedelta(minutes=1)
    assert rows[2].last_time is None
    assert await admin.groups.progress(GROUP, TOPIC) == progress


async def test_which_consumer_has_which_queue(admin, ten, joined):
    client_id = await joined(StandIn(queues=(0, 1)))
    await commit(admin, {0: 7})
    progress = await admin.groups.progress(GROUP, TOPIC, clients=True)
    assert [row.client_id for row in progress.of_topic(TOPIC)] == [client_id, client_id, None, None]


async def test_a_group_without_offsets_has_no_progress(admin, topic):
    with pytest.raises(ConsumerNotOnline):
        await admin.groups.progress("nobody")
    with pytest.raises(TopicNotFound):
        await admin.groups.progress(GROUP, "missing")


async def test_the_progress_on_the_brokers_that_answer_comes_with_the_error(cluster, admin, ten):
    await cluster.start_broker("broker-b")
    await commit(admin, {0: 7})

    async def refuse(connection, request):
        raise NoPermission("not today")

    cluster.brokers["broker-b"]._ports._servers[0].endpoint.processors[RequestCode.GET_CONSUME_STATS] = refuse
    with pytest.raises(PartialFailure) as caught:
        await admin.groups.progress(GROUP)
    assert caught.value.partial.lag == 5
    assert [name for name, _ in caught.value.failures] == ["broker-b"]


async def test_the_times_of_the_queues_of_a_group(admin, ten):
    await commit(admin, {0: 7})
    spans = await admin.groups.time_span(GROUP, TOPIC)
    assert [span.message_queue for span in spans] == [queue(number) for number in range(4)]
    assert 0 < spans[0].min_time_stamp <= spans[0].consume_time_stamp <= spans[0].max_time_stamp
    assert spans[2].min_time_stamp == -1


# Members


async def test_who_consumes(cluster, admin, topic, joined):
    first, second = await joined(StandIn(tags=["red", "blue"])), await joined(StandIn(tags=["red", "blue"]))
    connections = await admin.groups.connections(GROUP)
    assert [member.client_id for member in connections.connection_set] == sorted([first, second])
    assert {member.language for member in connections.connection_set} == {"PYTHON"}
    assert connections.subscription_table[TOPIC].tags_set == {"red", "blue"}
    with pytest.raises(ConsumerNotOnline):
        await admin.groups.connections("nobody")


async def test_a_consumer_that_only_one_of_two_brokers_knows_is_found(cluster, admin, topic, joined):
    client_id = await joined(StandIn())
    await cluster.start_broker("broker-b")
    await cluster.create_topic(f"%RETRY%{GROUP}", broker="broker-b")
    connections = await admin.groups.connections(GROUP)
    assert [member.client_id for member in connections.connection_set] == [client_id]


async def test_who_produces(admin, topic, joined):
    client_id = await joined(StandInProducer())
    assert [member.client_id for member in await admin.groups.producers("producers", TOPIC)] == [client_id]
    [producer] = (await admin.groups.all_producers("broker-a"))["producers"]
    assert producer.client_id == client_id
    with pytest.raises(ServerError):
        await admin.groups.producers("nobody", TOPIC)


async def test_what_a_consumer_says_of_itself(admin, topic, joined):
    client_id = await joined(StandIn(queues=(0, 1)))
    info = await admin.clients.running_info(GROUP, client_id)
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert {owned.queue_id: held.commit_offset for owned, held in info.mq_table.items()} == {0: 7, 1: 7}
    assert info.jstack is None
    assert (await admin.clients.running_info(GROUP, client_id, stacks=True)).jstack == "a stack"
    with pytest.raises(ServerError, match="not online"):
        await admin.clients.running_info(GROUP, "nobody")


async def test_what_consumers_have_in_memory(admin, topic, joined):
    first, second = await joined(StandIn(queues=(0, 1))), await joined(StandIn(queues=(2, 3)))
    assert await admin.clients.consume_status(GROUP, TOPIC) == {
        first: {queue(0): 7, queue(1): 7},
        second: {queue(2): 7, queue(3): 7},
    }
    assert list(await admin.clients.consume_status(GROUP, TOPIC, second)) == [second]
    with pytest.raises(ServerError):
        await admin.clients.consume_status("nobody", TOPIC)


# Offsets


async def test_where_a_queue_begins_and_ends(admin, ten):
    assert await admin.offsets.minimum(queue(0)) == 0
    assert await admin.offsets.maximum(queue(0)) == 10
    assert await admin.offsets.at_time(queue(0), EPOCH) == 0
    earliest = await admin.offsets.earliest_store_time(queue(0))
    assert datetime.now(UTC) - earliest < timedelta(minutes=1)
    with pytest.raises(NoMessage):
        await admin.offsets.earliest_store_time(queue(2))
    with pytest.raises(RouteNotFound):
        await admin.offsets.maximum(queue(0, broker="broker-z"))
    with pytest.raises(TopicNotFound):
        await admin.offsets.maximum(queue(0, "missing"))


async def test_offsets_are_set_to_values(admin, ten):
    await admin.offsets.set(GROUP, {queue(0): 4, queue(1): 1})
    assert [await admin.offsets.committed(GROUP, queue(number)) for number in range(2)] == [4, 1]
    with pytest.raises(RouteNotFound):
        await admin.offsets.set(GROUP, {queue(0): 5, queue(0, broker="broker-z"): 1})
    assert await admin.offsets.committed(GROUP, queue(0)) == 4


async def test_an_offset_that_was_never_committed_is_not_found():
    def refuse(connection, request):
        raise QueryNotFound("never")

    async with (
        Spy({RequestCode.QUERY_CONSUMER_OFFSET: refuse}) as broker,
        Spy(name_server_for(broker)) as name_server,
        AdminClient(name_server.address) as admin,
    ):
        with pytest.raises(QueryNotFound):
            await admin.offsets.committed(GROUP, queue())


async def test_an_offline_group_goes_on_where_it_is_told(admin, ten):
    await commit(admin, {0: 7, 1: 2})
    result = await admin.offsets.reset(GROUP, TOPIC, EPOCH)
    assert (result.online, result.offline) == ((), ("broker-a",))
    assert result.offsets == {queue(number): 0 for number in range(4)}
    assert await admin.offsets.committed(GROUP, queue(0)) == 0
    assert (await admin.offsets.reset(GROUP, TOPIC, None)).offsets[queue(0)] == 10
    assert (await admin.groups.progress(GROUP)).lag == 0


async def test_without_force_an_offline_group_is_not_moved_forward(admin, ten):
    await commit(admin, {0: 7, 1: 2})
    result = await admin.offsets.reset(GROUP, TOPIC, None, force=False)
    assert result.offsets[queue(0)] == 7
    assert await admin.offsets.committed(GROUP, queue(0)) == 7


async def test_a_group_that_never_committed_is_reset_too(admin, ten):
    result = await admin.offsets.reset("new", TOPIC, None)
    assert result.offline == ("broker-a",)
    assert await admin.offsets.committed("new", queue(0)) == 10


async def test_the_consumers_of_an_online_group_are_told(admin, ten, joined):
    consumer = StandIn()
    await joined(consumer)
    await commit(admin, dict.fromkeys(range(4), 2))
    result = await admin.offsets.reset(GROUP, TOPIC, None)
    assert (result.online, result.offline) == (("broker-a",), ())
    assert result.offsets[queue(0)] == 10
    async with asyncio.timeout(PATIENCE):
        topic, told = await consumer.resets.get()
    assert (topic, told) == (TOPIC, result.offsets)
    # The offset itself is the consumers' to change.
    assert await admin.offsets.committed(GROUP, queue(0)) == 2


async def test_an_online_group_that_cannot_be_told_is_left_alone(admin, ten, joined):
    await joined(StandIn())
    with pytest.raises(ServerError, match="not exist"):  # it has not committed in all queues yet
        await admin.offsets.reset(GROUP, TOPIC, EPOCH)


async def test_a_reset_that_half_succeeded_says_where(cluster, admin, ten):
    await cluster.start_broker("broker-b")
    await cluster.create_topic(TOPIC, broker="broker-b")

    async def refuse(connection, request):
        raise NoPermission("not today")

    processors = cluster.brokers["broker-b"]._ports._servers[0].endpoint.processors
    processors[RequestCode.UPDATE_CONSUMER_OFFSET] = refuse
    processors[RequestCode.GET_CONSUME_STATS] = refuse
    with pytest.raises(PartialFailure) as caught:
        await admin.offsets.reset(GROUP, TOPIC, None)
    assert caught.value.done == ("broker-a",)
    assert caught.value.partial.offsets[queue(0)] == 10
    assert await admin.offsets.committed(GROUP, queue(0)) == 10


async def test_the_time_of_a_reset_goes_to_the_broker_in_milliseconds():
    async with Spy() as broker, Spy(name_server_for(broker)) as name_server, AdminClient(name_server.address) as admin:
        with pytest.raises(Exception, match="no body"):
            await admin.offsets.reset(GROUP, TOPIC, EPOCH + timedelta(seconds=1.5), force=False)
        [request] = broker.asked(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    header = request.header(ResetOffset)
    assert (header.timestamp, header.is_force) == (1500, False)


async def test_offsets_are_given_to_another_group(admin, ten):
    await commit(admin, {0: 7, 1: 2})
    assert await admin.offsets.clone(GROUP, "copy") == [TOPIC]
    assert await admin.offsets.committed("copy", queue(0)) == 7
    with pytest.raises(ConsumerNotOnline):
        await admin.offsets.clone("nobody", "copy")
    await commit(admin, {0: 8})
    assert await admin.offsets.clone(GROUP, "copy", TOPIC) == [TOPIC]
    assert await admin.offsets.committed("copy", queue(0)) == 8
