"""TLS beside plain text on one port: modes, certificates of both sides, and handshakes that never end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import shutil
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.bounds import TOO_LONG
from tests.integration.remoting.bare import PATIENCE, Listener, Peer, eventually, request
from tests.integration.remoting.certificates import PASSWORD, Authority

from pyromq.errors import ConfigError, ConnectFailed, ConnectionLost
from pyromq.protocol.command import Command
from pyromq.protocol.frame import FrameDecoder, encode
from pyromq.remoting import RemotingClient, TlsConfig, TlsMode, certificates

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.remoting.conftest import Start

    from pyromq.remoting import RemotingServer

ECHO = 1
PROCESSORS = {ECHO: lambda _, asked: asked.reply(body=asked.body)}
CLIENT = TlsConfig(client_enable=True)
PLAIN = TlsConfig()
SELF_SIGNED = {"tls": TlsConfig(test_mode=True)}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


def server_tls(authority: Authority, **more: Any) -> TlsConfig:
    cert, key = authority.issue("server")
    return TlsConfig(server_cert=cert, server_key=key, test_mode=False, **more)


def put(issued: tuple[str, str], folder: Path) -> None:
    """Put a certificate and its key where somebody looks for them."""
    for source, name in zip(issued, ("cert.pem", "key.pem"), strict=True):
        shutil.copy(source, folder / name)


async def ask(start: Start, server: RemotingServer, tls: TlsConfig, timeout: float = 5.0) -> bool:
    """Ask once; whether the connection was encrypted."""
    client = await start.client(None, {"tls": tls})
    assert (await client.invoke(server.address, Command.request(ECHO, body=b"hello"), timeout)).body == b"hello"
    (connection,) = client.endpoint.connections
    return connection.transport.get_extra_info("ssl_object") is not None


async def test_a_permissive_server_takes_plain_text_and_tls_on_one_port(start: Start):
    server = await start.server(PROCESSORS, SELF_SIGNED)
    assert not await ask(start, server, PLAIN)
    assert await ask(start, server, CLIENT)
    assert len(server.connections) == 2


async def test_a_client_takes_an_ssl_context_as_it_is(start: Start, authority: Authority, stranger: Authority):
    server = await start.server(PROCESSORS, {"tls": server_tls(authority)})
    # With host names checked, which no setting of ours asks for.
    trusting = ssl.create_default_context(cafile=authority.trust)
    client = await start.client(None, {"ssl_context": trusting})
    assert (await client.invoke(server.address, Command.request(ECHO, body=b"hello"), 5.0)).body == b"hello"
    (connection,) = client.endpoint.connections
    assert connection.transport.get_extra_info("ssl_object").context is trusting

    wary = await start.client(None, {"ssl_context": ssl.create_default_context(cafile=stranger.trust), "tls": CLIENT})
    with pytest.raises(ConnectFailed, match="certificate verify failed"):
        await wary.invoke(server.address, Command.request(ECHO), 5.0)


async def test_an_enforcing_server_refuses_plain_text(start: Start, caplog):
    server = await start.server(PROCESSORS, {"tls": TlsConfig(mode=TlsMode.ENFORCING, test_mode=True)})
    assert await ask(start, server, CLIENT)
    with pytest.raises(ConnectionLost):
        await ask(start, server, PLAIN)
    assert caplog.text.count("speaks plain text, which is refused here; closing") == 1


async def test_a_server_without_tls_refuses_it(start: Start, caplog):
    server = await start.server(PROCESSORS, {"tls": TlsConfig(mode=TlsMode.DISABLED)})
    assert not await ask(start, server, PLAIN)
    with pytest.raises(ConnectFailed):
        await ask(start, server, CLIENT)
    assert [r.levelname for r in caplog.records if "frame length" in r.getMessage()] == ["WARNING"]


async def test_a_permissive_server_without_certificate_refuses_tls_and_takes_plain_text(start: Start, caplog):
    server = await start.server(PROCESSORS, {"tls": TlsConfig(test_mode=False)})
    assert not await ask(start, server, PLAIN)
    with pytest.raises(ConnectFailed):
        await ask(start, server, CLIENT)
    assert "speaks TLS, which is refused here; closing" in caplog.text


async def test_an_enforcing_server_without_certificate_does_not_start(start: Start):
    with pytest.raises(ConfigError, match=r"tls\.server\.certPath names no certificate"):
        await start.server(PROCESSORS, {"tls": TlsConfig(mode=TlsMode.ENFORCING, test_mode=False)})


async def test_many_first_clients_share_one_self_signed_certificate(start: Start):
    server = await start.server(PROCESSORS, SELF_SIGNED)
    clients = [await start.client(None, {"tls": CLIENT}) for _ in range(5)]
    await asyncio.gather(*(client.invoke(server.address, Command.request(ECHO), 5) for client in clients))
    certificates = {
        connection.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        for client in clients
        for connection in client.endpoint.connections
    }
    assert len(certificates) == 1


async def test_a_server_shows_the_certificate_it_was_given(start: Start, authority: Authority):
    server = await start.server(PROCESSORS, {"tls": server_tls(authority)})
    trusting = TlsConfig(client_enable=True, client_auth_server=True, client_trust=authority.trust)
    assert await ask(start, server, trusting)
    assert await ask(start, server, CLIENT)  # one that checks nothing
    assert not await ask(start, server, PLAIN)


async def test_a_client_refuses_a_server_that_an_unknown_authority_vouches_for(
    start: Start, authority: Authority, stranger: Authority
):
    server = await start.server(PROCESSORS, {"tls": server_tls(authority)})
    distrusting = TlsConfig(client_enable=True, client_auth_server=True, client_trust=stranger.trust)
    with pytest.raises(ConnectFailed, match="CERTIFICATE_VERIFY_FAILED"):
        await ask(start, server, distrusting)
    # Nor does it trust the system's own authorities more.
    with pytest.raises(ConnectFailed, match="CERTIFICATE_VERIFY_FAILED"):
        await ask(start, server, TlsConfig(client_enable=True, client_auth_server=True))
    await eventually(lambda: not server.connections)


async def test_a_key_with_a_password_is_opened_by_it(start: Start, authority: Authority):
    cert, key = authority.issue("locked", PASSWORD)
    tls = TlsConfig(server_cert=cert, server_key=key, server_key_password=PASSWORD)
    server = await start.server(PROCESSORS, {"tls": tls})
    assert await ask(start, server, CLIENT)


@pytest.mark.parametrize("password", ["", "wrong", "x" * 5000])
async def test_a_wrong_password_stops_the_start(start: Start, authority: Authority, password: str):
    cert, key = authority.issue("locked", PASSWORD)
    tls = TlsConfig(server_cert=cert, server_key=key, server_key_password=password)
    with pytest.raises(ConfigError, match=f"{key} cannot be used"):
        await start.server(PROCESSORS, {"tls": tls})
    with pytest.raises(ConfigError, match=f"{key} cannot be used"):
        RemotingClient(
            tls=TlsConfig(client_enable=True, client_cert=cert, client_key=key, client_key_password=password)
        )


async def test_a_missing_or_broken_file_stops_the_start(start: Start, authority: Authority, tmp_path: Path):
    cert, key = authority.issue("server")
    garbage = tmp_path / "garbage.pem"
    garbage.write_bytes(os.urandom(100))
    missing = str(tmp_path / "missing.pem")
    for tls in (
        TlsConfig(server_cert=missing, server_key=key),
        TlsConfig(server_cert=cert, server_key=missing),
        TlsConfig(server_cert=cert),  # the key is not in it
        TlsConfig(server_cert=str(garbage), server_key=key),
        TlsConfig(server_cert="null\0byte", server_key=key),
        TlsConfig(server_cert=cert, server_key=authority.issue("other")[1]),
        TlsConfig(server_cert=cert, server_key=key, server_auth_client=True, server_trust=missing),
        TlsConfig(server_cert=cert, server_key=key, server_auth_client=True, server_trust=str(garbage)),
    ):
        with pytest.raises(ConfigError, match="cannot be used"):
            await start.server(PROCESSORS, {"tls": tls})
    for tls in (
        TlsConfig(client_enable=True, client_auth_server=True, client_trust=missing),
        TlsConfig(client_enable=True, client_cert=missing, client_key=key),
    ):
        with pytest.raises(ConfigError, match="cannot be used"):
            RemotingClient(tls=tls)


@pytest.mark.parametrize(("need", "without"), [("require", False), ("optional", True), ("none", True)])
async def test_a_server_may_ask_for_client_certificates(
    start: Start, authority: Authority, stranger: Authority, need: str, without: bool
):
    tls = server_tls(authority, server_need_client_auth=need, server_trust=authority.trust)
    server = await start.server(PROCESSORS, {"tls": tls})
    cert, key = authority.issue("client")
    assert await ask(start, server, TlsConfig(client_enable=True, client_cert=cert, client_key=key))
    cert, key = stranger.issue("intruder")
    intruder = TlsConfig(client_enable=True, client_cert=cert, client_key=key)
    if need == "none":
        assert await ask(start, server, intruder)
    else:
        with pytest.raises(ConnectionLost):
            await ask(start, server, intruder)
    if without:
        assert await ask(start, server, CLIENT)
    else:
        with pytest.raises(ConnectionLost):
            await ask(start, server, CLIENT)


async def test_a_renewed_certificate_is_shown_without_a_signal(
    start: Start, authority: Authority, stranger: Authority, tmp_path: Path, monkeypatch
):
    monkeypatch.setattr(certificates, "LOOK", 0.01)
    put(authority.issue("old"), tmp_path)
    tls = TlsConfig(server_cert=str(tmp_path / "cert.pem"), server_key=str(tmp_path / "key.pem"))
    server = await start.server(PROCESSORS, {"tls": tls})
    trusting = TlsConfig(client_enable=True, client_auth_server=True, client_trust=stranger.trust)
    old = await start.client(None, {"tls": CLIENT})
    await old.invoke(server.address, Command.request(ECHO), 5.0)
    with pytest.raises(ConnectFailed, match="CERTIFICATE_VERIFY_FAILED"):
        await ask(start, server, trusting)
    put(stranger.issue("new"), tmp_path)
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(ConnectFailed):
                assert await ask(start, server, trusting)
                break
    # Who was connected before stays so.
    (connection,) = old.endpoint.connections
    assert (await old.invoke(server.address, Command.request(ECHO), 5.0)).code == 0
    assert old.endpoint.connections == {connection}


async def test_a_client_shows_its_renewed_certificate(
    start: Start, authority: Authority, stranger: Authority, tmp_path: Path, monkeypatch
):
    monkeypatch.setattr("pyromq.remoting.client.LOOK", 0.0)
    server = await start.server(
        PROCESSORS, {"tls": server_tls(authority, server_need_client_auth="require", server_trust=authority.trust)}
    )
    put(stranger.issue("unknown"), tmp_path)
    tls = TlsConfig(client_enable=True, client_cert=str(tmp_path / "cert.pem"), client_key=str(tmp_path / "key.pem"))
    client = await start.client(None, {"tls": tls})
    with pytest.raises(ConnectionLost):
        await client.invoke(server.address, Command.request(ECHO), 5.0)
    put(authority.issue("known"), tmp_path)
    assert (await client.invoke(server.address, Command.request(ECHO), 5.0)).code == 0
    assert not any(task.get_name() == "look at certificates" for task in asyncio.all_tasks())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tls_1_2_and_1_3_are_spoken(start: Start, version: ssl.TLSVersion):
    server = await start.server(PROCESSORS, SELF_SIGNED)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    client = await start.client(None, {"ssl_context": context})
    assert (await client.invoke(server.address, Command.request(ECHO), 5.0)).code == 0


@pytest.mark.parametrize(
    "hello",
    [
        b"\x16",
        b"\x16" + b"\xff" * 100,
        b"\x16\x03\x01\x00\x05hello",
        b"\x16\x03\x01\xff\xff",
        b"\x16" + bytes(1000),
    ],
)
async def test_handshake_garbage_ends_its_connection_and_no_other(start: Start, caplog, hello: bytes):
    caplog.set_level(logging.INFO)
    server = await start.server(PROCESSORS, SELF_SIGNED)
    async with await Peer.connect(server.address) as good, await Peer.connect(server.address) as bad:
        assert (await good.ask(request(ECHO))).code == 0
        await bad.send(hello)
        bad.sock.shutdown(socket.SHUT_WR)
        await bad.ended()
        assert (await good.ask(request(ECHO))).code == 0
        assert len(server.connections) == 1
    gc.collect()


@pytest.mark.slow
@pytest.mark.parametrize("hello", [b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01"])
async def test_a_handshake_that_is_never_finished_times_out(start: Start, caplog, hello: bytes):
    caplog.set_level(logging.INFO)
    server = await start.server(PROCESSORS, SELF_SIGNED, max_idle_seconds=0.2)
    async with await Peer.connect(server.address) as slow:
        started = time.monotonic()
        await slow.send(hello)
        await slow.ended()
        assert 0.15 < time.monotonic() - started < TOO_LONG
    await eventually(lambda: not any(task.get_name() == "admit" for task in asyncio.all_tasks()))
    assert server.connections == frozenset()
    assert "not admitted" in caplog.text
    gc.collect()


@pytest.mark.slow
async def test_failed_handshakes_leave_no_descriptor_open(start: Start, authority: Authority, stranger: Authority):
    server = await start.server(PROCESSORS, {"tls": server_tls(authority)}, max_idle_seconds=0.2)
    distrusting = TlsConfig(client_enable=True, client_auth_server=True, client_trust=stranger.trust)
    client = await start.client(None, {"tls": distrusting})
    assert await ask(start, server, CLIENT)
    await eventually(lambda: not server.connections)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(10):
        with pytest.raises(ConnectFailed):
            await client.connection(server.address)
        async with await Peer.connect(server.address) as peer:
            await peer.send(b"\x16\x03\x01\x00\x05hello")
            await peer.ended()
        async with await Peer.connect(server.address) as peer:
            await peer.send(b"\x16")
    await eventually(lambda: not any(task.get_name() == "admit" for task in asyncio.all_tasks()))
    await eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)  # noqa: PTH208


async def test_a_client_that_never_shakes_hands_with_a_server_gives_up(start: Start):
    client = await start.client(None, {"tls": CLIENT}, connect_timeout=0.1)
    async with Listener() as deaf:
        started = time.monotonic()
        with pytest.raises(ConnectFailed, match=r"no connection within 0\.1 s"):
            await client.connection(deaf.address)
        assert time.monotonic() - started < TOO_LONG


async def test_a_tls_client_of_a_plain_text_server_gets_a_typed_error(start: Start):
    client = await start.client(None, {"tls": CLIENT})
    async with Listener() as listener:
        connecting = asyncio.create_task(client.connection(listener.address))
        async with await listener.accept() as peer:
            await peer.send(request(ECHO))
            with pytest.raises(ConnectFailed):
                await connecting


async def test_garbage_within_tls_closes_the_connection(start: Start, caplog):
    server = await start.server(PROCESSORS, SELF_SIGNED)
    client = await start.client(None, {"tls": CLIENT})
    connection = await client.connection(server.address)
    connection.transport.write(b"\xff" * 8)
    await eventually(lambda: connection.closed and not server.connections)
    assert caplog.text.count("frame length -1 is not within") == 1


async def test_a_blocking_tls_client_of_another_make_is_served(start: Start):
    """Java and Go shake hands in their own way; this is OpenSSL's, without asyncio."""
    server = await start.server(PROCESSORS, SELF_SIGNED)

    def talk() -> Command:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection(("127.0.0.1", server.port), 5) as plain,
            context.wrap_socket(plain) as sock,
        ):
            sock.sendall(encode(request(ECHO, body=b"over TLS")))
            decoder = FrameDecoder()
            while (command := decoder.next()) is None:
                decoder.feed(sock.recv(65536))
            return command

    assert (await asyncio.to_thread(talk)).body == b"over TLS"
    await eventually(lambda: not server.connections)


async def test_closing_a_server_during_a_handshake_leaves_nothing(start: Start):
    server = await start.server(PROCESSORS, SELF_SIGNED)
    async with await Peer.connect(server.address) as peer:
        await peer.send(b"\x16")
        async with asyncio.timeout(PATIENCE):
            # In every turn of the loop: on a quick machine it takes no longer than two of them.
            while not any(task.get_name() == "TLS context" for task in asyncio.all_tasks()):  # noqa: ASYNC110
                await asyncio.sleep(0)
        await server.close()
        await peer.ended()
    async with await Peer.connect((await start.server(PROCESSORS, SELF_SIGNED)).address) as peer:
        await peer.send(b"\x16\x03\x01\x02\x00")
    gc.collect()


async def test_closing_endpoints_over_tls_waits_for_nothing(start: Start, monkeypatch):
    monkeypatch.setattr("pyromq.remoting.endpoint._LINGER", 3600.0)
    server = await start.server(PROCESSORS, SELF_SIGNED)
    client = await start.client(None, {"tls": CLIENT})
    await client.invoke(server.address, Command.request(ECHO), 5)
    async with asyncio.timeout(TOO_LONG):
        await server.close()
        await client.close()
