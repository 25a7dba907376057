"""A broker is told to stop while clients are at work, all of them processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time

import pytest
from tests.integration.broker.command_kit import line_with, started, stop
from tests.integration.broker.life_kit import Peer
from tests.ports import free_port

from pyromq import AdminClient, Producer
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.remoting import ClientConfig

pytestmark = pytest.mark.slow

TOPIC = "orders"


@pytest.fixture
def name_server_process(tmp_path):
    port = free_port()
    with started(tmp_path, "namesrv", f"listenPort={port}", "bindAddress=127.0.0.1") as process:
        line_with(process, "boot success")
        yield process, f"127.0.0.1:{port}"


@pytest.fixture
def name_server(name_server_process):
    _, address = name_server_process
    return address


@contextlib.contextmanager
def running_broker(home, name_server, name, *settings):
    """A broker as people run it; gives the process and its address."""
    port = free_port()
    arguments = [
        f"listenPort={port}",
        f"brokerName={name}",
        f"storePathRootDir={home}/{name}",
        f"brokerConfigPath={home}/{name}.properties",
        "brokerIP1=127.0.0.1",
        "mappedFileSizeCommitLog=16m",
        *settings,
    ]
    with started(home, "broker", "-n", name_server, *arguments) as process:
        line_with(process, "boot success")
        yield process, f"127.0.0.1:{port}"


async def ended(process):
    """Stop it as an operator does; gives its exit code and the seconds that took."""
    began = time.monotonic()
    code, _, err = await asyncio.to_thread(stop, process, signal.SIGTERM)
    assert "Traceback" not in err
    return code, time.monotonic() - began


def stored(ends, broker):
    return sum(end.max_offset for queue, end in ends.items() if queue.broker_name == broker)


@pytest.mark.scenario("admin 41")
async def test_no_send_fails_while_one_of_two_brokers_is_stopped(tmp_path, name_server):
    sent = {"broker-a": 0, "broker-b": 0}
    with (
        running_broker(tmp_path, name_server, "broker-a", "drainSeconds=1") as (leaving, _),
        running_broker(tmp_path, name_server, "broker-b", "drainSeconds=1") as (staying, _),
    ):
        async with AdminClient(name_server) as admin:
            await admin.topics.create(TOPIC, read_queues=4, write_queues=4)
        async with Producer("makers", namesrv=name_server) as producer:

            async def send(count):
                for _ in range(count):
                    result = await producer.send(TOPIC, b"x")  # an error ends the test
                    sent[result.queue.broker_name] += 1

            await send(200)
            assert min(sent.values()) > 0, "both are in use"
            stopping = asyncio.create_task(ended(leaving))
            while not stopping.done():
                await send(20)
                await asyncio.sleep(0.005)
            code, took = await stopping
            assert code == 0
            assert took < 15
            before = dict(sent)
            await send(200)
            assert sent["broker-a"] == before["broker-a"], "what is gone gets nothing"
        assert not (tmp_path / "broker-a" / "abort").exists()
        assert (tmp_path / "broker-b" / "abort").exists()
        # What was acknowledged is there.
        async with AdminClient(name_server) as admin:
            ends = await admin.topics.stats(TOPIC)
            assert stored(ends, "broker-b") == sent["broker-b"]
        with running_broker(tmp_path, name_server, "broker-a") as (back, _):
            async with AdminClient(name_server) as admin:
                ends = await admin.topics.stats(TOPIC)
            # A message whose answer was lost is stored here and, by the retry, there.
            assert stored(ends, "broker-a") >= sent["broker-a"]
            back.kill()
        staying.kill()


@pytest.mark.scenario("admin 42")
@pytest.mark.parametrize("number", [None, signal.SIGKILL, signal.SIGSTOP], ids=["well", "gone", "silent"])
async def test_a_held_pull_is_answered_within_a_second_of_the_signal(tmp_path, name_server_process, number):
    # A broker that cannot tell its name server that it leaves must not keep its clients waiting for that.
    name_server, where = name_server_process
    with running_broker(tmp_path, where, "broker-a") as (process, address):
        async with Peer(ClientConfig()) as peer:
            await peer.send(address, topic=TOPIC)
            waiting = asyncio.create_task(peer.pull(address, 1, topic=TOPIC, wait=30_000))
            await asyncio.sleep(0)
            # On one connection requests are taken in order: when this is answered, the pull is waiting.
            await peer.ask(address, RequestCode.GET_BROKER_CONFIG)
            assert not waiting.done()
            if number is not None:
                name_server.send_signal(number)
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            reply = await waiting
            took = time.monotonic() - began
            assert reply.code == ResponseCode.PULL_NOT_FOUND
            assert took < 2.5, "a name server that is silent is waited for three seconds"
        # Its last client is gone: there is nobody to wait for.
        assert await asyncio.to_thread(process.wait, 20) == 0
    assert not (tmp_path / "broker-a" / "abort").exists()
