"""The master's side of plain replication, over real sockets and without a broker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time

import pytest
from tests.unit.store.kit import Stores, put

from pyromq.broker.replication.config import ReplicationConfig
from pyromq.broker.replication.master import Master
from pyromq.broker.replication.protection import LineProtection
from pyromq.broker.replication.slaves import Slaves
from pyromq.protocol.replication import FRAME_HEAD, REPORT
from pyromq.remoting import TlsConfig


@pytest.fixture
def stores(tmp_path):
    stores = Stores(tmp_path)
    yield stores
    stores.finish()


async def test_slaves_that_are_gone_do_not_hurt_whoever_stores_a_message(stores):
    """A send was never answered: the first slave found gone ended the loop over all of them."""
    store = stores.open(commit_log_file_size=1 << 20)
    put(store, b"first")
    config = ReplicationConfig()
    master = Master(store.log, Slaves(), lambda: config)
    slaves = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for _ in range(3):
            slave = socket.create_connection(listener.getsockname())
            sock, _ = listener.accept()
            sock.setblocking(False)
            master.accepted(sock)
            slave.sendall(REPORT.pack(int(store.log.end)))
            slaves.append(slave)
    async with asyncio.timeout(5):
        while any(link.acknowledged is None for link in master.links):  # noqa: ASYNC110 - links have no events
            await asyncio.sleep(0)
    for slave in slaves:
        slave.close()
    # The first write after the end finds a reset, the next one an error. No turn of the loop in between sees the end.
    # Less than that would wait for the slaves' answers.
    for _ in range(5):
        put(store, bytes(64 << 10))
        master.appended()
    assert not master.links


async def test_what_comes_while_a_frame_is_on_its_way_goes_in_one_frame(stores):
    """Each frame has its price on both sides: with a slave that answers at once, many small ones become few."""
    store = stores.open(commit_log_file_size=1 << 20)
    put(store, b"first")
    config = ReplicationConfig()
    master = Master(store.log, Slaves(), lambda: config)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as slave:
        sock, _ = listener.accept()
        sock.setblocking(False)
        master.accepted(sock)
        [link] = master.links
        slave.sendall(REPORT.pack(int(store.log.end)))
        await _until(lambda: link.acknowledged is not None)
        put(store, b"sent at once")
        master.appended()
        sent = link.position
        assert sent == int(store.log.end)
        link._is_quick = True  # however slow this machine is
        for _ in range(3):
            put(store, b"waits for the answer")
            master.appended()
        assert link.position == sent
        slave.sendall(REPORT.pack(sent))
        await _until(lambda: link.position == int(store.log.end))
        link._is_quick = True
        # One that does not answer, or not soon, is sent everything at once.
        put(store, b"waits, too")
        master.appended()
        assert link.position < int(store.log.end)
        link.look(time.monotonic() + 1, 5, 20)
        assert link.position == int(store.log.end)
        put(store, b"does not")
        master.appended()
        assert link.position == int(store.log.end)
        link.close("the test is over")


async def test_where_nobody_waits_for_slaves_they_are_told_a_few_milliseconds_apart(stores):
    store = stores.open(commit_log_file_size=4 << 20)
    put(store, b"first")
    config = ReplicationConfig()
    master = Master(store.log, Slaves(), lambda: config, is_awaited=False)
    with socket.create_server(("127.0.0.1", 0)) as listener, _connected(listener, master) as slave:
        [link] = master.links
        slave.sendall(REPORT.pack(int(store.log.end)))
        await _until(lambda: link.acknowledged is not None)
        link._wrote_at = time.monotonic() - 1
        put(store, b"sent at once after a pause")
        master.appended()
        sent = link.position
        assert sent == int(store.log.end)
        link._wrote_at = time.monotonic() + 1  # however slow this machine is
        put(store, b"waits")
        master.appended()
        assert link.position == sent
        link._wrote_at = time.monotonic()
        await _until(lambda: link.position == int(store.log.end))
        link._wrote_at = time.monotonic() + 1
        put(store, bytes(1 << 20))
        master.appended()  # much goes at once, as far as the socket takes it
        assert link.position > int(store.log.end) - (1 << 20)
        link.close("the test is over")


@pytest.mark.parametrize("batch", [1_000, 32_768])
async def test_frames_that_go_together_are_whole_however_little_the_slave_takes_at_a_time(stores, batch):
    store = stores.open(commit_log_file_size=1 << 20)
    put(store, b"first")
    config = ReplicationConfig(transfer_batch=batch)
    master = Master(store.log, Slaves(), lambda: config)
    with socket.create_server(("127.0.0.1", 0)) as listener, _connected(listener, master) as slave:
        [link] = master.links
        with socket.fromfd(link._line.fileno(), socket.AF_INET, socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        begin = int(store.log.end)
        slave.sendall(REPORT.pack(begin))
        await _until(lambda: link.acknowledged is not None)
        for number in range(40):  # two files of the log
            put(store, bytes([number]) * 40_000)
            master.appended()
        end = int(store.log.end)
        copied, received = begin, b""
        while copied < end:
            async with asyncio.timeout(5):
                received += await asyncio.get_running_loop().sock_recv(slave, 3_333)
            while len(received) >= FRAME_HEAD.size:
                at, size = FRAME_HEAD.unpack_from(received)
                assert (at, 0 < size <= batch) == (copied, True)
                if len(received) < FRAME_HEAD.size + size:
                    break
                segment = store.log.segment_at(at)
                place = at - segment.start
                data = received[FRAME_HEAD.size : FRAME_HEAD.size + size]
                assert data == bytes(segment.view[place : place + size])
                copied += size
                received = received[FRAME_HEAD.size + size :]
        assert (copied, received) == (end, b"")
        link.close("the test is over")


async def _until(is_so):
    async with asyncio.timeout(5):
        while not is_so():  # noqa: ASYNC110 - links have no events
            await asyncio.sleep(0)


def _connected(listener, master):
    slave = socket.create_connection(listener.getsockname())
    sock, _ = listener.accept()
    sock.setblocking(False)
    master.accepted(sock)
    slave.setblocking(False)
    return slave


async def _is_closed(slave):
    async with asyncio.timeout(5):
        return await asyncio.get_running_loop().sock_recv(slave, 1) == b""


@pytest.mark.limit("haMaxConnections")
async def test_strangers_fill_the_port_of_replication_and_keep_no_slave_away(stores, caplog):
    caplog.set_level(logging.INFO)
    store = stores.open(commit_log_file_size=1 << 20)
    put(store, b"first")
    config = ReplicationConfig(max_connections=3)
    master = Master(store.log, Slaves(), lambda: config)
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as ends:

        def connected():
            return ends.enter_context(_connected(listener, master))

        slave = connected()
        slave.sendall(REPORT.pack(0))
        await _until(lambda: [link.acknowledged for link in master.links] == [0])
        strangers = [connected() for _ in range(4)]
        assert len(master.links) == 3
        assert [await _is_closed(each) for each in strangers[:2]] == [True, True]
        # A slave says at once where its log ends, so it is not taken for a stranger.
        another = connected()
        another.sendall(REPORT.pack(0))
        await _until(lambda: [link.acknowledged for link in master.links] == [0, None, 0])
        third = connected()
        third.sendall(REPORT.pack(0))
        await _until(lambda: [link.acknowledged for link in master.links] == [0, 0, 0])
        # With slaves alone there, nobody makes room.
        assert await _is_closed(connected())
        assert len(master.links) == 3
        master.close()
    full = [record.message for record in caplog.records if "haMaxConnections)" in record.message]
    assert full[0] == "3 connections for replication are open; closing the oldest strangers (haMaxConnections)"
    assert len([line for line in full if line.startswith("3 connections")]) == 1
    assert len([record for record in caplog.records if record.message.endswith("connected for replication")]) == 1


async def test_who_has_yet_to_prove_something_makes_room_too(stores):
    store = stores.open(commit_log_file_size=1 << 20)
    config = ReplicationConfig(max_connections=2, ha_secret="secret")
    protection = LineProtection(lambda: config, TlsConfig())
    master = Master(store.log, Slaves(), lambda: config, protection=protection)
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as ends:
        first, second, third, fourth = (ends.enter_context(_connected(listener, master)) for _ in range(4))
        assert await _is_closed(first)
        assert await _is_closed(second)
        assert len(master._admissions) == 2
        master.close()
        assert await _is_closed(third)
        assert await _is_closed(fourth)
