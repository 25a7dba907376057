"""A broker from its start to its end: what it takes over, where it listens, how it leaves."""

from __future__ import annotations

import asyncio
import contextlib
import os
from contextlib import AsyncExitStack

import pytest
from tests.integration.broker.life_kit import Peer, eventually, new_broker, new_name_server
from tests.ports import free_port

from pyromq.errors import BrokerError, ConfigError, ConnectFailed, RequestCodeNotSupported, StoreError
from pyromq.protocol.bodies import ConsumerData, HeartbeatData, TopicConfigSerializeWrapper
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.headers import GetConsumerListByGroup
from pyromq.remoting import vip_address
from pyromq.settings import parse


@pytest.fixture
async def peer():
    async with Peer() as peer:
        yield peer


@pytest.fixture
async def name_server(tmp_path):
    async with new_name_server(tmp_path / "namesrv") as server:
        yield server.address


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def broker(folder, name_server):
    """Make a broker of the test's folder and name server, with more settings than usual."""
    return lambda *sets: new_broker(folder, *sets, namesrv_addr=name_server)


# Registration


@pytest.mark.scenario("broker 1.1")
async def test_a_master_registers_with_the_id_0_whatever_the_settings_say(peer, name_server, broker):
    async with broker("brokerId=3", "brokerRole=ASYNC_MASTER") as running:
        assert await peer.brokers(name_server) == {("broker-a", 0): running.address}


@pytest.mark.scenario("broker 1.3")
async def test_a_name_server_that_was_restarted_empty_has_the_routes_again(peer, folder, tmp_path):
    async with AsyncExitStack() as life:
        before = await life.enter_async_context(new_name_server(tmp_path))
        address, port = before.address, before.port
        async with new_broker(folder, namesrv_addr=address) as running:
            await peer.create_topic(running.address, "orders")
            await life.aclose()
            async with new_name_server(tmp_path, port):
                assert (await peer.routed(address, "orders"))["broker-a"].write_queue_nums == 4


async def test_a_topic_has_its_route_when_the_operator_is_answered(peer, name_server, broker):
    async with broker() as running:
        await peer.create_topic(running.address, "invoices", queues=3)
        assert (await peer.route(name_server, "invoices"))["broker-a"].read_queue_nums == 3


async def test_a_topic_that_a_send_made_has_its_route_soon(peer, name_server, broker):
    async with broker() as running:
        await peer.send(running.address, topic="fresh")
        async with asyncio.timeout(8):  # all is registered anew after ten seconds
            assert (await peer.routed(name_server, "fresh"))["broker-a"].write_queue_nums == 4


@pytest.mark.scenario("broker 1.6")
async def test_a_broker_that_is_closed_for_writing_says_so_in_all_routes_and_takes_what_comes(
    peer, name_server, broker
):
    async with broker() as running:
        await peer.create_topic(running.address, "orders")
        await peer.configure(running.address, "brokerPermission=4")
        for topic in ("orders", "TBW102", "broker-a"):
            assert (await peer.route(name_server, topic))["broker-a"].perm == 4
        assert await peer.send(running.address) == 0
        await peer.configure(running.address, "brokerPermission=6")
        assert (await peer.route(name_server, "orders"))["broker-a"].perm == 6


# Ports


@pytest.mark.scenario("broker 1.5")
async def test_the_second_port_serves_all_but_pulls(peer, broker):
    async with broker() as running:
        fast = vip_address(running.address)
        assert await peer.send(fast) == 0
        for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            with pytest.raises(RequestCodeNotSupported) as refused:
                await peer.ask(fast, code)
            assert refused.value.remark == f" request type {code} not supported"
        assert (await peer.pull(running.address)).code == ResponseCode.SUCCESS


async def test_a_slave_has_no_slaves_of_its_own(broker):
    async with broker("brokerRole=SLAVE", "brokerId=1") as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port + 1)
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


