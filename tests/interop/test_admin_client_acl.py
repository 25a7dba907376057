"""Our admin client changes the access control of Apache's brokers: accounts of 4.9, users and policies of 5.x."""

from __future__ import annotations

import asyncio
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.interop.apache import CLUSTER as APACHE_CLUSTER
from tests.interop.apache import Broker
from tests.interop.peers import OURS, NameServer
from tests.interop.process import stop_all

from pyromq.auth.acl.files import PUB, SUB
from pyromq.auth.acl.folder import AccountChange, AccountFiles
from pyromq.client import Client, Credentials, Message, Producer
from pyromq.client.admin import Account, Acl, AdminClient, Policy, PolicyEntry, User
from pyromq.errors import BrokerError, PyroMQError, RequestCodeNotSupported

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

REGISTERED_WITHIN = 30.0
PROVIDERS = "org.apache.rocketmq.auth"


async def test_accounts_of_a_broker_of_4_9(java_packages: None, tmp_path: Path) -> None:
    (tmp_path / "broker" / "conf").mkdir(parents=True)
    (tmp_path / "broker" / "conf" / "plain_acl.yml").write_text(
        "globalWhiteRemoteAddresses:\n- 127.0.0.*\naccounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n"
    )
    with (
        NameServer(OURS, tmp_path / "namesrv") as namesrv,
        running(Broker("4.9.7", tmp_path / "broker", namesrv.address, aclEnable="true")) as broker,
    ):
        async with AdminClient(namesrv.address) as admin:
            await registered(admin, broker)
            before = (await admin.acl.versions())[broker.address]
            assert (before.broker_name, before.cluster) == (broker.name, APACHE_CLUSTER)
            account = Account(
                access_key="somebody",
                secret_key="87654321",
                admin=True,
                default_topic_perm="PUB",
                topic_perms=("a=PUB", "b=SUB"),
                group_perms=("g=SUB",),
            )
            assert await admin.acl.set_account(account) == [broker.address]
            await admin.acl.set_white_addresses(["127.0.0.*", "10.0.0.1"])
            after = (await admin.acl.versions())[broker.address]
            # Its `version` is that of the start. What changes is that of the file.
            assert list(after.files) == list(before.files)
            assert [version.counter for version in after.files.values()] == [2]
            kept = (tmp_path / "broker" / "conf" / "plain_acl.yml").read_text()
            assert {"somebody", "87654321", "a=PUB", "b=SUB", "g=SUB", "10.0.0.1"} <= set(re.findall(r"[\w.=]+", kept))
            await admin.acl.delete_account("somebody")
            assert "somebody" not in (tmp_path / "broker" / "conf" / "plain_acl.yml").read_text()
            with pytest.raises(RequestCodeNotSupported):
                await admin.acl.users(broker.name)


async def test_a_file_of_accounts_goes_from_us_to_rocketmq_and_back(java_packages: None, tmp_path: Path) -> None:
    """What we write decides at a broker of 4.9, in the same words; what that broker writes is read by us."""
    conf = tmp_path / "broker" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(
        "accounts: [{accessKey: administrator, secretKey: 12345678, admin: true}]\ndataVersion:\n"
    )
    ours = AccountFiles(conf / "plain_acl.yml")
    ours.load()
    ours.set_account(
        AccountChange(access_key="sender-1", secret_key="00123456", topic_perms=["mine=PUB"], default_topic_perm="DENY")
    )
    with (
        NameServer(OURS, tmp_path / "namesrv") as namesrv,
        running(Broker("4.9.7", tmp_path / "broker", namesrv.address, aclEnable="true")) as broker,
    ):
        administrator = Client(namesrv.address, credentials=Credentials("administrator", "12345678"))
        async with (
            AdminClient(client=administrator) as admin,
            Client(namesrv.address, credentials=Credentials("sender-1", "00123456")) as client,
            Producer("producers", client=client) as producer,
        ):
            await registered(admin, broker)
            for topic in ("mine", "others"):
                await admin.topics.create(topic, brokers=[broker.address])
            await producer.send(Message("mine", b"hello"))
            with pytest.raises(PyroMQError, match="No default permission for topic:others"):
                await producer.send(Message("others", b"hello"))
            await admin.acl.set_account(
                Account(access_key="theirs-1", secret_key="98765432", topic_perms=("a=PUB|SUB",)),
                brokers=broker.address,
            )
            await admin.acl.set_white_addresses([], brokers=broker.address)
    again = AccountFiles(conf / "plain_acl.yml")
    again.load()
    assert sorted(again.rules.accounts) == ["administrator", "sender-1", "theirs-1"]
    assert again.rules.accounts["sender-1"] == ours.rules.accounts["sender-1"]
    assert again.rules.accounts["theirs-1"].topics == {"a": PUB | SUB}
    assert again.rules.versions[ours.main].counter == 3
    assert not again.rules.white


