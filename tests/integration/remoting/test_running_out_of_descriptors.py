"""A server that has no file descriptor left waits for one, and serves all who knocked meanwhile."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from tests.bounds import TOO_LONG
from tests.integration.remoting.bare import request

from pyromq.protocol.frame import encode

# In a process of its own, since the limit is the process's.
PROGRAM = """
import asyncio, logging, os, resource, sys
import uvloop
from pyromq.remoting import RemotingServer, ServerConfig

async def main():
    config = ServerConfig(listen_port=0, bind_address="127.0.0.1")
    async with RemotingServer(config, {1: lambda _, asked: asked.reply()}) as server:
        print(server.port, flush=True)
        sys.stdin.readline()
        await asyncio.to_thread(print, "ready", flush=True)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        taken = []
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            print("full", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for descriptor in taken:
            os.close(descriptor)
        await asyncio.to_thread(sys.stdin.readline)

logging.basicConfig(stream=sys.stdout, level=logging.WARNING, format="%(message)s")
loop = uvloop.new_event_loop if sys.argv[1] == "uvloop" else asyncio.SelectorEventLoop
with asyncio.Runner(loop_factory=loop) as runner:
    runner.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_server_recovers_when_descriptors_come_free(loop: str):
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM, loop], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None

        def tell() -> None:
            server.stdin.write("\n")  # type: ignore[union-attr]  # checked above
            server.stdin.flush()  # type: ignore[union-attr]

        port = int(server.stdout.readline())
        tell()
        assert server.stdout.readline() == "ready\n"
        assert server.stdout.readline() == "full\n"
        peers = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(8)]
        for peer in peers:
            peer.sendall(encode(request(1)))
        assert server.stdout.readline() == "accept failed: Too many open files; trying again every 0.1 s\n"
        peers[0].settimeout(0.3)
        with pytest.raises(TimeoutError):
            peers[0].recv(1)
        peers[0].settimeout(5)
        tell()
        for peer in peers:
            assert peer.recv(1000)
            peer.close()
        tell()
        assert server.stdout.read() == "accept works again\n"
        assert server.wait(TOO_LONG) == 0
