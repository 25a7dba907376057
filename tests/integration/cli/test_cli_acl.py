"""`pyromq acl` and the subcommands of `mqadmin` about accounts, against a broker with aclEnable."""

from __future__ import annotations

import re
import time

import pytest
from tests.integration.broker.account_kit import SECRET, account, write_accounts
from tests.integration.cli.cli_kit import Commands

from pyromq.testing import running_cluster


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def file(folder):
    return folder / "accounts" / "conf" / "plain_acl.yml"


@pytest.fixture(scope="module")
def cluster(folder, file):
    write_accounts(folder / "accounts", account("orders-reader", topics=["orders=SUB"]))
    with running_cluster(folder, "aclEnable=true", f"rocketmq.acl.plain.file={file}") as running:
        yield running


@pytest.fixture(autouse=True)
def administrator(own_home, monkeypatch, folder, file):
    monkeypatch.setenv("PYROMQ_ACCESS_KEY", "administrator")
    monkeypatch.setenv("PYROMQ_SECRET_KEY", SECRET)


@pytest.fixture
def pyromq(capsys, cluster):
    return Commands(capsys, cluster.namesrv)


def until(condition):
    """Look again and again until `condition` is true; gives what it gave."""
    deadline = time.monotonic() + 30
    while not (result := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return result


def accounts(pyromq):
    return {row["accessKey"]: row for row in pyromq.rows("acl", "list")}


def test_accounts_are_listed_without_their_secrets(pyromq):
    said = pyromq("acl", "list")
    assert said.code == 0
    assert "orders-reader" in said.out
    assert "orders=SUB" in said.out
    assert SECRET not in said.out
    assert accounts(pyromq)["administrator"]["admin"] is True


def test_an_account_is_set_changed_and_deleted(pyromq, monkeypatch, file):
    monkeypatch.setenv("PYROMQ_NEW_SECRET", "secret-of-billing")
    made = pyromq("acl", "set", "billing-service", "--secret", "-t", "orders=SUB", "-t", "bills=PUB|SUB", "-g", "b=SUB")
    assert (made.code, "secret-of-billing" in made.out + made.err) == (0, False)
    assert accounts(pyromq)["billing-service"]["topics"] == "orders=SUB bills=PUB|SUB"
    assert pyromq("acl", "set", "billing-service", "--default-topic", "PUB", "-t", "").code == 0
    row = accounts(pyromq)["billing-service"]
    assert (row["topics"], row["groups"], row["defaultTopic"]) == ("", "b=SUB", "PUB")
    assert "secret-of-billing" in file.read_text()
    assert pyromq("acl", "delete", "billing-service").code == 2
    assert pyromq("acl", "delete", "billing-service", "--yes").code == 0
    assert "billing-service" not in accounts(pyromq)
    gone = pyromq("acl", "delete", "billing-service", "--yes")
    assert (gone.code, "there is no account billing-service" in gone.err) == (1, True)


def test_a_new_account_needs_a_secret(pyromq):
    refused = pyromq("acl", "set", "billing-service")
    assert (refused.code, "secretKey is missing" in refused.err) == (1, True)


def test_addresses_that_need_no_account(pyromq):
    assert pyromq("acl", "allow", "10.9.9.*", "10.9.8.{1,2}", "--yes").code == 0
    assert "whoever comes from 10.9.9.*, 10.9.8.{1,2} may do everything" in pyromq("acl", "list").out
    assert pyromq("acl", "allow").code == 2
    assert pyromq("acl", "allow", "--nobody").code == 0
    assert "may do everything" not in pyromq("acl", "list").out


@pytest.mark.scenario("admin 45")
@pytest.mark.slow
def test_the_status_tells_which_file_is_broken(pyromq, file):
    good = file.read_text()
    assert [row["problem"] for row in pyromq.rows("acl", "status")] == [None]
    file.write_text(good + "oops\n")
    lines = len(good.splitlines())
    problem = until(lambda: pyromq.rows("acl", "status")[0]["problem"])
    assert re.match(rf"{re.escape(str(file))}:{lines + 1}: |{re.escape(str(file))}:{lines + 2}: ", problem)
    file.write_text(good)
    until(lambda: pyromq.rows("acl", "status")[0]["problem"] is None)


def test_who_may_not_is_told_so(pyromq, monkeypatch):
    monkeypatch.setenv("PYROMQ_ACCESS_KEY", "orders-reader")
    refused = pyromq("acl", "list")
    assert refused.code == 4
    assert "Need admin permission for request code=54, but accessKey=orders-reader is not" in refused.err


def test_mqadmin_speaks_as_rocketmq(pyromq, cluster, file):
    where = cluster.broker.address

    def mqadmin(line):
        return pyromq("mqadmin", *line.split())

    made = mqadmin(f"updateAclConfig -b {where} -a mqadmin-made -s {SECRET} -t a=PUB,b=SUB -i DENY -m true")
    said = (
        "PlainAccessConfig{accessKey='mqadmin-made', whiteRemoteAddress='null', admin=true, defaultTopicPerm='DENY', "
        "defaultGroupPerm='null', topicPerms=[a=PUB, b=SUB], groupPerms=null}"
    )
    assert made.lines == [f"create or update plain access config to {where} success.", said]
    versions = mqadmin("clusterAclConfigVersion -c DefaultCluster")
    assert versions.lines[0].split("  ")[0] == "#Cluster Name"
    assert re.search(rf"DefaultCluster +\S+ +{where} +{re.escape(str(file))} +\d+ +20", versions.lines[1])
    assert versions.lines[-1] == "get cluster's plain access config version success."
    listed = mqadmin(f"getAclConfig -b {where}").out
    assert "globalWhiteRemoteAddresses: []" in listed
    assert "  topicPerms        : [a=PUB, b=SUB]" in listed
    assert SECRET not in listed
    assert mqadmin(f"updateGlobalWhiteAddr -b {where} -g 10.0.0.1,10.0.1.*").lines == [
        f"update global white remote addresses to {where} success."
    ]
    assert "globalWhiteRemoteAddresses: [10.0.0.1, 10.0.1.*]" in mqadmin(f"getAclConfig -b {where}").out
    assert mqadmin(f"deleteAccessConfig -b {where} -a mqadmin-made").lines == [
        f"delete plain access config account from {where} success.",
        "account's accesskey is:mqadmin-made",
    ]
    assert mqadmin("updateAclConfig -a mqadmin-made -s longer-than-6").code == 2
    pyromq("acl", "allow", "--nobody")
