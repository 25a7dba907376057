"""What name servers are told, when, and that none of them has to wait for another. Over real sockets."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
from tests.bounds import TOO_LONG
from tests.ports import free_port
from tests.unit.settings_kit import change

from pyromq.broker import registration as module
from pyromq.broker.config import BrokerConfig, LiveConfig
from pyromq.broker.registration import Registration
from pyromq.broker.registration_requests import RegistrationRequests
from pyromq.broker.topics import TopicTable
from pyromq.errors import ConnectionLost, ServerError, TopicNotFound, broker_error
from pyromq.namesrv import NameServer, load_settings
from pyromq.protocol.bodies import (
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicRouteData,
    body_crc32,
)
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import (
    BrokerIdentity,
    GetRouteInfo,
    PutKVConfig,
    QueryDataVersionReply,
    RegisterBroker,
    RegisterBrokerReply,
)
from pyromq.remoting import Processor, RemotingClient, RemotingServer, ServerConfig

ADDRESS = "10.1.2.3:10911"
PATIENCE = 30.0


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(module, "_FIRST_RETRY", 0.02)


class Teller:
    """A broker's registration and what it is made of."""

    def __init__(self, name_servers, **settings):
        config = BrokerConfig(namesrv_addr=";".join(name_servers), broker_name="broker-a", **settings)
        self.live = LiveConfig.of(config)
        self.topics = TopicTable(self.live, lambda: 1)
        self.requests = RegistrationRequests(self.live, self.topics, address=ADDRESS, ha_address="10.1.2.3:10912")
        self.client = RemotingClient()
        self.asking = RemotingClient()
        self.registration = Registration(self.client, self.live, self.requests, self.topics.set_order_topics)
        self.topics.changed = lambda _: self.registration.announce()

    def add(self, *names):
        for name in names:
            self.topics.update(TopicConfig(topic_name=name))

    async def ask(self, address, code, header):
        reply = await self.asking.invoke(address, Command.request(code, header))
        if reply.code:
            raise broker_error(reply.code, reply.remark)
        return reply

    async def route(self, address, topic):
        """The queues of `topic` by broker name; None while the name server has no route, or is not there."""
        try:
            reply = await self.ask(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic))
        except (TopicNotFound, ConnectionLost):
            return None
        return {queue.broker_name: queue for queue in TopicRouteData.decode(reply.body_bytes).queue_datas}

    async def routed(self, address, topic):
        """Wait until the name server has a route of `topic`."""
        return await eventually(lambda: self.route(address, topic))

    async def forgotten(self, address, topic):
        async def gone():
            return await self.route(address, topic) is None

        await eventually(gone)


async def eventually(condition):
    """Wait until `condition` gives something that is true; gives it, too."""
    async with asyncio.timeout(PATIENCE):
        while True:
            result = condition()
            if asyncio.iscoroutine(result):
                result = await result
            if result:
                return result
            await asyncio.sleep(0.002)


@asynccontextmanager
async def telling(*name_servers, run=True, **settings):
    teller = Teller(name_servers, **settings)
    async with teller.client, teller.asking:
        await teller.registration.start()
        running = asyncio.create_task(teller.registration.run()) if run else None
        await asyncio.sleep(0)
        try:
            yield teller
        finally:
            if running is not None:
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running


class Recorder:
    """A name server that writes down what it is asked, and says what it was told to."""

    def __init__(self):
        self.requests = []
        self.heard = asyncio.Event()
        self.known: DataVersion | None = None
        self.order_topics = None
        self.silent = False
        self.refuses = False
        # Says that nothing changed, whatever version it is asked about, and that it has this one.
        self.claims = None

    def take(self, connection, request):
        self.requests.append(request)
        self.heard.set()
        if self.silent:
            return None
        if self.refuses:
            return request.reply(1, "register broker failed")
        if request.code == RequestCode.QUERY_DATA_VERSION:
            version = self.claims or self.known or DataVersion()
            changed = version != DataVersion.decode(request.body_bytes) and self.claims is None
            return request.reply(header=QueryDataVersionReply(changed), body=version.encode())
        if request.code == RequestCode.REGISTER_BROKER:
            self.known = registered(request).topic_config_serialize_wrapper.data_version
        return request.reply(header=RegisterBrokerReply(), body=self.order_topics)

    async def until(self, count):
        """Wait for so many requests; gives the codes of all."""
        async with asyncio.timeout(PATIENCE):
            while len(self.requests) < count:
                self.heard.clear()
                await self.heard.wait()
        return [request.code for request in self.requests]


