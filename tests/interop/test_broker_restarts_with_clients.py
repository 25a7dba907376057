"""Our broker stopped, killed and started again, with and without official clients connected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.interop.drivers import PEERS, Driver
from tests.interop.process import PeerFailed, wait_until
from tests.interop.pyromq_up import PyroMQ

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

SOON = 10.0
# The Java client 4.9.8 and the Go client wait for answers to the pulls that the dead broker held, until their own time
# limit of 30 s; a new broker also refuses pulls of a group until its next heartbeat.
HEALED = 40.0


@pytest.fixture(scope="module")
def up(java_packages: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PyroMQ]:
    with PyroMQ(tmp_path_factory.mktemp("up"), flushConsumerOffsetInterval=1000) as running:
        yield running


@pytest.mark.parametrize("peer", PEERS)
def test_a_group_goes_on_where_it_was_after_a_restart(up: PyroMQ, tmp_path: Path, peer: str) -> None:
    topic = f"kept-{peer}".replace(".", "_")
    up.create_topic(topic)
    with Driver(peer, tmp_path / "before", up.namesrv) as client:
        for n in range(8):
            client.send(topic=topic, body=f"before-{n}")
        client.do("push", name="one", group=f"g-{topic}", topic=topic)
        client.wait_for_bodies("one", {f"before-{n}" for n in range(8)}, SOON)
        client.do("leave", name="one")
        for n in range(4):
            client.send(topic=topic, body=f"meanwhile-{n}")
    up.restart()
    with Driver(peer, tmp_path / "after", up.namesrv) as client:
        for n in range(4):
            client.send(topic=topic, body=f"after-{n}")
        client.do("push", name="two", group=f"g-{topic}", topic=topic)
        client.wait_for_bodies("two", {f"{when}-{n}" for when in ("meanwhile", "after") for n in range(4)}, SOON)
        assert len(client.bodies("two")) == 8, "nothing from before the restart comes again"


@pytest.mark.parametrize("peer", PEERS)
def test_connected_clients_go_on_after_a_crash(up: PyroMQ, tmp_path: Path, peer: str) -> None:
    topic = f"healed-{peer}".replace(".", "_")
    up.create_topic(topic)
    with Driver(peer, tmp_path, up.namesrv) as client:
        client.send(topic=topic, body="before")
        client.do("push", name="one", group=f"g-{topic}", topic=topic)
        client.wait_for_bodies("one", {"before"}, SOON)
        up.restart(kill=True)

        def sent() -> bool:
            try:
                return client.send(topic=topic, body="after")[0].status == "SEND_OK"
            except PeerFailed:
                return False

        wait_until(sent, HEALED, f"{peer} sends again")
        client.wait_for_bodies("one", {"after"}, HEALED)
