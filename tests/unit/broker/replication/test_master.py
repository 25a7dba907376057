"""The master's side of plain replication, over real sockets and without a broker."""

from __future__ import annotations

import asyncio
import socket

import pytest
from tests.unit.store.kit import Stores, put

from pyromq.broker.replication.config import ReplicationConfig
from pyromq.broker.replication.master import Master
from pyromq.broker.replication.slaves import Slaves
from pyromq.protocol.replication import REPORT


@pytest.fixture
def stores(tmp_path):
    stores = Stores(tmp_path)
    yield stores
    stores.finish()


async def test_slaves_that_are_gone_do_not_hurt_whoever_stores_a_message(stores):
    """A send was never answered: the first slave found gone ended the loop over all of them."""
    store = stores.open()
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
    for _ in range(5):
        put(store, b"more")
        master.appended()
    assert not master.links