@pytest.fixture
async def recorder():
    """Gives a new recorder and its address."""
    async with AsyncExitStack() as stack:

        async def start():
            recording = Recorder()
            codes = (RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER, RequestCode.QUERY_DATA_VERSION)
            table: dict[int, Processor] = dict.fromkeys(codes, recording.take)
            config = ServerConfig(listen_port=0, bind_address="127.0.0.1")
            server = await stack.enter_async_context(RemotingServer(config, table))
            return recording, server.address

        yield start


@pytest.fixture
def name_server(tmp_path):
    def make(port=0, name="kv"):
        files = [f"kvConfigPath={tmp_path}/{name}.json", f"configStorePath={tmp_path}/{name}.properties"]
        return NameServer(load_settings(sets=[*files, f"listenPort={port}", "bindAddress=127.0.0.1"]))

    return make


def registered(request):
    header = request.header(RegisterBroker)
    assert header.body_crc32 == body_crc32(request.body_bytes)
    return RegisterBrokerBody.decode(request.body_bytes, request.version, header.compressed)


def topics_of(request):
    return registered(request).topic_config_serialize_wrapper.topic_config_table


def refused_address():
    """An address where nobody listens."""
    return f"127.0.0.1:{free_port()}"


# Who is told


async def test_every_name_server_knows_the_topics_after_the_start(name_server):
    async with name_server() as first, name_server() as second, telling(first.address, second.address) as teller:
        for address in (first.address, second.address):
            queue = (await teller.route(address, "TBW102"))["broker-a"]
            assert (queue.read_queue_nums, queue.perm) == (8, 7)
        assert teller.registration.registered
        assert teller.registration.name_servers == (first.address, second.address)


async def test_the_first_registration_says_who_speaks_and_has_more_than_one_topic(recorder):
    recording, address = await recorder()
    async with telling(address, run=False):
        [request] = recording.requests
    header = request.header(RegisterBroker)
    assert (header.broker_name, header.broker_id, header.cluster_name) == ("broker-a", 0, "DefaultCluster")
    assert (header.broker_addr, header.ha_server_addr) == (ADDRESS, "10.1.2.3:10912")
    # A 5.x name server takes nobody who comes with a single one.
    assert len(topics_of(request)) >= 2


async def test_name_servers_that_refuse_and_that_never_answer_delay_nobody(recorder, name_server):
    silent, silent_address = await recorder()
    silent.silent = True
    dead = refused_address()
    async with name_server() as sound:
        began = asyncio.get_running_loop().time()
        async with telling(dead, silent_address, sound.address, register_timeout=300) as teller:
            assert asyncio.get_running_loop().time() - began < TOO_LONG
            assert await teller.route(sound.address, "TBW102")
            # The silent one is being waited for again, or soon will be.
            teller.add("fresh")
            await teller.routed(sound.address, "fresh")
            assert teller.registration.registered


async def test_a_name_server_that_was_restarted_empty_gets_its_routes_back(name_server):
    async with AsyncExitStack() as life:
        before = await life.enter_async_context(name_server())
        address, port = before.address, before.port
        async with telling(address) as teller:
            teller.add("orders")
            await teller.routed(address, "orders")
            await life.aclose()
            async with name_server(port):
                assert await teller.routed(address, "orders")


async def test_a_name_server_that_comes_late_is_told_everything(name_server):
    address = refused_address()
    async with telling(address) as teller:
        assert not teller.registration.registered
        teller.add("orders")
        async with name_server(int(address.rpartition(":")[2])):
            assert await teller.routed(address, "orders")


async def test_a_name_server_that_says_no_is_asked_again(recorder):
    recording, address = await recorder()
    recording.refuses = True
    async with telling(address) as teller:
        await recording.until(3)
        assert not teller.registration.registered
        recording.refuses = False
        await eventually(lambda: teller.registration.registered)


# What they are told of changes


async def test_topics_made_in_a_burst_are_told_once_and_nobody_waits_for_the_answer(recorder):
    recording, address = await recorder()
    async with telling(address) as teller:
        teller.add("a", "b", "c")
        await recording.until(2)
        await asyncio.sleep(0.05)
        assert len(recording.requests) == 2
    assert recording.requests[1].is_oneway
    assert {"a", "b", "c", "TBW102"} <= topics_of(recording.requests[1]).keys()


