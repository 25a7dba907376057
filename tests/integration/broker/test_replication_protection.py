"""Replication by TLS and with a secret: who gets in, who does not, and what both sides say."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time

import pytest
from tests.integration.broker.failover.replica_kit import Replica, assert_equal, same
from tests.integration.broker.life_kit import eventually
from tests.integration.broker.replication_kit import (
    MASTER,
    REPORT,
    SLAVE,
    caught_up,
    has_problem,
    problem_of,
    refusals_of,
)

from pyromq.broker.replication.config import ReplicationConfig
from pyromq.broker.replication.proof import MAGIC, WRONG_SECRET
from pyromq.broker.replication.protection import LineProtection
from pyromq.errors import ConfigError
from pyromq.remoting import TlsConfig
from pyromq.remoting.issuing import Authority

pytestmark = pytest.mark.slow

SECRET = "haSecret=correct horse"
TLS = "haTlsEnable=true"


@pytest.fixture
def certificates(tmp_path):
    """Settings of a broker that trusts one authority, both as master and as slave."""
    (folder := tmp_path / "certificates").mkdir()
    authority = Authority.create(folder, "authority")
    authority.issue(folder, "server", hosts=["127.0.0.1"], days=9, server=True)
    return [
        f"tls.server.certPath={folder}/server.pem",
        f"tls.server.keyPath={folder}/server.key",
        f"tls.server.trustCertPath={folder}/ca.pem",
        "tls.client.authServer=true",
        f"tls.client.trustCertPath={folder}/ca.pem",
        f"tls.client.certPath={folder}/server.pem",
        f"tls.client.keyPath={folder}/server.key",
    ]


async def refused(master, words):
    async def shown():
        return any(words in each for each in refusals_of(master))

    try:
        await eventually(shown)
    except TimeoutError:
        raise AssertionError(f"{words!r} is not in {refusals_of(master)}") from None


def is_encrypted(scene):
    (link,) = scene.broker._parts.replication.master.links
    return type(link._line).__name__ == "TlsLine"


@pytest.mark.parametrize("sets", [[SECRET], [TLS], [TLS, SECRET], [TLS, SECRET, "tls.server.need.client.auth=require"]])
async def test_a_protected_slave_has_the_same_files(group, certificates, sets):
    if TLS in sets:
        sets = [*sets, *certificates]
    master = await group.start("master", MASTER, *sets)
    slave = await group.start("slave", *SLAVE, *sets)
    client = await master.connect()
    await client.sent()
    await caught_up(master, slave)
    for number in range(300):
        await client.sent(b"%d" % number * 2000, queue_id=number % 4)
    await caught_up(master, slave)
    assert len(group.log("master")) > 1
    assert group.log("slave") == group.log("master")
    assert is_encrypted(master) is (TLS in sets)
    assert refusals_of(master) == []
    assert problem_of(slave) is None


async def test_a_backlog_comes_over_tls(group, certificates):
    """More than a socket holds: the master has to stop, and to go on where it was."""
    sets = [TLS, SECRET, *certificates]
    master = await group.start("master", MASTER, "mappedFileSizeCommitLog=32m", *sets)
    client = await master.connect()
    for number in range(250):
        await client.sent(bytes([number]) * 100_000)
    slave = await group.start("slave", *SLAVE, "mappedFileSizeCommitLog=32m", *sets)
    await caught_up(master, slave)
    assert group.log("slave") == group.log("master")


async def test_throw_away_certificates_are_proven_by_the_secret(group):
    master = await group.start("master", MASTER, TLS, SECRET)  # TLS test mode is on in these tests
    slave = await group.start("slave", *SLAVE, TLS, SECRET)
    client = await master.connect()
    await client.sent()
    await caught_up(master, slave)
    assert is_encrypted(master)


async def test_a_wrong_secret_is_told_on_both_sides(group, caplog):
    master = await group.start("master", MASTER, SECRET)
    client = await master.connect()
    await client.sent()
    slave = await group.start("slave", *SLAVE, "haSecret=wrong horse")
    await has_problem(slave, f"it refuses this slave: {WRONG_SECRET}")
    await refused(master, WRONG_SECRET)
    assert slave.broker._parts.context.store.log.end == 0
    assert (await client.call(907)).json["refusals"][0]["reason"] == WRONG_SECRET
    assert "horse" not in caplog.text
    assert [each.levelno for each in caplog.records if WRONG_SECRET in each.getMessage()].count(logging.ERROR) == 2


async def test_a_slave_without_the_secret_is_told_what_to_set(group):
    master = await group.start("master", MASTER, SECRET)
    slave = await group.start("slave", *SLAVE)
    words = "the slave does not prove that it knows haSecret; set the same haSecret there"
    await has_problem(slave, words)
    await refused(master, words)


async def test_a_master_without_the_secret_is_told_what_to_set(group):
    master = await group.start("master", MASTER)
    slave = await group.start("slave", *SLAVE, SECRET)
    await has_problem(slave, "it closed the connection instead of proving that it knows haSecret")
    await refused(master, "does not speak the protocol of replication")


async def test_a_plain_slave_of_a_master_with_tls_is_told_what_to_set(group, certificates):
    master = await group.start("master", MASTER, TLS, *certificates)
    slave = await group.start("slave", *SLAVE)
    await has_problem(slave, "the master takes slaves by TLS only; set haTlsEnable=true on the slave")
    await refused(master, "the master takes slaves by TLS only")


async def test_a_slave_does_not_follow_a_master_without_tls(group):
    await group.start("master", MASTER, "tls.test.mode.enable=false")
    slave = await group.start("slave", *SLAVE, TLS)
    await has_problem(slave, "it does not speak TLS here; does it have a certificate")


async def test_a_slave_does_not_follow_a_master_with_a_certificate_of_another_authority(group, certificates):
    await group.start("master", MASTER, TLS)  # self-signed
    slave = await group.start("slave", *SLAVE, TLS, *certificates)
    await has_problem(slave, "its certificate is not trusted: self-signed certificate")


async def test_tls_is_switched_on_slaves_first(group, certificates):
    """A master that has a certificate takes both, so nobody needs to stop at once."""
    master = await group.start("master", MASTER, *certificates)
    client = await master.connect()
    await client.sent()
    async with group.leaving("slave", *SLAVE, *certificates) as slave:
        await caught_up(master, slave)
        assert not is_encrypted(master)
    await client.sent()
    slave = await group.start("slave", *SLAVE, TLS, *certificates)
    await caught_up(master, slave)
    assert is_encrypted(master)


@pytest.mark.parametrize("first", [REPORT.pack(0), MAGIC + bytes(32) + bytes(32), b"\x16\x03\x01\x00\x05hello"])
async def test_a_stranger_gets_no_byte_of_the_log(group, deaf, first):
    master = await group.start("master", MASTER, SECRET)
    client = await master.connect()
    await client.sent(b"for friends only")
    stranger = await deaf(master)
    stranger.writer.write(first)
    heard = b""
    with contextlib.suppress(ConnectionResetError):
        async with asyncio.timeout(10):
            while more := await stranger.reader.read(100):
                heard += more
    assert b"friends" not in heard
    assert len(heard) < 200
    await refused(master, "")
    assert not master.broker._parts.replication.master.links


async def test_who_never_finishes_the_proof_is_closed_and_others_are_served(group, deaf, monkeypatch):
    monkeypatch.setattr("pyromq.broker.replication.protection._PATIENCE", 0.1)
    master = await group.start("master", MASTER, SECRET)
    slow = await deaf(master)
    slow.writer.write(MAGIC)
    began = time.monotonic()
    slave = await group.start("slave", *SLAVE, SECRET)
    client = await master.connect()
    await client.sent()
    await caught_up(master, slave)
    assert await slow.is_closed()
    assert time.monotonic() - began < 10


async def test_a_master_that_is_to_serve_tls_needs_a_certificate(group):
    with pytest.raises(ConfigError, match="haTlsEnable needs a certificate"):
        await group.start("master", MASTER, TLS, "tls.test.mode.enable=false")


# Groups that fail over


def protection(secret="", *, is_tls=False):
    config = ReplicationConfig(ha_secret=secret, ha_tls=is_tls)
    made = LineProtection(lambda: config, TlsConfig(test_mode=True))
    made.load(may_lead=True)
    return made


@pytest.fixture
async def pair(tmp_path):
    replicas = [Replica(tmp_path, 1)]
    replicas.append(Replica(tmp_path, 2, replicas[0].controllers))
    yield replicas
    for each in replicas:
        await each.close()


@pytest.mark.parametrize("is_tls", [False, True])
async def test_a_group_that_fails_over_replicates_under_protection(pair, is_tls):
    for each in pair:
        each.protection = protection("secret", is_tls=is_tls)
    master, slave = pair
    master.controllers.elect(1)
    await master.lead()
    await slave.follow(master.address)
    for number in range(50):
        master.append(b"%d" % number * 100)

    async def is_same():
        return same(master, slave) and master.end > 0

    await eventually(is_same)
    assert_equal(master, slave)


async def test_a_wrong_secret_is_told_on_both_sides_of_a_group_that_fails_over(pair):
    master, slave = pair
    master.protection, slave.protection = protection("secret"), protection("another")
    master.controllers.elect(1)
    await master.lead()
    await slave.follow(master.address)

    async def is_told():
        return WRONG_SECRET in (slave.following.problem or "")

    await eventually(is_told)
    assert [each.reason for each in master.leading.master.refusals] == [WRONG_SECRET]


async def test_a_group_that_fails_over_refuses_a_slave_without_the_secret(pair):
    master, slave = pair
    master.protection = protection("secret")
    master.controllers.elect(1)
    await master.lead()
    await slave.follow(master.address)

    async def is_told():
        return "does it want haSecret" in (slave.following.problem or "")

    await eventually(is_told)
    assert "does not prove that it knows haSecret" in master.leading.master.refusals[0].reason


def test_another_loop_hands_a_proven_line_over_too():
    """uvloop reads for buffered protocols in its own way."""
    uvloop = pytest.importorskip("uvloop")

    class Buffered(asyncio.BufferedProtocol):
        def __init__(self):
            self.came = bytearray(100)
            self.done = asyncio.get_running_loop().create_future()

        def get_buffer(self, sizehint):
            return self.came

        def buffer_updated(self, nbytes):
            self.done.set_result(bytes(self.came[:nbytes]))

        def connection_made(self, transport):
            self.transport = transport
            transport.write(b"x")

    async def life(made):
        admitted = []

        async def accept(sock):
            line = await made.admit(sock, 5.0)
            admitted.append(line)
            while True:
                try:
                    assert line.recv(1) == b"x"
                    break
                except BlockingIOError:
                    await asyncio.sleep(0.001)
            line.send(b"hello")

        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            loop = asyncio.get_running_loop()
            connecting = asyncio.create_task(made.connect(Buffered, *listener.getsockname()))
            sock, _ = await loop.sock_accept(listener)
            await accept(sock)
            transport, feed = await connecting
            async with asyncio.timeout(5):
                assert await feed.done == b"hello"
            transport.abort()
            admitted[0].close()

    for is_tls in (False, True):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(life(protection("secret", is_tls=is_tls)))


def test_nothing_older_than_tls_1_2_is_spoken():
    made = protection(is_tls=True)
    assert made._shown.context.minimum_version is ssl.TLSVersion.TLSv1_2
