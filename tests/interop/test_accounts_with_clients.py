"""Official clients with accounts: each right allowed and denied, wrong secrets, strangers (docs/spec/admin.md 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.interop.drivers import PEERS, Driver
from tests.interop.peers import OURS, NameServer
from tests.interop.process import PeerFailed, wait_until
from tests.interop.pyromq_up import PyroMQ

from pyromq.client.identity import Credentials
from pyromq.sync import AdminClient, Client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

JAVA = [peer for peer in PEERS if peer.startswith("java")]
JAVA_AND_GO = [peer for peer in PEERS if not peer.startswith("node")]
SOON = 30.0
ADMIN = ("administrator", "adm1n-s3cret")
WRITER = ("writer-one", "wr1ter-s3cret")
READER = ("reader-one", "r3ader-s3cret")
ACCOUNTS = f"""
accounts:
- accessKey: {ADMIN[0]}
  secretKey: {ADMIN[1]}
  admin: true
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: PUB|SUB
- accessKey: {WRITER[0]}
  secretKey: {WRITER[1]}
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [orders=PUB, readers-only=SUB]
- accessKey: {READER[0]}
  secretKey: {READER[1]}
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [orders=SUB, retried=PUB|SUB, secrets=SUB]
  groupPerms: [readers=SUB, retriers=SUB]
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PyroMQ]:
    home = tmp_path_factory.mktemp("accounts")
    accounts = home / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    settings = {
        "aclEnable": "true",
        "rocketmq.acl.plain.file": accounts,
        "innerClientAuthenticationCredentials": f'{{"accessKey":"{ADMIN[0]}","secretKey":"{ADMIN[1]}"}}',
    }
    with (
        NameServer(OURS, home / "namesrv") as namesrv,
        PyroMQ(home / "broker", namesrv=namesrv.address, brokerName="broker-a", **settings) as up,
    ):
        with (
            Client(namesrv.address, credentials=Credentials(*ADMIN)) as client,
            AdminClient(client=client) as admin,
        ):
            for topic in ("orders", "secrets", "retried", "readers-only"):
                admin.topics.create(topic, read_queues=4, write_queues=4)
        yield up


def refused(peer: str, reason: str) -> str:
    """What a client tells its user; Node's does not tell why."""
    return "still failed" if peer.startswith("node") else reason


def driver(peer: str, home: Path, cluster: PyroMQ, account: tuple[str, str] | None) -> Driver:
    return Driver(peer, home, cluster.namesrv, account=account)


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.scenario("admin 43")
def test_who_may_publish_may_send_and_nothing_else(peer: str, tmp_path: Path, cluster: PyroMQ) -> None:
    with driver(peer, tmp_path, cluster, WRITER) as client:
        [sent] = client.send(topic="orders", body=f"from-{peer}")
        assert sent.status == "SEND_OK"
        for topic in ("secrets", "readers-only"):
            with pytest.raises(PeerFailed, match=refused(peer, f"No default permission for topic:{topic}")):
                client.send(topic=topic, body="x")


@pytest.mark.parametrize("peer", JAVA_AND_GO)
@pytest.mark.scenario("admin 43")
def test_batches_need_the_right_to_publish_too(peer: str, tmp_path: Path, cluster: PyroMQ) -> None:
    """RocketMQ 4.x lets every account send them."""
    with driver(peer, tmp_path, cluster, WRITER) as client:
        [sent] = client.send("batch", topic="orders", count=3)
        assert sent.status == "SEND_OK"
        with pytest.raises(PeerFailed, match=refused(peer, "No default permission for topic:secrets")):
            client.send("batch", topic="secrets", count=3)


@pytest.mark.parametrize("peer", JAVA_AND_GO)
def test_half_messages_need_the_right_to_publish(peer: str, tmp_path: Path, cluster: PyroMQ) -> None:
    with driver(peer, tmp_path, cluster, WRITER) as client:
        [sent] = client.send(
            "transaction", group=f"payers-{peer.replace('.', '')}", topic="orders", body="paid", state="COMMIT_MESSAGE"
        )
        assert sent.status == "SEND_OK"
        with pytest.raises(PeerFailed, match=refused(peer, "No default permission for topic:secrets")):
            client.send(
                "transaction",
                group=f"payers-{peer.replace('.', '')}",
                topic="secrets",
                body="x",
                state="COMMIT_MESSAGE",
            )


@pytest.mark.parametrize("peer", PEERS)
def test_who_may_subscribe_gets_messages(peer: str, tmp_path: Path, cluster: PyroMQ) -> None:
    with (
        driver(peer, tmp_path / "writer", cluster, WRITER) as writer,
        driver(peer, tmp_path / "reader", cluster, READER) as reader,
    ):
        writer.send(topic="orders", body=f"read-{peer}")
        reader.do("push", name="allowed", group="readers", topic="orders")
        reader.wait_for_bodies("allowed", {f"read-{peer}"}, SOON)
        reader.do("leave", name="allowed")
        # Their own group, but no right to publish.
        with pytest.raises(PeerFailed, match=refused(peer, "No default permission for topic:orders")):
            reader.send(topic="orders", body="x")


@pytest.mark.parametrize("peer", JAVA)
@pytest.mark.scenario("admin 43")
def test_who_may_not_subscribe_gets_nothing(peer: str, tmp_path: Path, cluster: PyroMQ) -> None:
    """A lite pull tells its user; a push consumer tries again for ever, and logs."""
    with driver(peer, tmp_path, cluster, WRITER) as client:
        client.send(topic="orders", body="not-for-writers")
        client.do("push", name="denied", group="writers", topic="orders")
        assert client.bodies("denied") == []
    with driver(peer, tmp_path / "lite", cluster, READER) as client:
        client.do("lite", name="allowed", group="readers", topic="orders", queue=0, count=0)


@pytest.mark.parametrize("peer", JAVA)
def test_a_group_gets_back_what_it_failed_on(peer: str, tmp_path: Path, cluster: PyroMQ) -> None:
    """The right to subscribe as a group is that to send its messages back."""
    with driver(peer, tmp_path, cluster, READER) as client:
        client.do("push", name="failing", group="retriers", topic="retried", fail=1)
        client.send(topic="retried", body=f"again-{peer}")
        client.wait_for_bodies("failing", {f"again-{peer}"}, SOON)
        wait_until(lambda: client.bodies("failing").count(f"again-{peer}") == 2, 2 * SOON, "it comes again")


@pytest.mark.parametrize("peer", PEERS)
def test_strangers_get_nothing(peer: str, tmp_path: Path, cluster: PyroMQ) -> None:
    for number, (account, reason) in enumerate(
        (
            (None, "No accessKey is configured"),
            ((WRITER[0], "wrong-s3cret"), f"Check signature failed for accessKey={WRITER[0]}"),
            (("nobody-knows", WRITER[1]), "No acl config for nobody-knows"),
        )
    ):
        with (
            driver(peer, tmp_path / str(number), cluster, account) as client,
            pytest.raises(PeerFailed, match=refused(peer, reason)),
        ):
            client.send(topic="orders", body="x")


@pytest.mark.parametrize("peer", JAVA)
def test_traces_need_no_right(peer: str, tmp_path: Path, cluster: PyroMQ) -> None:
    with driver(peer, tmp_path, cluster, WRITER) as client:
        [sent] = client.send(topic="orders", body="traced", trace=1)
        assert sent.status == "SEND_OK"
