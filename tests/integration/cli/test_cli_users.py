"""Users and policies from the command line, in both dialects, against a broker that asks for them."""

from __future__ import annotations

import asyncio
import io
import itertools

import pytest

from pyromq.client import Client, Credentials, Producer
from pyromq.errors import SendFailed
from pyromq.testing import running_cluster

pytestmark = pytest.mark.slow

ROOT, SECRET = "root", "root-secret"
ON = (
    "authenticationEnabled=true",
    "authorizationEnabled=true",
    f'initAuthenticationUser={{"username":"{ROOT}","password":"{SECRET}"}}',
)
ACL_COLUMNS = {
    "#Subject": 16,
    "#PolicyType": 10,
    "#Resource": 22,
    "#Actions": 20,
    "#SourceIp": 24,
    "#Decision": 10,
}
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def cluster():
    with running_cluster(None, *ON) as running:
        yield running


@pytest.fixture(autouse=True)
def as_root(own_home, monkeypatch):
    monkeypatch.setenv("PYROMQ_ACCESS_KEY", ROOT)
    monkeypatch.setenv("PYROMQ_SECRET_KEY", SECRET)


@pytest.fixture
def name():
    return f"user-{next(_NUMBERS)}"


@pytest.fixture
def mqadmin(pyromq):
    return lambda line: pyromq("mqadmin", *line.split())


def typed(monkeypatch, text):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def send(cluster, name, secret, topic):
    async def work():
        credentials = Credentials(name, secret)
        async with Client(cluster.namesrv, credentials=credentials) as client, Producer("makers", client=client) as own:
            await own.send(topic, b"hello")

    asyncio.run(work())


def test_a_user_from_its_first_day_to_its_last(pyromq, name, monkeypatch, cluster):
    typed(monkeypatch, "a secret of stdin\n")
    made = pyromq("user", "create", name)
    assert (made.code, f"{name}  created  {cluster.broker.address}" in made.out) == (0, True)
    assert pyromq.rows("user", "list", name) == [
        {"user": name, "type": "Normal", "status": "enable", "brokers": "broker-a"}
    ]
    typed(monkeypatch, "another\n")
    twice = pyromq("user", "create", name)
    assert (twice.code, "The user is existed" in twice.err) == (4, True)
    assert pyromq("user", "update", name).code == 2
    assert pyromq("user", "update", name, "--disable", "--type", "super").code == 0
    [row] = pyromq.rows("user", "list", name)
    assert (row["type"], row["status"]) == ("Super", "disable")
    monkeypatch.setenv("PYROMQ_NEW_SECRET", "one of the environment")
    assert pyromq("user", "update", name, "--secret").code == 0
    assert pyromq("user", "delete", name).code == 2, "not without --yes"
    assert "would delete user" in pyromq("user", "delete", name, "--dry-run").err
    assert pyromq("user", "delete", name, "--yes").code == 0
    assert pyromq.rows("user", "list", name) == []


def test_no_secret_is_ever_printed_and_an_empty_one_is_refused(pyromq, name, mqadmin, monkeypatch):
    monkeypatch.setenv("PYROMQ_NEW_SECRET", "very-secret")
    told = [
        pyromq("user", "create", name),
        pyromq("user", "list", "-o", "json"),
        mqadmin("listUser -c DefaultCluster"),
        mqadmin(f"getUser -c DefaultCluster -u {name}"),
    ]
    assert [each.code for each in told] == [0] * 4
    for each in told:
        assert "very-secret" not in each.out + each.err
        assert SECRET not in each.out + each.err
    monkeypatch.delenv("PYROMQ_NEW_SECRET")
    typed(monkeypatch, "")
    none = pyromq("user", "create", f"{name}-2")
    assert (none.code, "no secret was given" in none.err) == (2, True)


def test_without_credentials_nobody_is_let_in(pyromq, name, monkeypatch):
    monkeypatch.delenv("PYROMQ_ACCESS_KEY")
    said = pyromq("user", "list")
    assert (said.code, "username cannot be null" in said.err) == (4, True)


