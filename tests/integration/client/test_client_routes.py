"""Routes asked of name servers, real ones and such as answer what real ones do not."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.integration.client.cluster_kit import Spy, eventually
from tests.integration.client.members_kit import ConsumerStub

from pyromq.client.client import Client
from pyromq.errors import (
    ConnectFailed,
    ConnectionLost,
    RemoteProtocolError,
    RequestTimeout,
    RouteNotFound,
    SystemBusy,
)
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.message_queue import MessageQueue

LEGACY = b"""{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a",
"cluster":"C"}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":2,
"topicSynFlag":0,"writeQueueNums":2}]}"""


@contextlib.asynccontextmanager
async def asking(answers, **settings):
    """A client whose name server has these routes: bytes, a code that is no success, or None for no answer at all."""

    def answer(connection, request):
        given = answers.get(request.ext["topic"], 17)
        if given is None:
            return None
        return request.reply(given, "refused") if isinstance(given, int) else request.reply(body=given)

    async with (
        Spy({RequestCode.GET_ROUTEINFO_BY_TOPIC: answer}) as name_server,
        Client(name_server.address, **settings) as client,
    ):
        yield client.routes, name_server


def queue(number, broker="broker-a", topic="orders"):
    return MessageQueue(broker_name=broker, queue_id=number, topic=topic)


@pytest.mark.scenario("client 4")
async def test_a_route_with_integer_keys_as_java_writes_them_is_understood():
    async with asking({"orders": LEGACY}) as (routes, _):
        await routes.find("orders")
        assert routes.master("broker-a") == "10.0.0.1:10911"
        assert routes.replica("broker-a", 1, True) == ("10.0.0.2:10911", True)
        assert await routes.subscribe_queues("orders") == [queue(0), queue(1)]
        assert routes.brokers_of("orders") == ["broker-a"]


async def test_a_route_is_asked_for_once_however_many_want_it():
    async with asking({"orders": LEGACY}) as (routes, name_server):
        found = await asyncio.gather(*(routes.find("orders") for _ in range(10)))
        assert len(name_server.requests) == 1
        assert all(route is found[0] for route in found[1:])
        await routes.find("orders")
        await routes.publish_info("orders")
        assert len(name_server.requests) == 1
        assert routes.cached_publish_info("orders").queues == (queue(0), queue(1))


async def test_an_unknown_topic_says_who_was_asked_and_that_nobody_creates_topics():
    async with asking({}) as (routes, name_server):
        with pytest.raises(RouteNotFound, match=r"orders.*autoCreateTopicEnable") as caught:
            await routes.publish_info("orders")
        assert name_server.address in str(caught.value)
        assert (caught.value.code, caught.value.topic) == (10005, "orders")
        with pytest.raises(RouteNotFound, match=name_server.address):
            await routes.find("orders")


async def test_a_topic_that_does_not_exist_is_sent_where_the_template_says(cluster, client_of):
    routes = (await client_of(cluster)).routes
    info = await routes.publish_info("orders", default_queues=3)
    assert info.queues == tuple(queue(number) for number in range(3))
    assert routes.cached_publish_info("orders") is info
    # Nobody can read from it yet.
    assert routes.cached("orders") is None
    routes.drop_offline()
    assert routes.master("broker-a") == cluster.address()

    await cluster.create_topic("orders", queues=5)
    assert await routes.refresh("orders") is not None
    assert len((await routes.publish_info("orders")).queues) == 5


async def test_a_guess_is_not_kept_when_the_topic_still_does_not_exist():
    answers = {"TBW102": LEGACY}
    async with asking(answers) as (routes, _):
        await routes.publish_info("orders")
        answers["TBW102"] = LEGACY.replace(b"broker-a", b"broker-z")
        assert await routes.refresh("orders") is None
        assert (await routes.publish_info("orders")).queues[0].broker_name == "broker-z"


async def test_a_topic_without_a_queue_to_write_says_why():
    read_only = LEGACY.replace(b'"perm":6', b'"perm":4')
    no_master = LEGACY.replace(b'0:"10.0.0.1:10911",', b"")
    async with asking({"read": read_only, "slaves": no_master}) as (routes, _):
        with pytest.raises(RouteNotFound, match="broker-a has no write permission"):
            await routes.publish_info("read")
        with pytest.raises(RouteNotFound, match="broker-a has no master"):
            await routes.publish_info("slaves")
        assert len(await routes.subscribe_queues("slaves")) == 2


@pytest.mark.parametrize("code", [17, 2, None])
async def test_what_is_known_stays_when_a_refresh_brings_nothing(code):
    answers = {"orders": LEGACY}
    async with asking(answers, api_timeout=0.05) as (routes, _):
        route = await routes.find("orders")
        answers["orders"] = code
        if code == 17:
            assert await routes.refresh("orders") is None
        else:
            with pytest.raises(SystemBusy if code == 2 else RequestTimeout):
                await routes.refresh("orders")
        assert routes.cached("orders") is route
        assert routes.cached_publish_info("orders").queues
        assert routes.master("broker-a")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        LEGACY.replace(b'"writeQueueNums":2', b'"writeQueueNums":2147483647'),
        LEGACY.replace(b'"readQueueNums":2', b'"readQueueNums":2147483647'),
        LEGACY.replace(b'{"brokerDatas"', b'{"orderTopicConf":"broker-a","brokerDatas"'),
        LEGACY.replace(b'{"brokerDatas"', b'{"orderTopicConf":"broker-a:99999999999","brokerDatas"'),
        LEGACY.replace(b'{"brokerDatas"', b'{"orderTopicConf":":4","brokerDatas"'),
    ],
)
async def test_an_answer_that_makes_no_sense_changes_nothing(body):
    answers = {"orders": LEGACY}
    async with asking(answers) as (routes, _):
        route = await routes.find("orders")
        answers["orders"] = answers["other"] = body
        for topic in ("orders", "other"):
            with pytest.raises(RemoteProtocolError):
                await routes.refresh(topic)
        assert routes.cached("orders") is route
        assert routes.cached("other") is None


async def test_a_static_topic_is_refused_with_its_reason():
    static = LEGACY.replace(b'{"brokerDatas"', b'{"topicQueueMappingByBroker":{"broker-a":{}},"brokerDatas"')
    plain = LEGACY.replace(b'{"brokerDatas"', b'{"topicQueueMappingByBroker":{},"brokerDatas"')
    async with asking({"static": static, "plain": plain}) as (routes, _):
        with pytest.raises(RouteNotFound, match="static topic"):
            await routes.find("static")
        await routes.find("plain")


async def test_looking_for_queues_ends_in_time_when_nobody_answers():
    async with asking({"orders": None}) as (routes, _):
        with pytest.raises(RequestTimeout, match=r"0\.05 s"):
            await routes.publish_info("orders", timeout=0.05)


async def test_a_broker_that_moved_is_found_and_one_that_is_gone_is_forgotten():
    answers = {"orders": LEGACY, "bills": LEGACY.replace(b"broker-a", b"broker-b")}
    async with asking(answers) as (routes, _):
        await routes.find("orders")
        await routes.find("bills")
        answers["orders"] = LEGACY.replace(b"10.0.0.1", b"10.0.0.9")
        answers["bills"] = LEGACY.replace(b"broker-a", b"broker-c")
        await routes.refresh("orders")
        await routes.refresh("bills")
        routes.drop_offline()
        assert routes.master("broker-a") == "10.0.0.9:10911"
        assert routes.master("broker-b") is None
        assert routes.addresses() == {"10.0.0.9:10911", "10.0.0.1:10911", "10.0.0.2:10911"}
        assert routes.masters() == {"10.0.0.9:10911", "10.0.0.1:10911"}


async def test_the_master_of_a_queue_is_asked_for_when_it_is_not_known():
    async with asking({"orders": LEGACY}) as (routes, _):
        assert await routes.master_or_refresh(queue(0)) == "10.0.0.1:10911"
        with pytest.raises(RouteNotFound, match="broker-x") as caught:
            await routes.master_or_refresh(queue(0, broker="broker-x"))
        assert caught.value.code == 10003


async def test_members_hear_of_a_route_only_when_it_changed():
    answers = {"orders": LEGACY}
    async with asking(answers) as (routes, _):
        heard: list[str] = []
        routes._changed = heard.append
        await routes.refresh("orders")
        await routes.refresh("orders")
        assert heard == ["orders"]
        answers["orders"] = LEGACY.replace(b'"readQueueNums":2', b'"readQueueNums":3')
        await routes.refresh("orders")
        assert heard == ["orders", "orders"]
        assert len(routes.cached_subscribe_queues("orders")) == 3
        routes.forget("orders")
        assert routes.cached_publish_info("orders") is None


async def test_a_topic_that_comes_to_be_is_found_soon(cluster, client_of):
    client = await client_of(cluster)
    member = ConsumerStub("readers", "late")
    await client.join(member)
    assert client.routes.cached("late") is None
    await cluster.create_topic("late")

    async def known():
        return client.routes.cached("late")

    await eventually(known)  # within its patience, a third of the time between two rounds for all topics
    await client.leave(member)


async def test_a_broker_that_cannot_be_reached_is_the_last_to_be_read_from():
    async with asking({"orders": LEGACY}) as (routes, name_server):
        await routes.find("orders")
        master, slave = routes.replica("broker-a", 0, False), routes.replica("broker-a", 1, False)
        assert (master, slave) == (("10.0.0.1:10911", False), ("10.0.0.2:10911", True))
        assert not routes.has_another(queue(0), ConnectionLost(master[0], "it was closed"))
        assert routes.has_another(queue(0), ConnectFailed(master[0], "refused"))
        assert routes.replica("broker-a", 0, False) == slave
        assert routes.replica("broker-a", 0, True) == master
        assert not routes.has_another(queue(0), RequestTimeout(slave[0], 11, 30.0))
        assert routes.replica("broker-a", 0, False) == master
        routes.reached(master[0])
        assert routes.replica("broker-a", 1, False) == master
        await routes.refresh("orders")
        assert len(name_server.requests) == 2  # what is noted first asks for the route, once for all