async def test_one_topic_is_told_alone_where_the_others_are_known(recorder):
    recording, address = await recorder()
    async with telling(address) as teller:
        teller.add("orders")
        await teller.registration.settle()
        assert topics_of(recording.requests[1]).keys() == {"orders"}
        assert not recording.requests[1].is_oneway
        assert recording.known == teller.topics.data_version
        # That it changed was announced, too; but there is nothing left to say.
        await asyncio.sleep(0.05)
        assert len(recording.requests) == 2


async def test_topics_that_changed_are_told_together_and_alone(recorder):
    recording, address = await recorder()
    async with telling(address, run=False) as teller:
        teller.add("missed", "orders")
        await teller.registration.settle()
    assert topics_of(recording.requests[1]).keys() == {"missed", "orders"}


async def test_everything_is_told_where_a_topic_is_gone(recorder):
    recording, address = await recorder()
    async with telling(address, run=False) as teller:
        teller.add("gone", "orders")
        teller.topics.delete("gone")
        await teller.registration.settle()
    assert {"orders", "TBW102"} <= topics_of(recording.requests[1]).keys()


async def test_a_name_server_that_failed_before_is_told_everything_at_once_and_nobody_waits_for_it(
    recorder, monkeypatch
):
    monkeypatch.setattr(module, "_FIRST_RETRY", 600)
    sound, sound_address = await recorder()
    failing, failing_address = await recorder()
    failing.refuses = True
    async with telling(sound_address, failing_address) as teller:
        failing.refuses, failing.silent = False, True
        teller.add("orders")
        await teller.registration.settle()
        assert topics_of(sound.requests[1]).keys() == {"orders"}
        await failing.until(2)
    assert {"orders", "TBW102"} <= topics_of(failing.requests[1]).keys()


async def test_a_topic_that_is_gone_again_is_not_told(recorder):
    recording, address = await recorder()
    async with telling(address, run=False) as teller:
        teller.add("orders")
        registering = asyncio.create_task(teller.registration.settle())
        teller.topics.delete("orders")
        await registering
    assert "orders" not in topics_of(recording.requests[1])


async def test_the_broker_permits_no_more_than_its_topics_and_topics_no_more_than_the_broker(name_server):
    async with name_server() as server, telling(server.address) as teller:
        teller.topics.update(TopicConfig(topic_name="for writers", perm=2))
        await teller.routed(server.address, "for writers")
        change(teller.live, b"brokerPermission=4", "test", now=1)
        teller.topics.touch()
        await teller.registration.register()
        assert (await teller.route(server.address, "TBW102"))["broker-a"].perm == 4
        assert (await teller.route(server.address, "for writers"))["broker-a"].perm == 0
        assert teller.topics.get("TBW102").perm == 7


async def test_a_compressed_registration_is_understood(name_server, recorder):
    recording, recorded = await recorder()
    async with (
        name_server() as server,
        telling(server.address, recorded, compressed_register=True, run=False) as teller,
    ):
        assert (await teller.route(server.address, "TBW102"))["broker-a"].read_queue_nums == 8
    assert recording.requests[0].header(RegisterBroker).compressed
    assert recording.requests[0].body_bytes[:1] == b"\x78"


# Rounds


async def test_a_period_later_everything_is_told_again(recorder, monkeypatch):
    monkeypatch.setattr(module, "_FIRST_PERIOD", 0.01)
    recording, address = await recorder()
    async with telling(address):
        assert await recording.until(2) == [RequestCode.REGISTER_BROKER] * 2
    assert topics_of(recording.requests[0]) == topics_of(recording.requests[1])


async def test_without_force_only_what_changed_is_told(recorder, monkeypatch):
    monkeypatch.setattr(module, "_FIRST_PERIOD", 0.01)
    monkeypatch.setattr(BrokerConfig, "register_interval", 0.01)
    recording, address = await recorder()
    register, query = RequestCode.REGISTER_BROKER, RequestCode.QUERY_DATA_VERSION
    async with telling(address, force_register=False) as teller:
        assert await recording.until(3) == [register, query, query]
        teller.topics.changed = None
        teller.add("orders")
        while register not in (codes := [request.code for request in recording.requests[3:]]):
            await recording.until(len(recording.requests) + 1)
        assert codes[codes.index(register) - 1] == query
    identity = recording.requests[1].header(BrokerIdentity)
    assert (identity.broker_name, identity.broker_addr, identity.broker_id) == ("broker-a", ADDRESS, 0)


