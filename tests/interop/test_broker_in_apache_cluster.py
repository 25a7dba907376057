"""Our broker under Apache's name server, beside Apache's broker in one cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.interop import wire
from tests.interop.apache import CLUSTER, Admin, Broker
from tests.interop.conftest import REGISTERED_WITHIN
from tests.interop.drivers import Driver
from tests.interop.peers import NameServer
from tests.interop.process import wait_until
from tests.interop.pyromq_up import PyroMQ

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

OURS, THEIRS = "broker-ours", "broker-5.5.0"
SOON = 15.0


@pytest.fixture(scope="module")
def namesrv(java_packages: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    """Apache's name server with two brokers: ours and Apache's."""
    home = tmp_path_factory.mktemp("apache")
    with NameServer("apache-5.5.0", home / "namesrv") as namesrv:
        theirs = Broker("5.5.0", home, namesrv.address)
        ours = PyroMQ(home / "ours", namesrv=namesrv.address, brokerClusterName=CLUSTER, brokerName=OURS)
        with theirs.process, ours:
            theirs.wait_until_booted()
            known = {OURS: {"0": ours.address}, THEIRS: {"0": theirs.address}}
            wait_until(lambda: wire.brokers(namesrv.address) == known, REGISTERED_WITHIN, f"it knows {known}")
            wait_until(lambda: wire.route(namesrv.address, "TBW102").keys() == known.keys(), SOON, "both make topics")
            yield namesrv


@pytest.mark.parametrize("peer", ["java-5.5.0", "java-4.9.8", "go-2.1.2"])
def test_messages_go_over_both_brokers(namesrv: NameServer, tmp_path: Path, peer: str) -> None:
    topic = f"both-{peer}".replace(".", "_")
    with Driver(peer, tmp_path, namesrv.address) as client:
        sent = [client.send(topic=topic, body=f"m-{n}")[0] for n in range(32)]
        assert {each.broker for each in sent} == {OURS, THEIRS}
        wait_until(lambda: wire.route(namesrv.address, topic).keys() == {OURS, THEIRS}, SOON, "both have the topic")
        client.do("push", name="one", group=f"g-{topic}", topic=topic)
        client.wait_for_bodies("one", {f"m-{n}" for n in range(32)}, 40)


def test_mqadmin_treats_both_alike(namesrv: NameServer, tmp_path: Path) -> None:
    admin = Admin("5.5.0", tmp_path, namesrv.address)
    [made] = admin.run(f"updateTopic -c {CLUSTER} -t by-admin -r 4 -w 4")
    assert made.count("success") == 2, made
    listing, status = admin.run("clusterList", "topicStatus -t by-admin")
    for broker in (OURS, THEIRS):
        assert f" {broker} " in listing
        assert status.count(f"{broker} ") == 4, status
    [deleted] = admin.run(f"deleteTopic -c {CLUSTER} -t by-admin")
    assert f"delete topic [by-admin] from cluster [{CLUSTER}] success" in deleted
    assert wire.route(namesrv.address, "by-admin") == {}