def test_what_a_policy_grants_and_what_is_revoked(pyromq, name, monkeypatch, cluster):
    monkeypatch.setenv("PYROMQ_NEW_SECRET", "its-secret")
    assert pyromq("user", "create", name).code == 0
    assert pyromq("topic", "create", f"{name}-topic").code == 0
    with pytest.raises(SendFailed, match="no matched policies"):
        send(cluster, name, "its-secret", f"{name}-topic")
    assert pyromq("policy", "grant", name, f"Topic:{name}*", "pub,sub", "--from", "127.0.0.0/8").code == 0
    send(cluster, name, "its-secret", f"{name}-topic")
    assert pyromq("policy", "grant", name, "Group:*", "all", "--deny", "--default").code == 0
    rows = pyromq.rows("policy", "list", name)
    assert [{key: row[key] for key in ("resource", "actions", "decision", "sources", "type")} for row in rows] == [
        {"resource": "Group:*", "actions": "All", "decision": "Deny", "sources": "", "type": "Default"},
        {
            "resource": f"Topic:{name}*",
            "actions": "Pub,Sub",
            "decision": "Allow",
            "sources": "127.0.0.0/8",
            "type": "Custom",
        },
    ]
    assert pyromq.rows("policy", "list", name[:-1]) == []
    assert pyromq("policy", "revoke", name, f"Topic:{name}*").code == 0
    with pytest.raises(SendFailed, match="no matched policies"):
        send(cluster, name, "its-secret", f"{name}-topic")
    assert pyromq("policy", "grant", name, "Topics:x", "pub").code == 4
    assert pyromq("policy", "grant", name, "Topic:x", "publish").code == 4
    assert [row["resource"] for row in pyromq.rows("policy", "list", name)] == ["Group:*"]
    assert pyromq("policy", "delete", name, "--yes").code == 0
    assert pyromq.rows("policy", "list", name) == []


def test_the_subcommands_of_mqadmin_have_the_headings_and_sentences_of_rocketmq(mqadmin, name, cluster):
    at = cluster.broker.address
    assert mqadmin(f"createUser -b {at} -u {name} -p 12345678 -t Normal").out == f"create user to {at} success.\n"
    assert mqadmin(f"updateUser -c DefaultCluster -u {name} -s disable").out == f"update user to {at} success.\n"
    headings = "#UserName         #Password               #UserType               #UserStatus           "
    row = f"{name:<16}  {'******':<22}  {'Normal':<22}  {'disable':<22}"
    assert mqadmin(f"getUser -b {at} -u {name}").lines == [headings, row]
    assert mqadmin(f"listUser -b {at} -f {name}").lines == [headings, row]
    assert mqadmin(f"listUser -c DefaultCluster -f {name}").lines == [headings, row, f"get user from {at} success."]
    assert mqadmin(f"getUser -b {at} -u nobody").code == 3
    created = mqadmin(f"createAcl -b {at} -s User:{name} -r Topic:a,Group:g* -a Pub,Sub -i 10.0.0.1 -d Allow")
    assert created.out == f"create acl to {at} success.\n"
    assert (
        mqadmin(f"updateAcl -b {at} -s User:{name} -r Topic:a -a All -d Deny").out == f"update acl to {at} success.\n"
    )
    subject = f"User:{name}"
    shown = [
        "  ".join(name.ljust(width) for name, width in ACL_COLUMNS.items()),
        f"{subject:<16}  {'Custom':<10}  {'Topic:a':<22}  {'[All]':<20}  {'null':<24}  {'Deny':<10}",
        f"{subject:<16}  {'Custom':<10}  {'Group:g*':<22}  {'[Pub, Sub]':<20}  {'[10.0.0.1]':<24}  {'Allow':<10}",
    ]
    assert mqadmin(f"getAcl -b {at} -s User:{name}").lines == shown
    assert mqadmin(f"listAcl -c DefaultCluster -s {name} -r Topic").lines == shown[:2]
    assert mqadmin(f"deleteAcl -b {at} -s User:{name} -r Topic:a").out == f"delete acl to {at} success.\n"
    assert len(mqadmin(f"getAcl -b {at} -s User:{name}").lines) == 2
    assert mqadmin(f"deleteAcl -c DefaultCluster -s User:{name}").code == 0
    assert mqadmin(f"deleteUser -b {at} -u {name}").out == f"delete user to {at} success.\n"
    assert mqadmin("listUser").code == 2


def test_users_and_policies_are_copied_to_another_broker(pyromq, name, cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("PYROMQ_NEW_SECRET", "its-secret")
    at = cluster.broker.address

    def mqadmin(line):
        return pyromq("mqadmin", *line.split())

    assert pyromq("user", "create", name).code == 0
    assert pyromq("policy", "grant", name, "Topic:a", "pub").code == 0
    with running_cluster(tmp_path, *ON, "brokerName=broker-b") as other:
        there = other.broker.address
        copied = mqadmin(f"copyUser -f {at} -t {there} -u {name}")
        assert copied.out == f"copy user of {name} from {at} to {there} success.\n"
        assert mqadmin(f"copyAcl -f {at} -t {there} -s User:{name}").out == (
            f"copy acl of User:{name} from {at} to {there} success.\n"
        )
        assert mqadmin(f"copyUser -f {at} -t {there}").code == 0
        assert "[Pub]" in mqadmin(f"getAcl -b {there} -s User:{name}").out
        with pytest.raises(SendFailed, match="Topic:b"):
            send(other, name, "its-secret", "b")