async def test_a_name_server_that_has_another_version_without_saying_so_is_told(recorder, monkeypatch):
    monkeypatch.setattr(module, "_FIRST_PERIOD", 0.01)
    recording, address = await recorder()
    recording.claims = DataVersion(counter=99)
    async with telling(address, force_register=False):
        register, query = RequestCode.REGISTER_BROKER, RequestCode.QUERY_DATA_VERSION
        assert await recording.until(3) == [register, query, register]


# What they say


async def test_the_name_server_decides_which_topics_keep_order(name_server):
    async with name_server() as server, telling(server.address) as teller:
        teller.add("ordered", "other")
        config = PutKVConfig("ORDER_TOPIC_CONFIG", "ordered", "broker-a:4")
        await teller.ask(server.address, RequestCode.PUT_KV_CONFIG, config)
        await teller.registration.register()
        assert (teller.topics.get("ordered").order, teller.topics.get("other").order) == (True, False)


async def test_of_several_name_servers_the_first_that_is_there_decides(recorder):
    first, first_address = await recorder()
    second, second_address = await recorder()
    async with telling(first_address, second_address, run=False) as teller:
        teller.add("one", "two")
        first.order_topics, second.order_topics = KVTable({"one": ""}).encode(), KVTable({"two": ""}).encode()
        for _ in range(3):
            await teller.registration.register()
            assert (teller.topics.get("one").order, teller.topics.get("two").order) == (True, False)
        first.refuses = True
        await teller.registration.register()
        await teller.registration.register()
        assert (teller.topics.get("one").order, teller.topics.get("two").order) == (False, True)


async def test_an_answer_that_cannot_be_read_changes_no_topic_and_is_no_failure(recorder):
    recording, address = await recorder()
    async with telling(address, run=False) as teller:
        teller.add("orders")
        recording.order_topics = KVTable({"orders": ""}).encode()
        await teller.registration.register()
        for unreadable in (b"[1", b"\xff", b'{"table":3}'):
            recording.order_topics = unreadable
            await teller.registration.register()
        assert teller.topics.get("orders").order
        assert teller.registration.registered


# Leaving, and the list of name servers


async def test_a_broker_that_leaves_is_gone_at_once_whatever_the_others_do(name_server):
    dead = refused_address()
    async with name_server() as server, telling(server.address, dead, run=False) as teller:
        assert await teller.route(server.address, "TBW102")
        await teller.registration.unregister()
        assert await teller.route(server.address, "TBW102") is None


async def test_a_name_server_joins_the_list_and_another_leaves_it(name_server):
    async with name_server() as first, name_server() as second, telling(first.address) as teller:
        change(teller.live, f"namesrvAddr={second.address}".encode(), "test", now=1)
        teller.registration.refresh_soon()
        await teller.routed(second.address, "TBW102")
        await teller.forgotten(first.address, "TBW102")
        assert teller.registration.name_servers == (second.address,)


async def test_a_list_that_is_none_leaves_the_name_servers_as_they_were(recorder):
    _, address = await recorder()
    async with telling(address) as teller:
        with pytest.raises(ServerError, match="is not an address"):
            change(teller.live, b"namesrvAddr=nonsense", "test", now=1)
        await teller.registration.refresh()
        assert teller.registration.name_servers == (address,)


async def test_name_servers_can_be_looked_up_over_http(recorder):
    recording, address = await recorder()

    async def serve(reader, writer):
        line = await reader.readline()
        assert line.startswith(b"GET /rocketmq/nsaddr ")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + address.encode() + b"\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        settings = {"fetch_namesrv_addr": True, "address_server_domain": f"127.0.0.1:{port}"}
        async with telling(run=False, **settings) as teller:
            assert teller.registration.name_servers == (address,)
    assert len(recording.requests) == 1


async def test_a_registration_that_is_cancelled_leaves_the_next_one_unharmed(recorder):
    recording, address = await recorder()
    async with telling(address, run=False) as teller:
        recording.silent = True
        registering = asyncio.create_task(teller.registration.register())
        await recording.until(2)
        registering.cancel()
        await asyncio.wait([registering])
        recording.silent = False
        teller.add("orders")
        await teller.registration.settle()
    # Whether it took the one that was given up is not known, so it gets everything.
    assert {"orders", "TBW102"} <= topics_of(recording.requests[2]).keys()
