"""Topics by the admin client: made, changed, shown, ordered, deleted; and what happens when a broker is down."""

from __future__ import annotations

import pytest
from tests.integration.client.admin.admin_kit import GROUP, TOPIC, StandIn, commit, queue, send
from tests.integration.client.admin.stage import name_server_for
from tests.integration.client.cluster_kit import Spy

from pyromq.client.admin import AdminClient, topics
from pyromq.errors import (
    ConnectFailed,
    InvalidMessage,
    NoNameServer,
    NoPermission,
    PartialFailure,
    QueryNotFound,
    RouteNotFound,
    ServerError,
    StateError,
    TopicNotFound,
)
from pyromq.protocol.bodies import TopicConfig, TopicConfigSerializeWrapper
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.headers import CreateTopic
from pyromq.protocol.permissions import PERM_READ


async def test_a_topic_is_made_shown_changed_and_deleted(cluster, admin):
    assert await admin.topics.create("made", read_queues=6, write_queues=5) == [cluster.address()]
    assert "made" in await admin.topics.names()
    assert "made" in await admin.topics.names("DefaultCluster")
    assert await admin.topics.names("nowhere") == []
    assert await admin.topics.clusters("made") == ["DefaultCluster"]
    [queues] = (await admin.topics.route("made")).queue_datas
    assert (queues.broker_name, queues.read_queue_nums, queues.write_queue_nums, queues.perm) == ("broker-a", 6, 5, 6)
    assert list(await admin.topics.stats("made")) == [queue(number, "made") for number in range(5)]

    await admin.topics.update("made", perm=PERM_READ)
    config = (await admin.topics.config("made"))["broker-a"]
    assert (config.perm, config.read_queue_nums, config.write_queue_nums) == (4, 6, 5)
    assert (await admin.topics.configs("broker-a"))["made"] == config

    await admin.topics.delete("made")
    assert "made" not in await admin.topics.names()
    for question in (admin.topics.route, admin.topics.config, admin.topics.stats, admin.topics.groups):
        with pytest.raises(TopicNotFound):
            await question("made")
    assert "made" not in await admin.topics.configs(cluster.address())


async def test_a_topic_that_is_not_there_can_be_deleted_but_not_changed(admin):
    await admin.topics.delete("missing")
    with pytest.raises(TopicNotFound):
        await admin.topics.update("missing", perm=4)
    with pytest.raises(TopicNotFound):
        await admin.topics.update("missing", perm=4, brokers="broker-a")


@pytest.mark.parametrize("name", ["", "a b", "a" * 128, "TBW102", "rmq_sys_x"])
async def test_a_name_that_no_topic_can_have_is_refused_here(admin, name):
    with pytest.raises(InvalidMessage):
        await admin.topics.create(name)


async def test_where_a_topic_should_go_must_be_known(admin):
    for where in ({"cluster": "nowhere"}, {"brokers": "broker-z"}, {"brokers": ["broker-a", "broker-z"]}):
        with pytest.raises(RouteNotFound) as caught:
            await admin.topics.create("made", **where)
        assert caught.value.code == 10003
    assert "made" not in await admin.topics.names()


async def test_a_topic_is_made_on_the_brokers_that_are_named(cluster, admin):
    await cluster.start_broker("broker-b")
    assert await admin.topics.create("made", brokers="broker-b") == [cluster.address("broker-b")]
    assert list(await admin.topics.config("made")) == ["broker-b"]
    await admin.topics.create("made", brokers=[cluster.address()], write_queues=1)
    assert {name: each.write_queue_nums for name, each in (await admin.topics.config("made")).items()} == {
        "broker-a": 1,
        "broker-b": 8,
    }
    assert len(await admin.topics.stats("made")) == 9


async def test_an_operation_that_half_succeeded_says_so(cluster, admin, monkeypatch):
    monkeypatch.setattr(topics, "_PAUSE", 0.0)
    await cluster.start_broker("broker-b")
    alive, dead = cluster.address("broker-a"), "127.0.0.1:1"
    with pytest.raises(PartialFailure) as caught:
        await admin.topics.create("made", brokers=[alive, dead])
    assert caught.value.done == (alive,)
    [(address, error)] = caught.value.failures
    assert address == dead
    assert isinstance(error, ConnectFailed)
    assert "made" in await admin.topics.names()
    with pytest.raises(ConnectFailed):
        await admin.topics.create("made", brokers=dead)


async def test_stats_of_the_brokers_that_answer_come_with_the_error(cluster, admin, topic):
    await cluster.start_broker("broker-b")
    await cluster.create_topic(topic, broker="broker-b")

    async def refuse(connection, request):
        raise NoPermission("not today")

    cluster.brokers["broker-b"]._ports._servers[0].endpoint.processors[RequestCode.GET_TOPIC_STATS_INFO] = refuse
    with pytest.raises(PartialFailure) as caught:
        await admin.topics.stats(topic)
    assert caught.value.done == ("broker-a",)
    assert caught.value.code == NoPermission.code
    assert sorted(caught.value.partial) == [queue(number) for number in range(4)]


async def test_where_a_broker_fails_the_name_servers_keep_the_topic(cluster, admin, topic):
    await cluster.start_broker("broker-b")

    async def refuse(connection, request):
        raise NoPermission("not today")

    cluster.broker._ports._servers[0].endpoint.processors[RequestCode.DELETE_TOPIC_IN_BROKER] = refuse
    with pytest.raises(PartialFailure):
        await admin.topics.delete(topic)
    assert topic in await admin.topics.names()


async def test_who_consumes_a_topic(admin, topic, joined):
    await joined(StandIn("online"))
    await commit(admin, {0: 0}, group="offline")
    assert await admin.topics.groups(topic) == ["offline", "online"]


