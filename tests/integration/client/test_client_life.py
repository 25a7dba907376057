"""A client against a real name server and broker: starting, members, heartbeats, closing."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import ssl
import warnings

import pytest
from msgspec.structs import replace
from tests.bounds import TOO_LONG
from tests.integration.client.cluster_kit import Spy, eventually
from tests.integration.client.members_kit import AdminStub, ConsumerStub, ProducerStub

from pyromq.client.client import Client
from pyromq.client.hooks import Hook
from pyromq.client.identity import Credentials
from pyromq.errors import ConnectionLost, NoNameServer, PyroMQError, RouteNotFound, StateError
from pyromq.protocol.bodies import HeartbeatData
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.message_queue import MessageQueue
from pyromq.remoting import is_signed_by


async def until(condition):
    async def check():
        return condition()

    await eventually(check)


@pytest.mark.scenario("client 1")
async def test_two_clients_without_a_name_have_different_ids(cluster, client_of):
    one, other = await client_of(cluster), await client_of(cluster)
    assert one.client_id != other.client_id
    for client in (one, other):
        assert re.fullmatch(rf"[0-9a-f.:]+@{os.getpid()}#\d+", client.client_id)


def test_making_a_client_needs_no_event_loop():
    client = Client("127.0.0.1:1")
    with pytest.raises(StateError, match="not started"):
        client.check_open()


async def test_a_client_of_a_name_server_that_is_away_starts_all_the_same():
    producer = ProducerStub("p", "orders")
    client = Client("127.0.0.1:1")
    await client.join(producer)
    client.check_open()
    await client.leave(producer)


async def test_the_first_member_starts_the_client_and_the_last_one_closes_it(cluster):
    client = Client(cluster.namesrv)
    one, other = ProducerStub("p1"), ProducerStub("p2")
    await client.join(one)
    client.check_open()
    await client.join(other)
    await client.leave(one)
    client.check_open()
    await client.leave(other)
    with pytest.raises(StateError, match="not started"):
        client.check_open()


async def test_a_client_that_ended_with_its_last_member_starts_anew_with_the_next(cluster):
    await cluster.create_topic("orders")
    client = Client(cluster.namesrv)
    for _ in range(2):
        member = ProducerStub("p", "orders")
        await client.join(member)
        assert (await client.routes.find("orders")).queue_datas
        await client.leave(member)


async def test_a_client_started_by_its_owner_outlives_its_members(cluster, client_of):
    client = await client_of(cluster)
    member = AdminStub()
    await client.join(member)
    await client.leave(member)
    client.check_open()


async def test_a_closed_client_stays_closed(cluster, client_of):
    client = await client_of(cluster)
    await client.close()
    with pytest.raises(StateError, match="closed"):
        client.check_open()
    with pytest.raises(StateError, match="closed"):
        await client.join(AdminStub())
    await client.close()


async def test_a_second_member_of_a_group_is_refused_and_the_first_stays(cluster, client_of):
    client = await client_of(cluster)
    producer = ProducerStub("same")
    await client.join(producer)
    await client.join(ConsumerStub("same"))
    with pytest.raises(StateError, match="producer of group same"):
        await client.join(ProducerStub("same"))
    assert client.producers["same"] is producer


async def test_members_are_known_to_the_broker_when_a_route_is_and_unknown_after_they_left(cluster, client_of):
    await cluster.create_topic("orders")
    client = await client_of(cluster)
    await client.routes.find("orders")
    producer, consumer = ProducerStub("p"), ConsumerStub("c", "orders")
    await client.join(producer)
    await client.join(consumer)
    assert cluster.producers("p") == [client.client_id]
    assert cluster.producers("CLIENT_INNER_PRODUCER") == [client.client_id]
    assert cluster.consumers("c") == [client.client_id]
    assert client.versions[cluster.address()] > 232

    await client.leave(consumer)
    await client.leave(producer)
    assert cluster.producers("p") == []
    assert cluster.consumers("c") == []


async def test_closing_a_client_says_goodbye_for_all_its_members(cluster, client_of):
    await cluster.create_topic("orders")
    client = await client_of(cluster)
    await client.routes.find("orders")
    await client.join(ConsumerStub("c", "orders"))
    await client.close()
    assert cluster.consumers("c") == []


async def test_the_routes_of_members_are_asked_for_by_themselves_and_told_to_them(cluster, client_of):
    await cluster.create_topic("orders")
    client = await client_of(cluster, route_interval=0.05)
    producer = ProducerStub("p", "orders", "later")
    await client.join(producer)
    await until(lambda: producer.changed == ["orders"])
    await cluster.create_topic("later")
    await until(lambda: producer.changed == ["orders", "later"])


async def test_a_topic_that_cannot_be_read_does_not_keep_others_from_being_refreshed():
    def refuse(connection, request):
        if request.ext["topic"] == "bad":
            return request.reply(body=b"[no route]")
        return request.reply(17, "no topic")

    async with Spy({RequestCode.GET_ROUTEINFO_BY_TOPIC: refuse}) as name_server, Client(name_server.address) as client:
        await client.join(ProducerStub("p", "bad", "good"))
        await until(lambda: {r.ext["topic"] for r in name_server.requests} == {"bad", "good"})


async def test_a_broker_that_lost_its_connections_hears_of_the_members_with_the_first_request(cluster, client_of):
    await cluster.create_topic("orders")
    client = await client_of(cluster)
    await client.routes.find("orders")
    consumer = ConsumerStub("c", "orders")
    await client.join(consumer)
    cluster.cut_connections()
    await until(lambda: cluster.consumers("c") == [])
    consumer.woken.clear()

    await client.calls.max_offset(cluster.address(), MessageQueue(broker_name="broker-a", queue_id=0, topic="orders"))

    await until(lambda: cluster.consumers("c") == [client.client_id])
    await asyncio.wait_for(consumer.woken.wait(), 5)


async def test_producers_alone_do_not_bother_slaves_and_consumers_do():
    async with Spy() as master, Spy() as slave:
        route = (
            f'{{"brokerDatas":[{{"brokerName":"a","brokerAddrs":{{"0":"{master.address}","1":"{slave.address}"}}}}],'
        )
        route += '"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":1,"writeQueueNums":1}]}'
        answer = {RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda _, r: r.reply(body=route.encode())}
        async with Spy(answer) as name_server, Client(name_server.address) as client:
            await client.routes.find("orders")
            await client.join(ProducerStub("p"))
            assert master.asked(RequestCode.HEART_BEAT)
            assert not slave.asked(RequestCode.HEART_BEAT)
            await client.join(ConsumerStub("c", "orders"))
            (request,) = slave.asked(RequestCode.HEART_BEAT)
            beat = HeartbeatData.decode(request.body_bytes)
            assert [data.group_name for data in beat.consumer_data_set] == ["c"]
            assert {data.group_name for data in beat.producer_data_set} == {"p", "CLIENT_INNER_PRODUCER"}


async def test_nobody_hears_of_an_admin(cluster, client_of):
    await cluster.create_topic("orders")
    client = await client_of(cluster)
    await client.routes.find("orders")
    await client.join(AdminStub())
    assert client.versions == {}


async def test_every_request_is_signed_when_there_are_credentials():
    credentials = Credentials("me", "secret-secret", "token")
    assert "secret" not in repr(credentials)
    refuse = {RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda _, r: r.reply(17)}
    async with Spy(refuse) as name_server, Client(name_server.address, credentials=credentials, stream=True) as client:
        with pytest.raises(RouteNotFound):
            await client.routes.find("orders")
        (request,) = name_server.requests
    assert request.ext["AccessKey"] == "me"
    assert request.ext["SecurityToken"] == "token"
    assert is_signed_by(request, "secret-secret")


async def test_the_requests_of_a_pull_consumer_say_so():
    refuse = {RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda _, r: r.reply(17)}
    async with Spy(refuse) as name_server, Client(name_server.address, stream=True) as client:
        with pytest.raises(RouteNotFound):
            await client.routes.find("orders")
        assert name_server.requests[0].ext["ReqT"] == "0"
        assert client.client_id.endswith("@STREAM")


async def test_hooks_see_requests_and_replies():
    class Watching(Hook):
        def __init__(self):
            self.seen = []

        def before_rpc(self, address, request):
            self.seen.append(request.code)

        def after_rpc(self, address, request, response):
            self.seen.append(-response.code)

    hook = Watching()
    refuse = {RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda _, r: r.reply(17)}
    async with Spy(refuse) as name_server, Client(name_server.address, hooks=[hook]) as client:
        assert await client.routes.refresh("orders") is None
    assert hook.seen == [RequestCode.GET_ROUTEINFO_BY_TOPIC, -17]


async def test_the_vip_channel_is_used_where_it_may_be(cluster, client_of):
    await cluster.create_topic("orders")
    client = await client_of(cluster, vip_channel=True)
    await client.routes.find("orders")
    queue = MessageQueue(broker_name="broker-a", queue_id=0, topic="orders")
    assert await client.calls.max_offset(cluster.address(), queue) == 0
    first, second = (server.port for server in cluster.broker._ports._servers)
    assert [len(server.connections) for server in cluster.broker._ports._servers][1] == 1
    assert client.calls.vip(f"127.0.0.1:{first}") == f"127.0.0.1:{second}"
    await client.join(ConsumerStub("c", "orders"))
    assert cluster.consumers("c") == [client.client_id]


async def test_a_client_without_a_name_server_says_so_at_first_use(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    async with Client() as client:
        with pytest.raises(NoNameServer, match="NAMESRV_ADDR"):
            await client.routes.find("orders")


@pytest.mark.scenario("client 3")
async def test_a_dead_name_server_in_the_environment_is_passed_over(cluster, monkeypatch):
    await cluster.create_topic("orders")
    monkeypatch.setenv("NAMESRV_ADDR", f"127.0.0.1:1;{cluster.namesrv}")
    async with Client() as client, asyncio.timeout(TOO_LONG):
        assert (await client.routes.find("orders")).queue_datas


async def test_name_servers_are_looked_up_at_the_address_server(cluster, monkeypatch):
    await cluster.create_topic("orders")
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    paths = []

    async def serve(reader, writer):
        paths.append((await reader.readuntil(b"\r\n\r\n")).split()[1].decode())
        writer.write(f"HTTP/1.0 200 OK\r\n\r\n{cluster.namesrv}\nmore".encode())
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Client(namesrv_domain=f"127.0.0.1:{port}", unit_name="blue") as client:
            assert client.name_servers.addresses == (cluster.namesrv,)
            assert (await client.routes.find("orders")).queue_datas
    assert paths == ["/rocketmq/nsaddr-blue?nofix=1"]


async def test_an_address_server_that_is_away_does_not_stop_the_start(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    async with Client(namesrv_domain="127.0.0.1:1") as client:
        with pytest.raises(NoNameServer):
            await client.routes.find("orders")


@pytest.mark.scenario("client 5")
@pytest.mark.slow
async def test_known_topics_go_on_while_all_name_servers_are_away_and_unknown_ones_fail_in_time(cluster, client_of):
    await cluster.create_topic("orders")
    client = await client_of(cluster, route_interval=0.02)
    consumer = ConsumerStub("c", "orders")
    await client.join(consumer)
    await until(lambda: consumer.changed == ["orders"])
    await cluster.stop_name_server()
    # Let a refresh fail.
    with pytest.raises(ConnectionLost, match="name server"):
        await client.routes.refresh("orders")

    info = await client.routes.publish_info("orders")
    assert len(info.queues) == 4
    assert await client.calls.max_offset(client.routes.master("broker-a"), info.queues[0]) == 0
    await client.heartbeat()
    assert cluster.consumers("c") == [client.client_id]
    async with asyncio.timeout(TOO_LONG):
        with pytest.raises(PyroMQError):
            await client.routes.publish_info("unknown", timeout=3)

    await cluster.start_name_server()
    await cluster.routed("orders")
    assert (await client.routes.refresh("orders")) == client.routes.cached("orders")


async def test_an_advertised_address_that_cannot_be_reached_is_named_with_the_setting_to_change():
    route = b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{0:"127.0.0.1:1"}}],"queueDatas":[]}'
    answer = {RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda _, r: r.reply(body=route)}
    async with Spy(answer) as name_server, Client(name_server.address) as client:
        await client.routes.find("orders")
        queue = MessageQueue(broker_name="a", queue_id=0, topic="orders")
        with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1: .*brokerIP1"):
            await client.calls.max_offset(await client.routes.master_or_refresh(queue), queue)


@pytest.mark.scenario("client 59")
@pytest.mark.slow
async def test_tasks_that_foreign_code_cancels_start_anew(cluster, client_of, monkeypatch):
    monkeypatch.setattr("pyromq.client.tasks.RESTART_AFTER", 0.05)
    client = await client_of(cluster, route_interval=0.02, heartbeat_interval=0.02)
    producer = ProducerStub("p", "orders")
    await client.join(producer)
    for task in asyncio.all_tasks():
        if task.get_name().startswith("client "):
            task.cancel()
    await cluster.create_topic("orders")
    await until(lambda: producer.changed == ["orders"])
    await until(lambda: cluster.producers("p") == [client.client_id])


@pytest.mark.scenario("client 59")
async def test_a_route_that_is_waited_for_is_not_lost_silently_when_its_task_is_cancelled(cluster, client_of):
    client = await client_of(cluster)
    waiting = asyncio.create_task(client.routes.find("orders"))
    await asyncio.sleep(0)
    for task in asyncio.all_tasks():
        if "route of orders" in task.get_name():
            task.cancel()
    with pytest.raises(ConnectionLost):
        await asyncio.wait_for(waiting, TOO_LONG)


async def test_whoever_waits_for_a_route_when_the_client_closes_gets_an_error():
    never = {RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda _, r: None}
    async with Spy(never) as name_server, Client(name_server.address) as client:
        waiting = asyncio.create_task(client.routes.find("orders"))
        await until(lambda: name_server.requests)
        await client.close()
        with pytest.raises(ConnectionLost):
            await waiting


async def test_cancelling_one_who_waits_for_a_route_leaves_the_others_waiting(cluster, client_of):
    await cluster.create_topic("orders")
    client = await client_of(cluster)
    first = asyncio.create_task(client.routes.find("orders"))
    second = asyncio.create_task(client.routes.find("orders"))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (await second).queue_datas


@pytest.mark.scenario("client 57")
async def test_a_forked_child_cannot_use_the_client_of_its_parent_and_can_make_its_own(cluster, client_of):
    client = await client_of(cluster)
    member = ProducerStub("p")
    await client.join(member)
    fresh = Client(cluster.namesrv)
    pid = await asyncio.to_thread(_fork, client, fresh, cluster.namesrv, member)
    async with asyncio.timeout(20):
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    client.check_open()
    await cluster.create_topic("orders")
    assert (await client.routes.find("orders")).queue_datas


def _fork(client, fresh, namesrv, member):
    # From a thread, as multiprocessing does it inside an executor: the child has no running loop then.
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # newer Pythons warn of threads
        pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.alarm(15)
        _in_child(client, fresh, namesrv, member)
        code = 0
    finally:
        os._exit(code)


def _in_child(client, fresh, namesrv, member):
    parents = fresh.client_id
    for use in (client.join(AdminStub()), client.leave(member), client.close(), client.start()):
        with pytest.raises(StateError, match="parent process"):
            use.send(None)
    with pytest.raises(StateError, match="parent process"):
        client.check_open()

    async def work():
        # One that was only made before the fork has an id of its own here.
        async with fresh, Client(namesrv) as own:
            assert fresh.client_id != parents
            assert own.client_id.partition("@")[2].startswith(f"{os.getpid()}#")
            assert await own.routes.refresh("orders") is None
            assert await fresh.routes.refresh("orders") is None

    asyncio.run(work())


async def test_tls_is_spoken_with_brokers_and_name_servers(cluster, client_of):
    await cluster.create_topic("orders")
    for tls in (True, _trusting_everybody()):
        client = await client_of(cluster, tls=tls)
        await client.routes.find("orders")
        await client.join(ProducerStub("p"))
        assert cluster.producers("p") == [client.client_id]
        encrypted = [c.transport.get_extra_info("ssl_object") for c in client.remoting.endpoint.connections]
        assert len(encrypted) == 2
        assert None not in encrypted
        await client.close()


def _trusting_everybody():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def test_groups_of_a_namespace_are_found_by_their_names_on_the_wire(cluster, client_of):
    await cluster.create_topic("ns%orders")
    client = await client_of(cluster, namespace="ns")
    await client.routes.find("ns%orders")
    consumer = TenantStub("c", "ns%orders")
    await client.join(consumer)
    assert client.consumers == {"ns%c": consumer}
    assert cluster.consumers("ns%c") == [client.client_id]
    await client.leave(consumer)
    assert cluster.consumers("ns%c") == []


class TenantStub(ConsumerStub):
    """Calls itself by the name that the user gave it; on the wire it has the namespace in front."""

    def heartbeat_data(self):
        return replace(super().heartbeat_data(), group_name=f"ns%{self.group}")


def test_a_client_cannot_be_used_from_another_event_loop():
    client = Client("127.0.0.1:1")
    member = AdminStub()
    with asyncio.Runner() as runner:
        runner.run(client.join(member))
        for use in (client.join(AdminStub("more")), client.leave(member), client.close()):
            with pytest.raises(StateError, match="event loop"):
                asyncio.run(use)
        with pytest.raises(StateError, match="event loop"):
            client.check_open()
        runner.run(client.leave(member))

    async def elsewhere():
        await client.join(member)
        await client.leave(member)

    # Once nobody uses it any more it belongs to no loop.
    asyncio.run(elsewhere())


async def test_a_client_closes_in_time_when_its_broker_stops_answering():
    never = {RequestCode.UNREGISTER_CLIENT: lambda _, request: None}
    async with Spy(never) as broker:
        route = f'{{"brokerDatas":[{{"brokerName":"a","brokerAddrs":{{0:"{broker.address}"}}}}],"queueDatas":[]}}'
        answer = {RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda _, request: request.reply(body=route.encode())}
        async with Spy(answer) as name_server:
            client = await Client(name_server.address, api_timeout=0.1).start()
            await client.routes.find("orders")
            members = [ProducerStub("p"), ConsumerStub("c")]
            for member in members:
                await client.join(member)
            async with asyncio.timeout(2.5):  # calls have three seconds otherwise
                await client.leave(members[0])
                await client.close()
            assert len(broker.asked(RequestCode.UNREGISTER_CLIENT)) == 2


async def test_cancelling_the_last_member_as_it_leaves_closes_the_client_all_the_same():
    never = {RequestCode.UNREGISTER_CLIENT: lambda _, request: None}
    async with Spy(never) as broker:
        route = f'{{"brokerDatas":[{{"brokerName":"a","brokerAddrs":{{0:"{broker.address}"}}}}],"queueDatas":[]}}'
        answer = {RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda _, request: request.reply(body=route.encode())}
        async with Spy(answer) as name_server:
            client = Client(name_server.address)
            member = ProducerStub("p")
            await client.join(member)
            await client.routes.find("orders")
            await client.heartbeat()
            leaving = asyncio.create_task(client.leave(member))
            await until(lambda: broker.asked(RequestCode.UNREGISTER_CLIENT))
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            assert client.remoting.endpoint.connections == set()
            with pytest.raises(StateError):
                client.check_open()


async def test_a_broker_that_closes_every_connection_is_heard_of_and_survived(cluster, client_of, caplog):
    await cluster.create_topic("orders")
    client = await client_of(cluster, heartbeat_interval=0.02)
    await client.routes.find("orders")
    await client.join(ProducerStub("p"))
    await cluster.stop_broker()
    await client.heartbeat()
    assert "heartbeat not delivered" in caplog.text
    await cluster.start_broker()
    await client.heartbeat()
    assert cluster.producers("p") == [client.client_id]
