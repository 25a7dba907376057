"""Official clients and the official mqadmin of 5.5.0 with users and policies of our broker (docs/spec/admin.md 5.2)."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, NamedTuple

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
ROOT = ("root", "r00t-s3cret")
WRITER = ("writer", "wr1ter-s3cret")
READER = ("reader", "r3ader-s3cret")
ON = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": f'{{"username":"{ROOT[0]}","password":"{ROOT[1]}"}}',
    "transactionCheckInterval": 300,
    "transactionTimeOut": 500,
    "traceTopicEnable": "true",
}
TRACES = "RMQ_SYS_TRACE_TOPIC"


class Guarded(NamedTuple):
    """A broker with users, the official mqadmin as its super user, and what that said when it made the others."""

    broker: PyroMQ
    mqadmin: Admin
    said: str


def tools(home: Path, namesrv: str, user: tuple[str, str]) -> Admin:
    """The official mqadmin, which signs by tools.yml."""
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "tools.yml").write_text(f"accessKey: {user[0]}\nsecretKey: {user[1]}\n")
    return Admin("5.5.0", home, namesrv)


@pytest.fixture(scope="module")
def cluster(java_packages: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    home = tmp_path_factory.mktemp("users")
    with (
        NameServer(OURS, home / "namesrv") as namesrv,
        PyroMQ(home / "broker", namesrv=namesrv.address, brokerName="broker-a", **ON) as up,
    ):
        with Client(namesrv.address, credentials=Credentials(*ROOT)) as client, AdminClient(client=client) as admin:
            for topic in ("orders", "secrets", "retried", "popped"):
                admin.topics.create(topic, read_queues=4, write_queues=4)
            admin.groups.create("poppers")
            for topic in ("popped", "secrets"):
                admin.groups.set_request_mode("poppers", topic, MessageRequestMode.POP)
        mqadmin = tools(home / "mqadmin", namesrv.address, ROOT)
        said = mqadmin.run(
            f"createUser -b {up.address} -u {WRITER[0]} -p {WRITER[1]} -t Normal",
            f"createUser -b {up.address} -u {READER[0]} -p {READER[1]}",
        )
        said += mqadmin.run(
            f"createAcl -b {up.address} -s User:{WRITER[0]} -r Topic:ord* -a Pub -d Allow",
            f"createAcl -b {up.address} -s User:reader -r Topic:orders,Group:readers -a Sub -i 127.0.0.0/8 -d Allow",
        )
        mqadmin.run(f"createAcl -b {up.address} -s User:reader -r Topic:retried,Topic:popped -a Pub,Sub -d Allow")
        mqadmin.run(f"createAcl -b {up.address} -s User:reader -r Group:retr*,Group:poppers -a Sub -d Allow")
        yield Guarded(up, mqadmin, "\n".join(said))


def test_mqadmin_makes_users_and_shows_them(cluster: Guarded) -> None:
    at = cluster.broker.address
    assert cluster.said.count(f"create user to {at} success.") == 2
    assert cluster.said.count(f"create acl to {at} success.") == 2
    users, acls, one = cluster.mqadmin.run(f"listUser -b {at}", f"listAcl -b {at}", f"getAcl -b {at} -s User:writer")
    rows = [line.split() for line in users.splitlines() if line.strip()]
    assert ["#UserName", "#Password", "#UserType", "#UserStatus"] in rows
    assert [WRITER[0], WRITER[1], "Normal", "enable"] in rows
    assert [ROOT[0], ROOT[1], "Super", "enable"] in rows
    assert ["User:writer", "Custom", "Topic:ord*", "[Pub]", "null", "Allow"] in [
        line.split() for line in one.splitlines()
    ]
    assert ["User:reader", "Custom", "Group:readers", "[Sub]", "[127.0.0.0/8]", "Allow"] in [
        line.split() for line in acls.splitlines()
    ]


def test_mqadmin_changes_and_deletes(cluster: Guarded, tmp_path: Path) -> None:
    at, run = cluster.broker.address, cluster.mqadmin.run
    run(f"createUser -b {at} -u passing -p s3cret-one")
    [twice] = run(f"createUser -b {at} -u passing -p s3cret-one")
    assert "CODE: 16" in twice
    assert "The user is existed" in twice
    [updated] = run(f"updateUser -b {at} -u passing -s disable")
    assert "update user to" in updated
    [user] = run(f"getUser -b {at} -u passing")
    assert "disable" in user
    refused, wrong = (
        tools(tmp_path / "a", cluster.broker.namesrv, ("passing", "s3cret-one")),
        tools(tmp_path / "b", cluster.broker.namesrv, (ROOT[0], "wrong-s3cret")),
    )
    assert "User:passing is disabled." in refused.run(f"listUser -b {at}")[0]
    assert "check signature failed." in wrong.run(f"listUser -b {at}")[0]
    run(f"updateUser -b {at} -u passing -s enable")
    [denied] = refused.run(f"listUser -b {at}")
    assert "User:passing has no permission to access Cluster:" in denied
    run(f"createAcl -b {at} -s User:passing -r Topic:a,Topic:b -a All -d Deny")
    run(f"updateAcl -b {at} -s User:passing -r Topic:a -a Get -d Allow")
    run(f"deleteAcl -b {at} -s User:passing -r Topic:b")
    [acl] = run(f"getAcl -b {at} -s User:passing")
    assert [line.split()[2:4] for line in acl.splitlines() if line.startswith("User:")] == [["Topic:a", "[Get]"]]
    [gone] = run(f"deleteUser -b {at} -u passing")
    assert f"delete user to {at} success." in gone


def driver(peer: str, home: Path, cluster: Guarded, user: tuple[str, str] | None) -> Driver:
    return Driver(peer, home, cluster.broker.namesrv, account=user)


def refused(peer: str, reason: str) -> str:
    """What a client tells its user; Node's does not tell why."""
    return "still failed" if peer.startswith("node") else reason


