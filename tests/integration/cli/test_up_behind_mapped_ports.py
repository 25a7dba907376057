"""`pyromq up` where a container would have it: in a network of its own, reached through ports of the host.

A container is a network namespace whose ports the engine forwards. So is this, without an engine: it needs `ip` and the
right to make a namespace.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.integration.broker.command_kit import line_with, started, stop
from tests.ports import free_port

from pyromq import Consumer, Producer, StartAt
from pyromq.testing import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyromq import ReceivedMessage


@pytest.fixture
def inside() -> Iterator[tuple[str, str]]:
    """A network with one address, which the host can reach: its name and that address."""
    if shutil.which("ip") is None:
        pytest.skip("needs iproute2")
    name = f"pyromq-{os.getpid()}"
    outer, inner = f"pq{os.getpid() % 100_000}o", f"pq{os.getpid() % 100_000}i"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"may not make a network namespace: {made.stderr.strip()}")
    try:
        for command in (
            f"link add {outer} type veth peer name {inner} netns {name}",
            f"addr add 198.51.100.1/30 dev {outer}",
            f"link set {outer} up",
            f"-n {name} addr add 198.51.100.2/30 dev {inner}",
            f"-n {name} link set {inner} up",
            f"-n {name} link set lo up",
        ):
            subprocess.run(["ip", *command.split()], check=True, capture_output=True)
        yield name, "198.51.100.2"
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True, capture_output=True)


@pytest.fixture
def ports(tmp_path, inside) -> Iterator[tuple[int, int]]:
    """Those of a name server and a broker that were started in that network as the image starts them."""
    namesrv_port, broker_port = free_port(), free_port()
    arguments = ["up", "--listen", "0.0.0.0", "--namesrv-port", str(namesrv_port), "--broker-port", str(broker_port)]
    with started(tmp_path, *arguments, run_by=("ip", "netns", "exec", inside[0])) as process:
        line_with(process, "ready")
        yield namesrv_port, broker_port
        assert stop(process)[0] == 0


@pytest.mark.slow
@pytest.mark.scenario("admin 3")
async def test_a_client_of_the_host_needs_no_setting(inside, ports):
    async with Proxy(f"{inside[1]}:{ports[0]}", ports[0]), Proxy(f"{inside[1]}:{ports[1]}", ports[1]):
        namesrv = f"127.0.0.1:{ports[0]}"
        async with Producer("shop", namesrv=namesrv) as producer:
            await producer.send("orders", b"from the host")
        seen: asyncio.Queue[bytes] = asyncio.Queue()
        consumer = Consumer("billing", namesrv=namesrv, start_at=StartAt.FIRST)

        @consumer.on("orders")
        async def note(message: ReceivedMessage) -> None:
            seen.put_nowait(message.body)

        async with consumer:
            assert await asyncio.wait_for(seen.get(), 20) == b"from the host"
