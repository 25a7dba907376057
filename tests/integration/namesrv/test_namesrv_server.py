"""The running name server: borrowed routes, news for brokers, readiness, zones, and its life in a program."""

from __future__ import annotations

import asyncio
import http.server
import ssl
import threading

import pytest
from tests.integration.namesrv.raw_client import PATIENCE, RawClient, identity, json_request

from pyromq.errors import ConfigError
from pyromq.namesrv import NameServer, load_settings
from pyromq.protocol.bodies import TopicRouteData
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import GetRouteInfo
from pyromq.remoting import RemotingClient, RemotingServer, ServerConfig

A, B, C = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


def local(*sets: str):
    return load_settings(sets=["listenPort=0", "bindAddress=127.0.0.1", *sets])


class TestClusterTest:
    async def test_a_route_that_is_missing_here_is_borrowed_from_production(self, start):
        async with start() as production:
            await production.reg("prod", 0, A, topics=["T", "P"])
            async with start("clusterTest=true", f"productNamesrvAddr=127.0.0.1:{production.port}") as test:
                await test.reg("test", 0, B, topics=["T"])
                assert await test.addresses("T") == {"test": {"0": B}}
                assert await test.addresses("P") == {"prod": {"0": A}}
                missing = await test.route("nowhere")
                assert (missing.code, missing.body) == (17, None)
                assert missing.remark.startswith("No topic route info in name server for the topic: nowhere")
                assert (await test.call(106)).json["clusterAddrTable"] == {"c1": ["test"]}

    async def test_a_production_that_cannot_be_asked_is_no_route(self, start):
        async with start("clusterTest=true", "productNamesrvAddr=127.0.0.1:1") as test:
            assert (await test.route()).code == 17

    async def test_a_list_of_production_name_servers_that_is_none_stops_the_start(self, start):
        with pytest.raises(ConfigError, match="productNamesrvAddr: 'not an address' is not an address"):
            async with start("clusterTest=true", "productNamesrvAddr=not an address"):
                pass

    async def test_local_routes_always_carry_their_order(self, start):
        async with start("clusterTest=true") as test:
            await test.call(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "b:4"})
            await test.reg()
            assert (await test.route()).json["orderTopicConf"] == "b:4"

    async def test_production_is_found_over_http(self, start):
        async with start() as production:
            await production.reg("prod", 0, A)
            with http_server(f"127.0.0.1:{production.port};127.0.0.1:1\nrest\n") as (address, asked):
                async with start("clusterTest=true", f"rocketmq.namesrv.domain={address}") as test:
                    assert await test.addresses() == {"prod": {"0": A}}
                    assert await test.addresses() == {"prod": {"0": A}}
            assert asked == ["/rocketmq/nsaddr-center?nofix=1"]

    async def test_a_lookup_that_fails_is_no_route(self, start):
        with http_server("", status=404) as (address, _):
            async with start("clusterTest=true", f"rocketmq.namesrv.domain={address}") as test:
                assert (await test.route()).code == 17
        async with start("clusterTest=true", "rocketmq.namesrv.domain=no such host") as test:
            assert (await test.route()).code == 17