async def test_another_port_for_slaves_can_be_chosen(peer, name_server, broker):
    port = free_port()
    async with broker(f"haListenPort={port}") as running:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await writer.wait_closed()
        assert running.port != port


@pytest.mark.parametrize("offset", [0, -2, 1])
async def test_a_port_that_is_taken_stops_the_start_and_leaves_the_store_clean(folder, broker, offset):
    async with broker() as running:
        port = running.port
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", port + offset):
        with pytest.raises(ConfigError, match=f"port {port + offset} is taken"):
            async with broker(f"listenPort={port}"):
                pass
    assert not (folder / "abort").exists()
    async with broker(f"listenPort={port}") as again:
        assert again.port == port


# The store and the files beside it


async def test_a_store_belongs_to_one_broker_at_a_time(broker):
    async with broker():
        with pytest.raises(StoreError, match="in use"):
            async with broker():
                pass
    async with broker():
        pass


async def test_files_that_cannot_be_read_stop_the_start(folder, broker):
    (folder / "config").mkdir(parents=True)
    for name in ("topics.json", "topics.json.bak"):
        (folder / "config" / name).write_text("{")
    with pytest.raises(StoreError, match=r"topics\.json"):
        async with broker():
            pass
    assert not (folder / "abort").exists()
    assert (folder / "config" / "topics.json").read_text() == "{"


@pytest.mark.parametrize("text", ["{", "{}"])
async def test_no_port_is_open_before_everything_behind_it_serves(peer, folder, broker, text):
    async with broker() as running:
        port = running.port
    # A file that can be read when the test wants it to be.
    file = folder / "config" / "delayOffset.json"
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    file.with_name("delayOffset.json.bak").write_text("{")
    running = broker(f"listenPort={port}")
    starting = asyncio.create_task(running.run())
    with await asyncio.to_thread(file.open, "w") as being_read:
        for offset in (0, -2, 1):
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port + offset)
        being_read.write(text)
    if text == "{":
        with pytest.raises(StoreError, match=r"delayOffset\.json"):
            await starting
    else:

        async def served():
            with contextlib.suppress(ConnectFailed):
                return await peer.send(running.address) == 0

        assert await eventually(served)
        starting.cancel()
        await asyncio.wait([starting])
    assert not (folder / "abort").exists()


async def test_a_name_that_nobody_can_resolve_stops_the_start(folder, broker):
    with pytest.raises(ConfigError, match="cannot be resolved"):
        async with broker("brokerIP1=no such host"):
            pass
    assert not folder.exists()


@pytest.mark.scenario("broker 1.4")
async def test_a_broker_that_stops_is_gone_at_once_and_comes_back_with_everything(peer, name_server, folder, broker):
    async with broker() as running:
        await peer.create_topic(running.address, "orders", queues=2)
        for number in range(100):
            await peer.send(running.address, b"%d" % number)
        await peer.commit(running.address, 42)
        assert (folder / "abort").exists()
    assert await peer.brokers(name_server) == {}
    assert await peer.route(name_server, "orders") is None
    assert not (folder / "abort").exists()
    async with broker() as again:
        assert await peer.committed(again.address) == 42
        assert (await peer.pull(again.address, 99)).code == ResponseCode.SUCCESS
        assert await peer.send(again.address) == 100
        topics = await peer.ask(again.address, RequestCode.GET_ALL_TOPIC_CONFIG)
        table = TopicConfigSerializeWrapper.decode(topics.body_bytes).topic_config_table
        assert table["orders"].write_queue_nums == 2


async def test_settings_changed_at_run_time_are_in_the_file_and_count_at_once(peer, folder, broker):
    async with broker() as running:
        await peer.configure(running.address, "maxMessageSize=10\nfileReservedTime=5")
        with pytest.raises(BrokerError):
            await peer.send(running.address, bytes(11))
        assert await peer.send(running.address, bytes(10)) == 0
    kept = {key: value for key, value, _ in parse((folder / "broker.properties").read_text())}
    assert (kept["maxMessageSize"], kept["fileReservedTime"]) == ("10", "5")