@pytest.mark.parametrize("peer", PEERS)
def test_policies_allow_and_deny(peer: str, tmp_path: Path, cluster: Guarded) -> None:
    with (
        driver(peer, tmp_path / "writer", cluster, WRITER) as writer,
        driver(peer, tmp_path / "reader", cluster, READER) as reader,
    ):
        [sent] = writer.send(topic="orders", body=f"from-{peer}")
        assert sent.status == "SEND_OK"
        reason = refused(peer, "User:writer has no permission to access Topic:secrets from 127.0.0.1")
        with pytest.raises(PeerFailed, match=reason):
            writer.send(topic="secrets", body="x")
        reader.do("push", name="allowed", group="readers", topic="orders")
        reader.wait_for_bodies("allowed", {f"from-{peer}"}, SOON)
        reader.do("leave", name="allowed")
        with pytest.raises(PeerFailed, match=refused(peer, "Topic:orders from 127.0.0.1, no matched policies")):
            reader.send(topic="orders", body="x")


@pytest.mark.parametrize("peer", JAVA_AND_GO)
def test_batches_and_half_messages_need_the_right_to_publish(peer: str, tmp_path: Path, cluster: Guarded) -> None:
    payers = f"payers-{peer.replace('.', '')}"
    with driver(peer, tmp_path, cluster, WRITER) as client:
        [sent] = client.send("batch", topic="orders", count=3)
        assert sent.status == "SEND_OK"
        with pytest.raises(PeerFailed, match=refused(peer, "Topic:secrets")):
            client.send("batch", topic="secrets", count=3)
        [sent] = client.send("transaction", group=payers, topic="orders", body="paid", state="COMMIT_MESSAGE")
        assert sent.status == "SEND_OK"
        # The client of Java hides the reason behind two others.
        with pytest.raises(PeerFailed, match=r"still failed|Topic:secrets"):
            client.send("transaction", group=payers, topic="secrets", body="x", state="COMMIT_MESSAGE")


@pytest.mark.parametrize("peer", PEERS)
def test_strangers_get_nothing(peer: str, tmp_path: Path, cluster: Guarded) -> None:
    for number, (user, reason) in enumerate(
        (
            (None, "username cannot be null"),
            ((WRITER[0], "wrong-s3cret"), "check signature failed"),
            (("nobody", WRITER[1]), "User:nobody is not found"),
        )
    ):
        with (
            driver(peer, tmp_path / str(number), cluster, user) as client,
            pytest.raises(PeerFailed, match=refused(peer, reason)),
        ):
            client.send(topic="orders", body="x")