class http_server:
    """A web server that answers everything with `text`; gives its address and the list of paths asked for."""

    def __init__(self, text: str, status: int = 200) -> None:
        asked = self.asked = list[str]()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self):
        self.thread.start()
        return f"127.0.0.1:{self.server.server_port}", self.asked

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class FakeBroker:
    """Listens where a broker would and keeps the news that it is told."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[Command] = asyncio.Queue()
        self._server = RemotingServer(
            ServerConfig(listen_port=0, bind_address="127.0.0.1"),
            {RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: self._hear},
        )

    def _hear(self, connection, request):
        assert request.is_oneway
        self.told.put_nowait(request)

    async def __aenter__(self):
        await self._server.__aenter__()
        self.address = f"127.0.0.1:{self._server.port}"
        return self

    async def __aexit__(self, *exc_info):
        await self._server.__aexit__(*exc_info)

    async def hears(self):
        async with asyncio.timeout(PATIENCE):
            return (await self.told.get()).ext


class TestNews:
    async def test_slaves_hear_that_their_master_came_and_went(self, start):
        async with FakeBroker() as one, FakeBroker() as two, start("notifyMinBrokerIdChanged=true") as scenes:
            await scenes.reg("b", 1, one.address)
            await scenes.reg("b", 2, two.address)
            await scenes.reg("b", 0, A)
            joined = {"minBrokerId": "0", "minBrokerAddr": A, "haBrokerAddr": "10.0.0.1:10912"}
            assert (await one.hears(), await two.hears()) == (joined, joined)
            await scenes.brokers[A].close()
            left = {"minBrokerId": "1", "minBrokerAddr": one.address, "offlineBrokerAddr": A}
            assert (await one.hears(), await two.hears()) == (left, left)

    async def test_a_broker_that_cannot_be_told_hinders_nobody(self, start):
        async with FakeBroker() as one, start("notifyMinBrokerIdChanged=true") as scenes:
            await scenes.reg("b", 2, one.address)
            await scenes.reg("b", 3, "127.0.0.1:1")
            await scenes.reg("b", 4, "not..an address:1")
            await scenes.reg("b", 5, "nowhere:0")
            await scenes.reg("b", 1, A)
            assert (await one.hears())["minBrokerId"] == "1"
            await scenes.call(104, identity("b", 1, A))
            assert (await one.hears())["offlineBrokerAddr"] == A

    async def test_nobody_is_told_unless_it_is_wanted(self, start):
        async with FakeBroker() as one, start() as scenes:
            await scenes.reg("b", 1, one.address)
            await scenes.reg("b", 0, A)
            await scenes.brokers[A].close()
            await scenes.call(318, body=b"notifyMinBrokerIdChanged=true")
            await scenes.reg("b", 0, B)
            # The first news it hears is the last that happened.
            assert (await one.hears())["minBrokerAddr"] == B


class TestService:
    async def test_routes_wait_for_brokers_after_a_start(self, start):
        async with start("needWaitForService=true", "waitSecondsForService=3600") as scenes:
            await scenes.reg()
            reply = await scenes.route()
            assert (reply.code, reply.remark) == (1, "name server not ready")
            await scenes.call(318, body=b"waitSecondsForService=0")
            assert (await scenes.route()).code == 0

    async def test_topics_that_a_registration_leaves_out_go_when_that_is_wanted(self, start):
        async with start("deleteTopicWithBrokerRegistration=true") as scenes:
            await scenes.reg(topics=["T", "T2"])
            await scenes.reg(topics=["T2"], on=scenes.brokers[A])
            assert (await scenes.route("T")).code == 17
            assert (await scenes.route("T2")).code == 0

    async def test_an_acting_master_is_shown_when_that_is_wanted(self, start):
        async with start() as scenes:
            await scenes.reg("b", 1, B, ext={"enableActingMaster": "true"})
            assert await scenes.addresses() == {"b": {"1": B}}
            await scenes.call(318, body=b"supportActingMaster=true")
            assert await scenes.addresses() == {"b": {"0": B}}

    async def test_a_client_of_a_zone_sees_its_zone(self, scenes):
        await scenes.reg("east", 0, A, ext={"__ZONE_NAME": "east"})
        await scenes.reg("west", 0, B, ext={"__ZONE_NAME": "west"})
        for mode, zone, seen in [
            ("true", "EAST", ["east"]),
            ("true", "south", []),
            ("true", " ", ["east", "west"]),
            ("false", "east", ["east", "west"]),
        ]:
            reply = await scenes.call(105, {"topic": "T", "__ZONE_MODE": mode, "__ZONE_NAME": zone})
            assert reply.code == 0
            assert sorted(data["brokerName"] for data in reply.json["brokerDatas"]) == seen
        assert sorted(await scenes.addresses()) == ["east", "west"]

    async def test_a_shorter_scan_interval_takes_effect_at_once(self, start):
        async with start("scanNotActiveBrokerInterval=3600000") as scenes:
            await scenes.reg(ext={"heartbeatTimeoutMillis": 50})
            await scenes.call(318, body=b"scanNotActiveBrokerInterval=10")
            assert await scenes.brokers[A].closed_by_server() == b""
            assert (await scenes.route()).code == 17

    async def test_tls_settings_reach_the_network(self, start):
        async with start("tls.server.mode=enforcing", "tls.test.mode.enable=true") as scenes:
            plain = await scenes.connect()
            plain.send(json_request(105, {"topic": "T"}))
            assert await plain.closed_by_server() == b""
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            secret = RawClient(*await asyncio.open_connection("127.0.0.1", scenes.port, ssl=context))
            assert (await secret.call(105, {"topic": "T"})).code == 17
            await secret.close()

    async def test_a_kv_config_that_cannot_be_saved_is_refused_and_changes_nothing(self, start, tmp_path):
        async with start() as scenes:
            (tmp_path / "kvConfig.json.tmp").mkdir()
            reply = await scenes.call(100, {"namespace": "ns", "key": "k", "value": "v"})
            assert reply.code == 1
            assert "kvConfig.json could not be written: Is a directory; nothing was changed" in reply.remark
            assert (await scenes.call(101, {"namespace": "ns", "key": "k"})).code == 22


class TestLife:
    async def test_our_own_client_reads_a_route(self, scenes):
        await scenes.reg()
        async with RemotingClient() as client:
            request = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo("T"))
            reply = await client.invoke(f"127.0.0.1:{scenes.port}", request)
            route = TopicRouteData.decode(reply.body_bytes)
            assert route.broker_datas[0].broker_addrs == {0: A}

    async def test_a_taken_port_is_said_at_the_start(self):
        async with NameServer(local()) as first:
            with pytest.raises(ConfigError, match=f"port {first.port} is taken"):
                async with NameServer(local(f"listenPort={first.port}")):
                    pass

    async def test_a_port_is_free_again_after_the_end(self):
        async with NameServer(local()) as first:
            port = first.port
        async with NameServer(local(f"listenPort={port}")) as second:
            assert second.port == port

    async def test_the_end_leaves_no_task_behind(self, start):
        before = asyncio.all_tasks()
        async with start() as scenes:
            await scenes.reg()
            await scenes.route()
        assert asyncio.all_tasks() == before

    async def test_an_error_inside_the_block_is_the_one_that_comes_out(self):
        with pytest.raises(KeyError, match="mine"):
            async with NameServer(local()):
                raise KeyError("mine")

    async def test_a_start_that_is_cancelled_leaves_nothing_behind(self):
        before = asyncio.all_tasks()
        starting = asyncio.create_task(NameServer(local()).__aenter__())
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert asyncio.all_tasks() == before

    async def test_run_serves_until_it_is_cancelled(self):
        name_server = NameServer(local())
        listening = asyncio.Event()
        running = asyncio.create_task(name_server.run(listening.set))
        await listening.wait()
        port = name_server.port
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)

    def test_a_kv_config_that_is_none_stops_the_start(self, tmp_path):
        file = tmp_path / "kv.json"
        file.write_text('{"configTable":\n oops}')
        with pytest.raises(ConfigError, match=r"kv\.json:2: not JSON"):
            NameServer(local(f"kvConfigPath={file}"))
