"""Official clients with accounts: each right allowed and denied, wrong secrets, strangers (docs/spec/admin.md 5)."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import pytest
from tests.interop.apache import Admin
from tests.interop.drivers import PEERS, Driver
from tests.interop.peers import OURS, NameServer
from tests.interop.process import PeerFailed, wait_until
from tests.interop.pyromq_up import PyroMQ

from pyromq.client.identity import Credentials
from pyromq.protocol.bodies import MessageRequestMode
from pyromq.sync import AdminClient, Client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

JAVA = [peer for peer in PEERS if peer.startswith("java")]
JAVA_AND_GO = [peer for peer in PEERS if not peer.startswith("node")]
SOON = 30.0
TRACES = "RMQ_SYS_TRACE_TOPIC"
SHORT = {peer: peer.replace(".", "") for peer in PEERS}
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
  topicPerms: [orders=SUB, retried=PUB|SUB, secrets=SUB, popped=PUB|SUB]
  groupPerms: [readers=SUB, {", ".join(f"retriers-{each}=SUB" for each in SHORT.values())}, poppers=SUB]
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
        "transactionCheckInterval": 300,
        "transactionTimeOut": 500,
        "traceTopicEnable": "true",
    }
    with (
        NameServer(OURS, home / "namesrv") as namesrv,
        PyroMQ(home / "broker", namesrv=namesrv.address, brokerName="broker-a", **settings) as up,
    ):
        with (
            Client(namesrv.address, credentials=Credentials(*ADMIN)) as client,
            AdminClient(client=client) as admin,
        ):
            closed = [f"closed-{way}-{each}" for each in SHORT.values() for way in ("push", "broadcast", "lite", "pop")]
            for topic in ("orders", "secrets", "retried", "readers-only", "popped", *closed):
                admin.topics.create(topic, read_queues=4, write_queues=4)
            admin.groups.create("poppers")
            for topic in ("popped", "closed-pop-java-550"):
                admin.groups.set_request_mode("poppers", topic, MessageRequestMode.POP)
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


def wait_until_refused(cluster: PyroMQ, code: str, account: str, why: str) -> None:
    """A consumer that is refused tries again for ever and tells nobody but its log; the broker tells who it was."""
    line = re.compile(rf"refused request (?:{code}) of '{account}' from 127\.0\.0\.1: {why}")
    wait_until(lambda: line.search(cluster.process.output) is not None, SOON, line.pattern)


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("way", ["push", "broadcast"])
@pytest.mark.scenario("admin 43")
def test_who_may_not_subscribe_gets_nothing(way: str, peer: str, tmp_path: Path, cluster: PyroMQ) -> None:
    """Members of a group ask for its other members before they pull; those who all get everything pull at once."""
    topic = f"closed-{way}-{SHORT[peer]}"
    with driver(peer, tmp_path / "admin", cluster, ADMIN) as admin, driver(peer, tmp_path, cluster, READER) as reader:
        for number in range(8):
            admin.send(topic=topic, body=f"closed-{number}")
        options = {"broadcast": 1} if way == "broadcast" else {}
        # Node's does not start if it cannot find itself in its group.
        with contextlib.suppress(PeerFailed) if peer.startswith("node") else contextlib.nullcontext():
            reader.do("push", name="denied", group="readers", topic=topic, **options)
        code = "34" if way == "push" or peer.startswith("node") else "11"
        wait_until_refused(cluster, code, READER[0], f"No default permission for topic:{topic}")
        assert reader.bodies("denied") == []


@pytest.mark.parametrize("peer", JAVA)
def test_who_may_not_subscribe_pulls_nothing(peer: str, tmp_path: Path, cluster: PyroMQ) -> None:
    topic = f"closed-lite-{SHORT[peer]}"
    with driver(peer, tmp_path / "admin", cluster, ADMIN) as admin, driver(peer, tmp_path, cluster, READER) as reader:
        for _ in range(8):
            admin.send(topic=topic, body="closed")
        with contextlib.suppress(PeerFailed):  # it may not commit either
            reader.do("lite", name="denied", group="readers", topic=topic, queue=0, count=1, seconds=3)
        # It asks where to begin, and does not get any further.
        wait_until_refused(cluster, "14", READER[0], f"No default permission for topic:{topic}")
        assert reader.bodies("denied") == []


@pytest.mark.parametrize("peer", JAVA)
def test_who_may_subscribe_pulls(peer: str, tmp_path: Path, cluster: PyroMQ) -> None:
    with (
        driver(peer, tmp_path / "writer", cluster, WRITER) as writer,
        driver(peer, tmp_path / "reader", cluster, READER) as reader,
    ):
        places = [writer.send(topic="orders", body=f"pulled-{peer}")[0] for _ in range(8)]
        place = next(sent for sent in places if sent.queue == 0)
        reader.do("lite", name="allowed", group="readers", topic="orders", queue=0, count=1, offset=place.offset)
        assert reader.bodies("allowed") == [f"pulled-{peer}"]


def test_pops_need_the_right_to_subscribe(tmp_path: Path, cluster: PyroMQ) -> None:
    peer = "java-5.5.0"
    with driver(peer, tmp_path / "admin", cluster, ADMIN) as admin, driver(peer, tmp_path, cluster, READER) as reader:
        reader.do("push", name="allowed", group="poppers", topic="popped", pop=10_000)
        reader.send(topic="popped", body="popped")
        reader.wait_for_bodies("allowed", {"popped"}, SOON)
        assert "refused request 2000" not in cluster.process.output
        reader.do("leave", name="allowed")
        admin.send(topic="closed-pop-java-550", body="closed")
        reader.do("push", name="denied", group="poppers", topic="closed-pop-java-550", pop=10_000)
        wait_until_refused(cluster, "400", READER[0], "No default permission for topic:closed-pop-java-550")
        assert reader.bodies("denied") == []


@pytest.mark.parametrize("peer", PEERS)
def test_a_group_gets_back_what_it_failed_on(peer: str, tmp_path: Path, cluster: PyroMQ) -> None:
    """The right to subscribe as a group is that to send its messages back."""
    with driver(peer, tmp_path, cluster, READER) as client:
        client.do("push", name="failing", group=f"retriers-{SHORT[peer]}", topic="retried", fail=1)
        client.send(topic="retried", body=f"again-{peer}")
        client.wait_for_bodies("failing", {f"again-{peer}"}, SOON)
        wait_until(lambda: client.bodies("failing").count(f"again-{peer}") == 2, 2 * SOON, "it comes again")


@pytest.mark.parametrize("peer", JAVA_AND_GO)
def test_producers_are_asked_about_their_transactions(peer: str, tmp_path: Path, cluster: PyroMQ) -> None:
    with (
        driver(peer, tmp_path / "writer", cluster, WRITER) as writer,
        driver(peer, tmp_path / "reader", cluster, READER) as reader,
    ):
        group = f"askers-{SHORT[peer]}"
        writer.send(
            "transaction", group=group, topic="orders", body=f"asked-{peer}", state="UNKNOW", check="COMMIT_MESSAGE"
        )
        reader.do("push", name="allowed", group="readers", topic="orders")
        reader.wait_for_bodies("allowed", {f"asked-{peer}"}, SOON)


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
def test_traces_need_no_right_and_are_read_by_those_who_have_one(peer: str, tmp_path: Path, cluster: PyroMQ) -> None:
    with (
        driver(peer, tmp_path / "writer", cluster, WRITER) as writer,
        driver(peer, tmp_path / "admin", cluster, ADMIN) as admin,
        driver(peer, tmp_path / "reader", cluster, READER) as reader,
    ):
        [sent] = writer.send(topic="orders", body="traced", trace=1)
        assert sent.status == "SEND_OK"
        admin.do("push", name="allowed", group=f"tracers-{SHORT[peer]}", topic=TRACES)
        wait_until(lambda: any(sent.message_id in body for body in admin.bodies("allowed")), SOON, "it is traced")
        reader.do("push", name="denied", group="readers", topic=TRACES)
        wait_until_refused(cluster, "34", READER[0], f"No default permission for topic:{TRACES}")
        assert reader.bodies("denied") == []


# mqadmin


def tools(home: Path, cluster: PyroMQ, account: tuple[str, str] | None) -> Admin:
    """The official mqadmin of 4.9, which signs by tools.yml."""
    (home / "conf").mkdir(parents=True)
    if account is not None:
        (home / "conf" / "tools.yml").write_text(f"accessKey: {account[0]}\nsecretKey: {account[1]}\n")
    return Admin("4.9.7", home, cluster.namesrv)


def test_mqadmin_changes_accounts(java_packages: None, tmp_path: Path, cluster: PyroMQ) -> None:
    at, run = cluster.address, tools(tmp_path, cluster, ADMIN).run
    [made] = run(
        f"updateAclConfig -b {at} -a passing-by -s passing-s3cret -t orders=PUB -g readers=SUB -i DENY -u DENY"
    )
    assert f"create or update plain access config to {at} success." in made
    with driver("java-4.9.8", tmp_path / "passing", cluster, ("passing-by", "passing-s3cret")) as client:
        assert client.send(topic="orders", body="passing")[0].status == "SEND_OK"
        with pytest.raises(PeerFailed, match="No default permission for topic:secrets"):
            client.send(topic="secrets", body="x")
        version, accounts = run(f"clusterAclConfigVersion -b {at}", f"getAclConfig -b {at}")
        assert re.search(rf"broker-a\s+{at}", version), version
        assert "passing-by" in accounts
        assert "s3cret" not in accounts
        [changed] = run(f"updateAclConfig -b {at} -a passing-by -s passing-s3cret -t orders=SUB,secrets=PUB")
        assert "success" in changed
        assert client.send(topic="secrets", body="now")[0].status == "SEND_OK"
        with pytest.raises(PeerFailed, match="No default permission for topic:orders"):
            client.send(topic="orders", body="x")
        [deleted] = run(f"deleteAclConfig -b {at} -a passing-by")
        assert f"delete plain access config account from {at} success." in deleted
        with pytest.raises(PeerFailed, match="No acl config for passing-by"):
            client.send(topic="secrets", body="x")
    [white] = run(f"updateGlobalWhiteAddr -b {at} -g 10.1.2.3,10.1.3.*")
    assert f"update global white remote addresses to {at} success." in white
    [white] = run(f"updateGlobalWhiteAddr -b {at} -g 10.1.2.3")
    assert "success" in white


def test_mqadmin_does_what_its_account_may(java_packages: None, tmp_path: Path, cluster: PyroMQ) -> None:
    at = cluster.address
    refused_accounts = {
        "reader": (READER, f"Need admin permission for request code={{code}}, but accessKey={READER[0]} is not"),
        "wrong": ((ADMIN[0], "wrong-s3cret"), f"Check signature failed for accessKey={ADMIN[0]}"),
        "nobody": (None, "No accessKey is configured"),
    }
    commands = {
        17: f"updateTopic -b {at} -t by-mqadmin",
        200: f"updateSubGroup -b {at} -g by-mqadmin",
        25: f"updateBrokerConfig -b {at} -k traceOn -v true",
        50: f"updateAclConfig -b {at} -a created-1 -s s3cret-1",
        51: f"deleteAclConfig -b {at} -a {WRITER[0]}",
        53: f"updateGlobalWhiteAddr -b {at} -g *",
        54: f"getAclConfig -b {at}",
    }
    [made] = tools(tmp_path / "admin", cluster, ADMIN).run(commands[17])
    assert f"create topic to {at} success." in made
    for who, (account, why) in refused_accounts.items():
        mqadmin = tools(tmp_path / who, cluster, account)
        for code, command in commands.items() if who == "reader" else [(17, commands[17]), (50, commands[50])]:
            [said] = mqadmin.run(command)
            assert "CODE: 16" in said, said
            assert why.format(code=code) in said, said
    with driver("java-4.9.8", tmp_path / "writer", cluster, WRITER) as writer:
        assert writer.send(topic="orders", body="still-there")[0].status == "SEND_OK"