def wait_until_refused(cluster: Guarded, code: str, user: str, resource: str) -> None:
    """A consumer that is refused tries again for ever and tells nobody but its log; the broker tells who it was."""
    line = re.compile(rf"refused request {code} of '{user}' from 127\.0\.0\.1: User:{user} .* access {resource} ")
    wait_until(lambda: line.search(cluster.broker.process.output) is not None, SOON, line.pattern)


@pytest.mark.parametrize("peer", PEERS)
def test_a_group_gets_back_what_it_failed_on(peer: str, tmp_path: Path, cluster: Guarded) -> None:
    with driver(peer, tmp_path, cluster, READER) as client:
        client.do("push", name="failing", group=f"retriers-{peer.replace('.', '')}", topic="retried", fail=1)
        client.send(topic="retried", body=f"again-{peer}")
        wait_until(lambda: client.bodies("failing").count(f"again-{peer}") == 2, 3 * SOON, "it comes again")


@pytest.mark.parametrize("peer", JAVA)
def test_pulls_need_the_right_to_subscribe(peer: str, tmp_path: Path, cluster: Guarded) -> None:
    with (
        driver(peer, tmp_path / "writer", cluster, WRITER) as writer,
        driver(peer, tmp_path / "reader", cluster, READER) as reader,
    ):
        places = [writer.send(topic="orders", body=f"pulled-{peer}")[0] for _ in range(8)]
        place = next(sent for sent in places if sent.queue == 0)
        reader.do("lite", name="allowed", group="readers", topic="orders", queue=0, count=1, offset=place.offset)
        assert reader.bodies("allowed") == [f"pulled-{peer}"]
        with contextlib.suppress(PeerFailed):  # it may not commit either
            reader.do("lite", name="denied", group="readers", topic="secrets", queue=0, count=1, seconds=3)
        wait_until_refused(cluster, "14", READER[0], "Topic:secrets")
        assert reader.bodies("denied") == []


def test_pops_need_the_right_to_subscribe(tmp_path: Path, cluster: Guarded) -> None:
    with driver("java-5.5.0", tmp_path, cluster, READER) as reader:
        reader.do("push", name="allowed", group="poppers", topic="popped", pop=10_000)
        reader.send(topic="popped", body="popped")
        reader.wait_for_bodies("allowed", {"popped"}, SOON)
        reader.do("leave", name="allowed")
        reader.do("push", name="denied", group="poppers", topic="secrets", pop=10_000)
        wait_until_refused(cluster, "400", READER[0], "Topic:secrets")
        assert reader.bodies("denied") == []


@pytest.mark.parametrize("peer", JAVA_AND_GO)
def test_producers_are_asked_about_their_transactions(peer: str, tmp_path: Path, cluster: Guarded) -> None:
    with (
        driver(peer, tmp_path / "writer", cluster, WRITER) as writer,
        driver(peer, tmp_path / "reader", cluster, READER) as reader,
    ):
        group = f"askers-{peer.replace('.', '')}"
        writer.send(
            "transaction", group=group, topic="orders", body=f"asked-{peer}", state="UNKNOW", check="COMMIT_MESSAGE"
        )
        reader.do("push", name="allowed", group="readers", topic="orders")
        reader.wait_for_bodies("allowed", {f"asked-{peer}"}, SOON)


@pytest.mark.parametrize("peer", JAVA)
def test_traces_need_the_right_to_publish(peer: str, tmp_path: Path, cluster: Guarded) -> None:
    with driver(peer, tmp_path, cluster, WRITER) as writer, driver(peer, tmp_path / "root", cluster, ROOT) as root:
        # Messages are sent all the same.
        assert writer.send(topic="orders", body="traced", trace=1)[0].status == "SEND_OK"
        wait_until_refused(cluster, "310", WRITER[0], f"Topic:{TRACES}")
        [sent] = root.send(topic="orders", body="traced", trace=1)
        root.do("push", name="traces", group="tracers", topic=TRACES)
        wait_until(lambda: any(sent.message_id in body for body in root.bodies("traces")), SOON, "it is traced")