async def test_the_list_of_name_servers_can_be_changed_at_run_time(peer, name_server, folder, tmp_path):
    async with new_name_server(tmp_path / "other") as other, new_broker(folder) as running:
        assert await peer.brokers(name_server) == {}
        await peer.configure(running.address, f"namesrvAddr={name_server};{other.address}")
        for address in (name_server, other.address):
            assert await eventually(lambda address=address: peer.brokers(address))


# Clients


async def test_a_consumer_is_forgotten_with_its_connection(peer, broker):
    async with broker() as running:
        members = GetConsumerListByGroup("readers")
        async with Peer() as consumer:
            heartbeat = HeartbeatData(client_id="me", consumer_data_set=[ConsumerData(group_name="readers")])
            await consumer.ask(running.address, RequestCode.HEART_BEAT, None, heartbeat.encode())
            reply = await peer.ask(running.address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, members)
            assert reply.body_bytes == b'{"consumerIdList":["me"]}'

        async def gone():
            try:
                await peer.ask(running.address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, members)
            except BrokerError:
                return True
            return False

        await eventually(gone)


# Leaving


async def test_those_who_have_not_heard_of_it_are_served_while_a_broker_leaves(peer, name_server, folder, broker):
    async with AsyncExitStack() as life:
        running = await life.enter_async_context(broker("drainSeconds=60"))
        address = running.address
        await peer.send(address)
        waiting = asyncio.create_task(peer.pull(address, 1, wait=60_000))
        await asyncio.sleep(0)
        # On one connection requests are taken in order: when this is answered, the pull is waiting.
        await peer.ask(address, RequestCode.GET_BROKER_CONFIG)
        leaving = asyncio.create_task(life.aclose())

        async def unregistered():
            return not await peer.brokers(name_server)

        await eventually(unregistered)
        # The pull is answered, and a send is taken, by a broker that nobody is led to any more.
        assert (await waiting).code == ResponseCode.PULL_NOT_FOUND
        assert await peer.send(address) == 1
        assert not leaving.done()
        # With the last connection there is nobody left to wait for.
        peer.close_connection(address)
        async with asyncio.timeout(5):
            await leaving
    assert not (folder / "abort").exists()
    with pytest.raises(ConnectFailed):
        await peer.send(address)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_what_was_sent_before_a_broker_stops_is_answered_or_not_stored(peer, broker, flush):
    async with broker(f"flushDiskType={flush}") as running:
        address = running.address
        await peer.send(address)
        sending = [asyncio.create_task(peer.send(address)) for _ in range(50)]
        await asyncio.sleep(0)
    results = await asyncio.gather(*sending, return_exceptions=True)
    acknowledged = [result for result in results if isinstance(result, int)]
    async with broker() as again:
        assert await peer.send(again.address) >= len(acknowledged) + 1
        assert (await peer.pull(again.address)).code == ResponseCode.SUCCESS


async def test_a_broker_that_is_stopped_while_it_starts_leaves_nothing_behind(folder, broker):
    for turns in range(12):
        running = broker()
        starting = asyncio.create_task(running.run())
        for _ in range(turns):
            await asyncio.sleep(0.001)
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()
        assert not (folder / "abort").exists()
    async with broker():
        pass


async def test_a_broker_whose_inner_life_fails_stops_and_says_why(folder, broker, monkeypatch):
    running = broker()

    async def fails(_):
        raise RuntimeError("a bug")

    monkeypatch.setattr("pyromq.broker.assembly.Parts._sample_statistics", fails)
    with pytest.raises(ExceptionGroup) as caught:
        await running.run()
    assert str(caught.value.exceptions[0]) == "a bug"
    assert not (folder / "abort").exists()