async def test_the_topics_of_the_system_are_those_of_name_server_and_broker(admin):
    system = await admin.topics.system()
    assert {"DefaultCluster", "broker-a", "TBW102", "SCHEDULE_TOPIC_XXXX"} <= set(system)
    assert system == sorted(system)


async def test_where_the_queues_of_a_topic_end(cluster, admin, topic):
    await send(cluster, queue_id=1)
    await send(cluster, queue_id=1)
    stats = await admin.topics.stats(topic)
    assert {each.queue_id: (ends.min_offset, ends.max_offset) for each, ends in stats.items()} == {
        0: (0, 0),
        1: (0, 2),
        2: (0, 0),
        3: (0, 0),
    }


# Order


async def test_the_order_of_a_topic_is_set_merged_shown_and_deleted(admin, topic):
    with pytest.raises(QueryNotFound):
        await admin.topics.order(topic)
    await admin.topics.merge_order(topic, {"broker-a": 4})
    await admin.topics.merge_order(topic, {"broker-b": 2})
    assert await admin.topics.order(topic) == {"broker-a": 4, "broker-b": 2}
    await admin.namesrv.set_config({"orderMessageEnable": "true"})
    assert (await admin.topics.route(topic)).order_topic_conf == "broker-a:4;broker-b:2"
    await admin.topics.set_order(topic, {"broker-b": 8})
    assert await admin.topics.order(topic) == {"broker-b": 8}
    await admin.topics.delete_order(topic)
    with pytest.raises(QueryNotFound):
        await admin.topics.order(topic)


async def test_an_ordered_topic_is_made_with_its_order(cluster, admin):
    await admin.topics.create("made", write_queues=3, order=True)
    assert await admin.topics.order("made") == {"broker-a": 3}
    await cluster.start_broker("broker-b")
    await admin.topics.create("made", write_queues=2, order=True, brokers="broker-b")
    assert await admin.topics.order("made") == {"broker-a": 3, "broker-b": 2}
    await admin.topics.create("made", write_queues=5, order=True)
    assert await admin.topics.order("made") == {"broker-a": 5, "broker-b": 5}


async def test_the_order_of_a_broker_that_nobody_knows_is_refused_before_anything_is_made(admin):
    with pytest.raises(RouteNotFound):
        await admin.topics.create("made", order=True, brokers="127.0.0.1:1")


# Tries, with a server in the place of the others


@pytest.mark.parametrize(
    ("code", "tries", "error"),
    [
        (ResponseCode.SYSTEM_BUSY, 5, None),
        (ResponseCode.SERVICE_NOT_AVAILABLE, 5, None),
        (ResponseCode.NO_PERMISSION, 1, NoPermission),
        (ResponseCode.SYSTEM_ERROR, 1, ServerError),
    ],
)
async def test_a_broker_that_is_busy_is_asked_five_times(monkeypatch, code, tries, error):
    monkeypatch.setattr(topics, "_PAUSE", 0.0)
    asked = []

    def refuse_four_times(connection, request):
        asked.append(request.header(CreateTopic))
        return request.reply(code if len(asked) < 5 else ResponseCode.SUCCESS)

    async with (
        Spy({RequestCode.UPDATE_AND_CREATE_TOPIC: refuse_four_times}) as broker,
        Spy(name_server_for(broker)) as name_server,
        AdminClient(name_server.address) as admin,
    ):
        if error is None:
            await admin.topics.create("made", attributes={"message.type": "FIFO"})
        else:
            with pytest.raises(error):
                await admin.topics.create("made")
    assert len(asked) == tries
    assert asked[-1].attributes == ("+message.type=FIFO" if error is None else None)


async def test_a_broker_of_4_9_is_asked_for_all_topics_to_find_one():
    table = TopicConfigSerializeWrapper(topic_config_table={TOPIC: TopicConfig(topic_name=TOPIC, perm=4)})
    old = {
        RequestCode.GET_TOPIC_CONFIG: lambda _, request: request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
        RequestCode.GET_ALL_TOPIC_CONFIG: lambda _, request: request.reply(body=table.encode()),
    }
    async with (
        Spy(old) as broker,
        Spy(name_server_for(broker)) as name_server,
        AdminClient(name_server.address) as admin,
    ):
        assert (await admin.topics.config(TOPIC))["broker-a"].perm == 4
        with pytest.raises(TopicNotFound):
            await admin.topics.config("another")


# Life


async def test_an_admin_that_is_not_started_or_closed_refuses_at_once(cluster):
    admin = AdminClient(cluster.namesrv)
    with pytest.raises(StateError):
        await admin.topics.names()
    async with admin:
        await admin.topics.names()
    with pytest.raises(StateError):
        await admin.topics.names()
    async with admin:
        await admin.topics.names()


async def test_an_admin_shares_a_client(cluster, client_of):
    client = await client_of(cluster)
    async with AdminClient(client=client) as admin:
        await admin.topics.names()
        with pytest.raises(StateError):
            await AdminClient(client=client).start()
        async with AdminClient(client=client, group="another") as another:
            await another.topics.names()
        await admin.topics.names()
    client.check_open()


async def test_without_a_name_server_there_is_nobody_to_ask(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    async with AdminClient() as admin:
        for asked in (admin.topics.names(), admin.namesrv.config()):
            with pytest.raises(NoNameServer):
                await asked


async def test_a_name_server_that_is_down_is_an_error_in_bounded_time():
    async with AdminClient("127.0.0.1:1", timeout=0.5) as admin:
        for asked in (admin.topics.names(), admin.namesrv.config(), admin.groups.progress(GROUP)):
            with pytest.raises(ConnectFailed):
                await asked