async def test_users_and_policies_of_a_broker_of_5_5(java_packages: None, tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    with (
        NameServer(OURS, tmp_path / "namesrv") as namesrv,
        running(
            Broker(
                "5.5.0",
                tmp_path / "broker",
                namesrv.address,
                authenticationMetadataProvider=f"{PROVIDERS}.authentication.provider.LocalAuthenticationMetadataProvider",
                authorizationMetadataProvider=f"{PROVIDERS}.authorization.provider.LocalAuthorizationMetadataProvider",
                authConfigPath=tmp_path / "auth",
            )
        ) as broker,
    ):
        async with AdminClient(namesrv.address) as admin:
            await registered(admin, broker)
            user = User(username="somebody", password="secret", user_type="Normal", user_status="enable")
            assert await admin.acl.create_user(user) == [broker.address]
            found = await admin.acl.user(broker.name, "somebody")
            assert (found.username, found.user_type, found.user_status) == ("somebody", "Normal", "enable")
            await admin.acl.update_user(User(username="somebody", user_status="disable"))
            assert [each.user_status for each in await admin.acl.users(broker.name, "some")] == ["disable"]
            assert await admin.acl.users(broker.name, "nobody") == []

            entry = PolicyEntry(resource="Topic:orders", actions=["Pub"], source_ips=["10.0.0.1"], decision="Allow")
            await admin.acl.create_acl(
                Acl(subject="User:somebody", policies=[Policy(policy_type="Custom", entries=[entry])])
            )
            acl = await admin.acl.acl(broker.name, "User:somebody")
            assert [each for policy in acl.policies for each in policy.entries] == [entry]
            more = PolicyEntry(resource="Group:g", actions=["Sub"], decision="Deny")
            await admin.acl.update_acl(
                Acl(subject="User:somebody", policies=[Policy(policy_type="Custom", entries=[more])])
            )
            [acl] = await admin.acl.acls(broker.name, subject="somebody")
            assert {each.resource for policy in acl.policies for each in policy.entries} == {"Topic:orders", "Group:g"}
            await admin.acl.delete_acl("User:somebody", resource="Group:g", policy_type="Custom")
            [acl] = await admin.acl.acls(broker.name)
            assert {each.resource for policy in acl.policies for each in policy.entries} == {"Topic:orders"}
            await admin.acl.delete_acl("User:somebody")
            await admin.acl.delete_user("somebody")
            with pytest.raises(BrokerError) as caught:
                await admin.acl.user(broker.name, "somebody")
            assert caught.value.code == 3001
            with pytest.raises(RequestCodeNotSupported):
                await admin.acl.delete_account("somebody")


@contextmanager
def running(broker: Broker) -> Iterator[Broker]:
    try:
        broker.wait_until_booted()
        yield broker
    finally:
        stop_all([broker.process])


async def registered(admin: AdminClient, broker: Broker) -> None:
    async with asyncio.timeout(REGISTERED_WITHIN):
        while True:
            if broker.name in (await admin.brokers.cluster_info()).broker_addr_table:
                return
            await asyncio.sleep(0.2)
