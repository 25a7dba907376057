"""Replication with epochs, byte by byte: a master against a slave that a test plays, and the other way round."""

from __future__ import annotations

import asyncio
import struct

import pytest
from tests.integration.broker.failover.replica_kit import PATIENCE, assert_equal, eventually, same
from tests.unit.store.kit import bodies, sized

from pyromq.broker.failover import following
from pyromq.broker.replication.config import ReplicationConfig
from pyromq.protocol.auto_switch import FRAME_HEAD, REPORT, TRANSFER, Epoch, FrameHead, Greeting, Hello
from pyromq.store.config import FlushDiskType
from pyromq.store.metadata.epochs import EpochTable

FIRST = Epoch(1, 0)


def hexed(text):
    return bytes.fromhex(text.replace(" ", ""))


def report(end):
    return REPORT.pack(TRANSFER, end)


class Peer:
    """The other end of a line, played by a test."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    def say(self, data):
        self.writer.write(data)

    async def hear(self, size):
        async with asyncio.timeout(PATIENCE):
            return await self.reader.readexactly(size)

    async def frame(self):
        _, size, offset, epoch, start, confirmed = FRAME_HEAD.unpack(await self.hear(FRAME_HEAD.size))
        return FrameHead(size, offset, Epoch(epoch, start), confirmed), await self.hear(size)

    async def is_closed(self):
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read() is not None
            except ConnectionResetError:
                return True

    async def hear_rest(self):
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    async def hang_up(self):
        self.writer.close()


@pytest.fixture
async def peers():
    made = []

    async def connect(address):
        host, _, port = address.rpartition(":")
        peer = Peer(*await asyncio.open_connection(host, int(port)))
        made.append(peer)
        return peer

    yield connect
    for peer in made:
        peer.writer.close()


def store_three(master, *sizes):
    """Put records of these sizes, as in docs/spec/controller.md 6.2."""
    for size in sizes:
        master.store.put([(master.store.queue("T", 0), [sized(size)])])


async def master_of(replica, epochs, *, sizes=(), broker_id=1):
    """A master whose table and log are these: the records of each epoch by their sizes."""
    master = replica(broker_id)
    for epoch, records in zip(epochs, sizes, strict=True):
        master.controllers.epoch = epoch - 1
        master.controllers.elect_any(broker_id)
        await master.lead()
        store_three(master, *records)
    return master


async def test_a_fresh_slave_as_rocketmqs(replica, peers):
    """docs/spec/controller.md 6.2, the first example."""
    master = await master_of(replica, [1], sizes=[(232, 232, 232)])
    slave = await peers(master.address)
    slave.say(hexed("00000001 0000 0000 0000000000000003"))
    assert await slave.hear(32) == hexed(
        "00000001 0000000c 00000000000002b8 00000001 00000001 0000000000000000",
    )
    slave.say(hexed("00000002 0000000000000000"))
    assert await slave.hear(36) == hexed(
        "00000002 000002b8 0000000000000000 00000001 0000000000000000 00000000000002b8",
    )
    assert await slave.hear(8) == hexed("000000e8 daa320a7")
    await slave.hear(696 - 8)
    slave.say(hexed("00000002 00000000000002b8"))
    await eventually(lambda: master.controllers.in_sync.members == {1, 3})
    for link in master.leading.master.links:
        link.look(link._wrote_at + 5.1, 5.0, 20.0)
    assert await slave.hear(36) == hexed(
        "00000002 00000000 00000000000002b8 00000001 0000000000000000 00000000000002b8",
    )


async def test_an_old_master_as_rocketmqs(replica, peers):
    """docs/spec/controller.md 6.2, the second example: frames never cross the end of an epoch."""
    master = await master_of(replica, [1, 2, 3], sizes=[(232, 232, 232), (226,), (230,)])
    slave = await peers(master.address)
    slave.say(Hello(2).encode())
    assert await slave.hear(56) == hexed(
        "00000001 00000024 0000000000000480 00000003 00000001 0000000000000000 00000002 00000000000002b8"
        "00000003 000000000000039a",
    )
    slave.say(hexed("00000002 000000000000039a"))
    assert await slave.hear(36) == hexed(
        "00000002 000000e6 000000000000039a 00000003 000000000000039a 0000000000000480",
    )

    other = await peers(master.address)
    other.say(Hello(4).encode())
    await other.hear(56)
    other.say(report(100))
    frames = [await other.frame() for _ in range(3)]
    assert [head for head, _ in frames] == [
        FrameHead(596, 100, FIRST, 1152),
        FrameHead(226, 696, Epoch(2, 696), 1152),
        FrameHead(230, 922, Epoch(3, 922), 1152),
    ]
    assert b"".join(data for _, data in frames) == bytes(master.store.log.read(100, 1052))


async def test_an_empty_master_says_its_epoch_at_once(replica, peers):
    master = await master_of(replica, [1], sizes=[()])
    slave = await peers(master.address)
    slave.say(Hello(3).encode())
    await slave.hear(32)
    slave.say(report(0))
    assert await slave.frame() == (FrameHead(0, 0, FIRST, 0), b"")


@pytest.mark.scenario("controller 23")
async def test_only_the_first_handshake_is_answered(replica, peers):
    master = await master_of(replica, [1], sizes=[()])
    slave = await peers(master.address)
    slave.say(Hello(3).encode() * 2)
    assert await slave.hear(32) == Greeting(0, (FIRST,)).encode()
    slave.say(Hello(3).encode() + report(0))
    assert await slave.frame() == (FrameHead(0, 0, FIRST, 0), b"")


async def test_a_slave_that_begins_at_the_last_file(replica, peers):
    master = await master_of(replica, [1], sizes=[(1000,) * 6])
    slave = await peers(master.address)
    slave.say(Hello(3, from_last_file=True).encode())
    await slave.hear(32)
    slave.say(report(0))
    head, _ = await slave.frame()
    assert head.offset == 4096


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (Hello(3).encode() + report(700), "the slave's log ends at 700, the master's at 696"),
        (report(0), "before it says who it is"),
        (b"GET / HTTP/1.1\r\n\r\n", "a slave in the state"),
        (Hello(1).encode(), "this broker's own id"),
    ],
    ids=["ahead", "nameless", "foreign", "own id"],
)
async def test_a_slave_that_cannot_be_served_is_sent_away(replica, peers, said, reason):
    master = await master_of(replica, [1], sizes=[(232, 232, 232)])
    slave = await peers(master.address)
    slave.say(said)
    assert await slave.is_closed()
    assert reason in master.leading.master.refusals[-1].reason
    assert not master.leading.master.links


async def test_a_slave_from_before_the_first_file_or_epoch_is_sent_away(replica, peers):
    master = await master_of(replica, [1], sizes=[(1000,) * 8])
    master.epochs.append(Epoch(2, 5000))
    master.epochs._entries = [Epoch(2, 5000)]
    slave = await peers(master.address)
    slave.say(Hello(3).encode() + report(4500))
    assert await slave.is_closed()
    assert "no epoch is known: 2-5000" in master.leading.master.refusals[-1].reason
    master.store.log.drop_oldest().close()
    slave = await peers(master.address)
    slave.say(Hello(3).encode() + report(1000))
    assert await slave.is_closed()
    assert "this one begins at 4096" in master.leading.master.refusals[-1].reason


async def test_slaves_hear_at_once_of_a_new_epoch(replica, peers):
    """A master that is elected anew keeps its connections."""
    master = await master_of(replica, [1], sizes=[(232,)])
    slave = await peers(master.address)
    slave.say(Hello(3).encode() + report(232))
    await slave.hear(32)
    assert (await slave.frame())[0] == FrameHead(0, 232, FIRST, 232)
    master.epochs.append(Epoch(2, 232))
    master.leading.tell()
    assert (await slave.frame())[0] == FrameHead(0, 232, Epoch(2, 232), 232)


@pytest.mark.scenario("controller 22")
async def test_a_slave_with_stale_epochs_of_its_own_is_served(replica, peers):
    """RocketMQ 5.5.0 keeps entries that it should have cut; it does not say so, and its log is what counts."""
    master = await master_of(replica, [1, 3], sizes=[(232, 232, 232), (226,)])
    slave = await peers(master.address)
    slave.say(Hello(2).encode() + report(680))
    await slave.hear(44)
    frames = [await slave.frame() for _ in range(2)]
    assert [(head.offset, head.size, head.epoch) for head, _ in frames] == [(680, 16, FIRST), (696, 226, (3, 696))]


# A slave against a master that a test plays


class PlayedMaster:
    def __init__(self):
        self._slaves: asyncio.Queue[object] = asyncio.Queue()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._came, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._made = []
        return self

    async def __aexit__(self, *exc_info):
        self._server.close()
        for peer in self._made:
            peer.writer.close()

    async def _came(self, reader, writer):
        peer = Peer(reader, writer)
        self._made.append(peer)
        await self._slaves.put(peer)

    async def slave(self):
        async with asyncio.timeout(PATIENCE):
            return await self._slaves.get()


@pytest.fixture
async def played():
    async with PlayedMaster() as master:
        yield master


@pytest.fixture
async def log(replica):
    """The bytes of three records of 232 bytes."""
    master = await master_of(replica, [1], sizes=[(232, 232, 232)], broker_id=9)
    return bytes(master.store.log.read(0, 696))


async def greet(slave, end, *epochs):
    """Gives where the slave wants to begin."""
    assert await slave.hear(16) == Hello(3).encode()
    slave.say(Greeting(end, tuple(Epoch(*entry) for entry in epochs)).encode())
    return await reported(slave)


async def reported(slave):
    state, end = REPORT.unpack(await slave.hear(REPORT.size))
    assert state == TRANSFER
    return end


async def test_a_slave_of_rocketmqs_master(replica, played, log):
    """docs/spec/controller.md 6.2, the first example, from the other side."""
    slave = replica(3)
    await slave.follow(played.address)
    master = await played.slave()
    assert await master.hear(16) == hexed("00000001 0000 0000 0000000000000003")
    master.say(hexed("00000001 0000000c 00000000000002b8 00000001 00000001 0000000000000000"))
    # At once, where RocketMQ's slaves take 5 s.
    assert await master.hear(12) == hexed("00000002 0000000000000000")
    master.say(hexed("00000002 00000000 0000000000000000 00000001 0000000000000000 00000000000002b8"))
    master.say(hexed("00000002 000002b8 0000000000000000 00000001 0000000000000000 00000000000002b8") + log)
    while (end := await reported(master)) != 696:
        assert end <= 696
    assert slave.epochs.entries == ((1, 0),)
    await eventually(lambda: slave.store.confirmed == 696)
    assert len(bodies(slave.store)) == 3


async def test_a_slave_of_rocketmqs_empty_master(replica, played):
    slave = replica(3)
    await slave.follow(played.address)
    master = await played.slave()
    assert await greet(master, -1, (1, 0)) == 0
    master.say(hexed("00000002 00000000 ffffffffffffffff 00000001 0000000000000000 0000000000000000"))
    await eventually(lambda: slave.epochs.entries == ((1, 0),))


async def test_rocketmq_names_the_next_epoch_before_it_begins(replica, played, log):
    """The last frame of an epoch carries the next one (6.3)."""
    slave = replica(3)
    await slave.follow(played.address)
    master = await played.slave()
    await greet(master, 696, (1, 0), (2, 464))
    master.say(FrameHead(232, 0, FIRST, 0).encode() + log[:232])
    await eventually(lambda: slave.end == 232 and not slave.store.torn)  # what is dispatched together is shown together
    master.say(FrameHead(232, 232, Epoch(2, 464), 0).encode() + log[232:464])
    master.say(FrameHead(0, 464, Epoch(2, 464), 300).encode())
    await eventually(lambda: slave.end == 464 and slave.store.confirmed == 232)
    assert slave.epochs.entries == ((1, 0), (2, 464))
    assert len(bodies(slave.store)) == 1


async def test_what_comes_together_is_kept_together(replica, played, log):
    slave = replica(3)
    kept, keep = [], slave.store.keep_copy

    def counted(offset, *pieces):
        kept.append(len(pieces))
        return keep(offset, *pieces)

    slave.store.keep_copy = counted
    await slave.follow(played.address)
    master = await played.slave()
    await greet(master, 696, (1, 0))
    master.say(FrameHead(0, 0, FIRST, 0).encode())
    await eventually(lambda: slave.epochs.entries == ((1, 0),) and not slave.epochs.unsaved)
    master.say(b"".join(FrameHead(232, at, FIRST, 0).encode() + log[at : at + 232] for at in (0, 232, 464)))
    assert await reported(master) == 696
    assert kept == [3]


@pytest.mark.slow
async def test_under_sync_flush_a_slave_reports_what_its_disk_has(replica, played, log):
    slave = replica(3, flush=FlushDiskType.SYNC_FLUSH)
    slave.replication = ReplicationConfig(heartbeat_interval=100)
    await slave.follow(played.address)
    master = await played.slave()
    await greet(master, 696, (1, 0))
    master.say(FrameHead(0, 0, FIRST, 0).encode())
    await eventually(lambda: slave.epochs.entries == ((1, 0),) and not slave.epochs.unsaved)
    slave.disk.hold_syncs("commitlog")
    syncs = slave.disk.syncs
    master.say(FrameHead(232, 0, FIRST, 0).encode() + log[:232])
    try:
        await eventually(lambda: slave.end == 232 and slave.disk.is_held.is_set())
        for at in (232, 464):
            master.say(FrameHead(232, at, FIRST, 0).encode() + log[at : at + 232])
        await eventually(lambda: slave.end == 696)
        assert await reported(master) == 0  # a heartbeat
    finally:
        slave.disk.release_syncs()
    while (end := await reported(master)) < 232:
        assert end == 0
    while end < 696:
        end = await reported(master)
    assert slave.disk.syncs - syncs <= 2 + 1, "all that came during the first flush shares one"


async def test_a_slave_whose_disk_fails_reports_nothing_more(replica, played, log):
    slave = replica(3, flush=FlushDiskType.SYNC_FLUSH)
    await slave.follow(played.address)
    master = await played.slave()
    await greet(master, 696, (1, 0))
    slave.disk.fail_syncs(where="commitlog")
    master.say(FrameHead(696, 0, FIRST, 0).encode() + log)
    await eventually(lambda: "flush failed" in (slave.following.problem or ""))
    assert await master.hear_rest() == b""


@pytest.mark.slow
async def test_the_line_may_break_anywhere(replica, played, log):
    slave = replica(3)
    await slave.follow(played.address)
    wire = Greeting(696, (FIRST,)).encode() + b"".join(
        FrameHead(116, at, FIRST, 696).encode() + log[at : at + 116] for at in range(0, 696, 116)
    )
    for cut in range(3, len(wire), 97):
        master = await played.slave()
        await master.hear(16)
        await _say_from(master, wire, log, cut)
        await master.hang_up()
    master = await played.slave()
    at = await greet(master, 696, (1, 0))
    if at < 696:
        master.say(FrameHead(696 - at, at, FIRST, 696).encode() + log[at:])
    await eventually(lambda: slave.end == 696 and slave.store.confirmed == 696)
    assert bytes(slave.store.log.read(0, 696)) == log
    assert len(bodies(slave.store)) == 3
    slave.check()


async def _say_from(master, wire, log, cut):
    """The handshake and frames, but no more than `cut` bytes of it all."""
    greeting, left = wire[:32][:cut], cut - 32
    master.say(greeting)
    if left <= 0:
        return
    at = await reported(master)
    wire = FrameHead(696 - at, at, FIRST, 696).encode() + log[at:]
    master.say(wire[:left])


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (FrameHead(0, 5, FIRST, 0).encode(), "belongs to 5"),
        (Greeting(0, (FIRST,)).encode(), "second handshake"),
        (struct.pack(">i", 7), "a master in the state 7"),
        (FrameHead(4, 232, Epoch(0, 0), 0).encode() + b"abcd", "sent epoch 0-0 after 1-0"),
        (FrameHead(4, 232, Epoch(1, 7), 0).encode() + b"abcd", "sent epoch 1-7 after 1-0"),
    ],
    ids=["offset", "handshake", "state", "epoch", "start"],
)
async def test_a_master_that_makes_no_sense_is_left(replica, played, log, said, problem):
    slave = replica(3)
    await slave.follow(played.address)
    master = await played.slave()
    await greet(master, 696, (1, 0))
    master.say(FrameHead(232, 0, FIRST, 232).encode() + log[:232])
    await eventually(lambda: slave.end == 232)
    master.say(said)
    await eventually(lambda: problem in (slave.following.problem or ""))
    assert slave.end == 232
    await greet(await played.slave(), 696, (1, 0))
    await eventually(lambda: slave.following.problem is None)


async def test_a_log_before_its_time_is_refused(replica, played):
    slave = replica(3)
    await slave.follow(played.address)
    master = await played.slave()
    master.say(FrameHead(0, 0, FIRST, 0).encode())
    await eventually(lambda: "before it was asked" in (slave.following.problem or ""))


async def test_a_master_that_only_sends_heartbeats_is_left(replica, played, monkeypatch):
    monkeypatch.setattr(following, "_NO_DATA", 0.05)
    monkeypatch.setattr(following, "_LOOK", 0.02)
    slave = replica(3)
    await slave.follow(played.address)
    master = await played.slave()
    await greet(master, 696, (1, 0))
    for _ in range(5):
        master.say(FrameHead(0, 0, FIRST, 0).encode())
    await eventually(lambda: "nothing but heartbeats" in (slave.following.problem or ""))


@pytest.mark.slow
async def test_a_silent_master_is_left_and_a_slave_is_not_silent(replica, played, monkeypatch):
    monkeypatch.setattr(following, "_LOOK", 0.02)
    slave = replica(3)
    slave.replication = type(slave.replication)(heartbeat_interval=50, silence=400)
    await slave.follow(played.address)
    master = await played.slave()
    await greet(master, 0, (1, 0))
    assert [await reported(master) for _ in range(2)] == [0, 0]
    await eventually(lambda: "silent for 0.4 s" in (slave.following.problem or ""))


async def test_a_master_that_does_not_greet_is_left(replica, played, monkeypatch):
    monkeypatch.setattr(following, "_GREETING", 0.05)
    slave = replica(3)
    await slave.follow(played.address)
    await played.slave()
    await eventually(lambda: "no handshake within" in (slave.following.problem or ""))
    await greet(await played.slave(), 0, (1, 0))


async def test_confirmed_bytes_are_cut_off_loudly(replica, played, log, caplog):
    slave = replica(3)
    await slave.follow(played.address)
    master = await played.slave()
    await greet(master, 696, (1, 0))
    master.say(FrameHead(696, 0, FIRST, 696).encode() + log)
    await eventually(lambda: slave.store.confirmed == 696)
    await master.hang_up()
    assert await greet(await played.slave(), 464, (1, 0), (2, 464)) == 464
    assert "232 bytes that were confirmed are cut off" in caplog.text
    assert slave.store.confirmed == 464


async def test_a_cut_survives_a_crash(replica, played, log):
    slave = replica(3)
    await slave.follow(played.address)
    master = await played.slave()
    await greet(master, 696, (1, 0), (2, 464))
    master.say(FrameHead(464, 0, FIRST, 464).encode() + log[:464])
    master.say(FrameHead(232, 464, Epoch(2, 464), 464).encode() + log[464:])
    await eventually(lambda: slave.end == 696)
    await master.hang_up()
    assert await greet(await played.slave(), 464, (1, 0), (3, 464)) == 464
    assert slave.epochs.entries == ((1, 0),)
    await slave.crash()
    assert slave.end == 464
    assert slave.epochs.entries == ((1, 0),)
    again = EpochTable(slave.epochs.path, slave.disk)
    again.load()
    assert again.entries == ((1, 0),)
    slave.check()


async def test_a_store_from_before_fail_over_goes_on(replica):
    """Its log has no epochs yet: all of it belongs to the first."""
    master, slave = replica(1), replica(2)
    store_three(master, 232, 232)
    master.controllers.elect(1)
    await master.lead()
    assert master.epochs.entries == ((1, 0),)
    await slave.follow(master.address)
    await eventually(lambda: same(master, slave) and slave.store.confirmed == slave.end)
    assert_equal(master, slave)
