"""Users and policies of a running broker, over its own port: requests 3001 to 3010 and what they change."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import pytest
from tests.integration.broker.life_kit import Peer, eventually, new_broker, new_name_server

from pyromq.auth.users.requests import list_of
from pyromq.errors import BrokerError, InvalidParameter, NoPermission, ServerError
from pyromq.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from pyromq.protocol.codes import RequestCode as Code
from pyromq.protocol.headers import AclSubject, DeleteAcl, ListAcls, ListUsers, UserName
from pyromq.remoting import SigningHook

SECRET = "12345678"
ON = (
    "authenticationEnabled=true",
    "authorizationEnabled=true",
    f'initAuthenticationUser={{"username":"root","password":"{SECRET}"}}',
    'innerClientAuthenticationCredentials={"accessKey":"replica","secretKey":"between-brokers"}',
)


class Someone(Peer):
    """Signs what is asked, as a user; without a name nothing is signed."""

    def __init__(self, name=None, secret=SECRET, hook=SigningHook):
        super().__init__(hooks=() if name is None else (hook(name, secret),))

    async def create_user(self, at, name, secret=SECRET, kind=None, status=None):
        body = UserInfo(username=name, password=secret, user_type=kind, user_status=status)
        await self.ask(at, Code.AUTH_CREATE_USER, UserName(name), body.encode())

    async def update_user(self, at, name, **fields):
        body = UserInfo(username=name, **fields)
        await self.ask(at, Code.AUTH_UPDATE_USER, UserName(name), body.encode())

    async def delete_user(self, at, name):
        await self.ask(at, Code.AUTH_DELETE_USER, UserName(name))

    async def user(self, at, name):
        body = (await self.ask(at, Code.AUTH_GET_USER, UserName(name))).body_bytes
        return UserInfo.decode(body) if body else None

    async def users(self, at, part=None):
        reply = await self.ask(at, Code.AUTH_LIST_USER, ListUsers(part))
        return list_of(UserInfo, reply.body_bytes)

    async def grant(self, at, name, resource, actions="All", decision="Allow", kind=None, code=Code.AUTH_CREATE_ACL):
        entry = PolicyEntryInfo(resource=resource, actions=actions.split(","), decision=decision)
        acl = AclInfo(subject=f"User:{name}", policies=[PolicyInfo(policy_type=kind, entries=[entry])])
        await self.ask(at, code, AclSubject(f"User:{name}"), acl.encode())

    async def revoke(self, at, name, resource=None, kind=None):
        await self.ask(at, Code.AUTH_DELETE_ACL, DeleteAcl(f"User:{name}", kind, resource))

    async def acl(self, at, name):
        body = (await self.ask(at, Code.AUTH_GET_ACL, AclSubject(f"User:{name}"))).body_bytes
        return AclInfo.decode(body) if body else None

    async def acls(self, at, subject=None, resource=None):
        reply = await self.ask(at, Code.AUTH_LIST_ACL, ListAcls(subject, resource))
        return list_of(AclInfo, reply.body_bytes)


def rights(acl):
    return {
        (policy.policy_type, entry.resource): (",".join(entry.actions), entry.decision)
        for policy in acl.policies
        for entry in policy.entries
    }


@contextlib.asynccontextmanager
async def cast(*names):
    """People who can ask, as `root` or as others with the same secret; None signs nothing."""
    async with contextlib.AsyncExitStack() as life:
        yield [await life.enter_async_context(Someone(name)) for name in names]


@contextlib.asynccontextmanager
async def guarded(folder, *sets):
    async with new_broker(folder, *ON, *sets) as broker, cast("root", "alice", None) as people:
        yield broker.address, *people


async def refused(doing, error=NoPermission):
    with pytest.raises(error) as caught:
        await doing
    assert SECRET not in str(caught.value)
    return caught.value.remark


@pytest.mark.slow
async def test_a_user_is_created_changed_and_deleted(tmp_path):
    async with guarded(tmp_path) as (at, root, alice, nobody):
        assert await refused(nobody.send(at)) == "username cannot be null."
        assert await refused(alice.send(at)) == "User:alice is not found."
        await root.create_user(at, "alice")
        assert await refused(alice.send(at)) == (
            "User:alice has no permission to access Topic:orders from 127.0.0.1, no matched policies."
        )
        await root.grant(at, "alice", "Topic:orders", "Pub")
        assert await alice.send(at) == 0
        assert await refused(root.create_user(at, "alice")) == "The user is existed"
        await root.update_user(at, "alice", user_status="Disable")
        assert await refused(alice.send(at)) == "User:alice is disabled."
        await root.update_user(at, "alice", user_status="enable", password="another")
        assert await refused(alice.send(at)) == "check signature failed."
        async with Someone("alice", "another") as again:
            assert await again.send(at) == 1
        await root.delete_user(at, "alice")
        await root.delete_user(at, "alice")  # once more does no harm
        assert await root.user(at, "alice") is None
        # Whoever gets the name next does not get the rights.
        await root.create_user(at, "alice")
        assert await root.acl(at, "alice") is None
        assert await refused(root.update_user(at, "bob", password="x")) == "The user is not exist"
        assert await refused(root.create_user(at, "bob", " ")) == "password can not be blank"
        assert await refused(root.create_user(at, ""), InvalidParameter) == "The username is blank"
        assert "neither Super nor Normal" in await refused(root.create_user(at, "bob", kind="Root"), InvalidParameter)
        assert "illegal characters" in await refused(root.create_user(at, "b\nb"), InvalidParameter)


@pytest.mark.slow
async def test_everything_is_there_after_a_restart(tmp_path):
    async with guarded(tmp_path) as (at, root, _, _):
        await root.create_user(at, "alice")
        await root.grant(at, "alice", "Topic:orders", "Pub")
        users, acls = await root.users(at), await root.acls(at)
    async with guarded(tmp_path) as (at, root, alice, _):
        assert await root.users(at) == users
        assert await root.acls(at) == acls
        assert await alice.send(at) == 0


@pytest.mark.slow
async def test_only_super_users_see_secrets_and_touch_super_users(tmp_path):
    async with guarded(tmp_path) as (at, root, alice, _):
        await root.create_user(at, "alice")
        assert await refused(alice.users(at)) == (
            "User:alice has no permission to access Cluster:DefaultCluster from 127.0.0.1, no matched policies."
        )
        await root.grant(at, "alice", "Cluster:DefaultCluster")
        assert {user.username: user.password for user in await root.users(at)} == {
            "root": SECRET,
            "replica": "between-brokers",
            "alice": SECRET,
        }
        assert {user.password for user in await alice.users(at)} == {None}
        assert (await alice.user(at, "root")).password is None
        assert (await root.user(at, "root")).user_type == "Super"
        await alice.create_user(at, "bob")
        await alice.update_user(at, "bob", password="x")
        of_super = "The super user can only be update by super user"
        assert "can only be create by super user" in await refused(
            alice.create_user(at, "eve", kind="super"), ServerError
        )
        assert await refused(alice.update_user(at, "alice", user_type="Super"), ServerError) == of_super
        assert await refused(alice.update_user(at, "root", password="mine")) == of_super
        assert await refused(alice.delete_user(at, "root")) == of_super
        await alice.delete_user(at, "bob")
        assert [user.username for user in await root.users(at, "li")] == ["replica", "alice"]


@pytest.mark.slow
async def test_policies_are_added_replaced_and_taken_away_by_resource(tmp_path):
    async with guarded(tmp_path) as (at, root, _, _):
        await root.create_user(at, "alice")
        assert await root.acl(at, "alice") is None
        assert await refused(root.revoke(at, "alice")) == "The acl is not exist."
        await root.grant(at, "alice", "topic:orders", "pub")
        await root.grant(at, "alice", "Topic:orders", "Pub,Sub", code=Code.AUTH_UPDATE_ACL)
        await root.grant(at, "alice", "Topic:*", "All", "Deny", kind="Default")
        await root.grant(at, "alice", "Group:g*", "Sub")
        assert rights(await root.acl(at, "alice")) == {
            ("Custom", "Topic:orders"): ("Pub,Sub", "Allow"),
            ("Custom", "Group:g*"): ("Sub", "Allow"),
            ("Default", "Topic:*"): ("All", "Deny"),
        }
        await root.create_user(at, "bob")
        await root.grant(at, "bob", "Topic:orders", "Sub")
        assert [acl.subject for acl in await root.acls(at)] == ["User:alice", "User:bob"]
        assert [acl.subject for acl in await root.acls(at, "bob")] == ["User:bob"]
        [found] = await root.acls(at, "User:alice", "Group")
        assert list(rights(found)) == [("Custom", "Group:g*")]
        await root.revoke(at, "alice", "Topic:*")  # that is a default one
        assert len(rights(await root.acl(at, "alice"))) == 3
        assert "The resource is null." in await refused(root.revoke(at, "alice", "Topc:orders"))
        assert len(rights(await root.acl(at, "alice"))) == 3
        await root.revoke(at, "alice", "Topic:*", "default")
        await root.revoke(at, "alice", "Topic:orders")
        assert list(rights(await root.acl(at, "alice"))) == [("Custom", "Group:g*")]
        await root.revoke(at, "alice")
        assert await root.acl(at, "alice") is None
        assert await refused(root.acl(at, "nobody")) == "The subject is not exist."
        assert await refused(root.grant(at, "nobody", "Topic:a")) == "The subject of User:nobody is not exist."


ENTRY: dict[str, Any] = {"resource": "Topic:a", "actions": ["Pub"], "decision": "Allow"}
BAD_ENTRIES: list[tuple[dict[str, Any], str]] = [
    ({"resource": "orders"}, "The resource is null."),
    ({"actions": []}, "The actions is empty."),
    ({"actions": ["Any"]}, "The actions can not be Any."),
    ({"actions": ["Pub", "Write"]}, "The action 'Write' is unknown."),
    ({"source_ips": [" "]}, "The source ip is empty."),
    ({"source_ips": ["10.0.0"]}, "The source ip is invalid."),
    ({"decision": "Maybe"}, "The decision is null or illegal."),
    ({"decision": None}, "The decision is null or illegal."),
]
BAD_BODIES = [
    ("User:root", [], "The body of acl is null"),
    ("User:root", [PolicyInfo()], "The policy entries is empty."),
    ("Role:root", [PolicyInfo(entries=[PolicyEntryInfo(**ENTRY)])], "The subject type is null."),
    ("User:root", [PolicyInfo(policy_type="Other")], "The policy type 'Other' is neither Custom nor Default."),
    *(
        ("User:root", [PolicyInfo(entries=[PolicyEntryInfo(**{**ENTRY, **changes})])], text)
        for changes, text in BAD_ENTRIES
    ),
]


async def test_policies_that_say_nothing_are_refused_and_change_nothing(tmp_path):
    async with guarded(tmp_path) as (at, root, _, _):
        for subject, policies, text in BAD_BODIES:
            body = AclInfo(subject=subject, policies=policies).encode()
            remark = await refused(root.ask(at, Code.AUTH_CREATE_ACL, AclSubject(subject), body))
            assert remark.startswith(text)
        assert await root.acls(at) == []


async def test_a_body_may_leave_the_subject_to_the_header(tmp_path):
    entry = PolicyEntryInfo(**ENTRY)
    async with guarded(tmp_path) as (at, root, _, _):
        body = AclInfo(policies=[PolicyInfo(entries=[entry])]).encode()
        assert b"subject" not in body
        await root.ask(at, Code.AUTH_CREATE_ACL, AclSubject("User:root"), body)
        assert list(rights(await root.acl(at, "root"))) == [("Custom", "Topic:a")]


async def test_without_authentication_there_are_no_users(tmp_path):
    async with new_broker(tmp_path) as broker, cast(None) as [nobody]:
        for asking in (nobody.users(broker.address), nobody.create_user(broker.address, "eve", kind="Super")):
            assert await refused(asking, ServerError) == "This broker has no users: authenticationEnabled is false."
        assert not (tmp_path / "config" / "users.json").exists()


async def test_a_change_that_cannot_be_saved_is_refused_and_does_not_happen(tmp_path):
    async with guarded(tmp_path) as (at, root, alice, _):
        await root.create_user(at, "alice")
        (tmp_path / "config" / "users.json.tmp").mkdir()
        assert "nothing was changed" in await refused(root.create_user(at, "bob"), BrokerError)
        assert "nothing was changed" in await refused(root.delete_user(at, "alice"), BrokerError)
        assert [user.username for user in await root.users(at)] == ["root", "replica", "alice"]
        assert "no matched policies" in await refused(alice.send(at))


@pytest.mark.slow
async def test_changes_at_the_same_time_all_count(tmp_path):
    async with guarded(tmp_path) as (at, root, _, _):
        await asyncio.gather(*(root.create_user(at, f"user-{number}") for number in range(20)))
    async with guarded(tmp_path) as (at, root, _, _):
        assert len(await root.users(at, "user-")) == 20


async def test_the_log_says_who_changed_what_and_no_secrets(tmp_path, caplog):
    with caplog.at_level(logging.DEBUG):
        async with guarded(tmp_path) as (at, root, alice, _):
            await root.create_user(at, "alice", "alices-own-secret")
            await root.grant(at, "alice", "Topic:orders", "Pub,Sub")
            await refused(alice.send(at))
    assert "user alice created by root from 127.0.0.1:" in caplog.text
    assert "policies of user alice set: Allow Pub|Sub on Topic:orders by root" in caplog.text
    assert "refused request 310 of 'alice' from 127.0.0.1: check signature failed." in caplog.text
    for secret in (SECRET, "alices-own-secret", "between-brokers"):
        assert secret not in caplog.text


async def test_secrets_are_stars_in_the_settings(tmp_path):
    async with guarded(tmp_path) as (at, root, _, _):
        text = (await root.ask(at, Code.GET_BROKER_CONFIG)).body_bytes.decode()
        assert "initAuthenticationUser" in text
        assert SECRET not in text
        assert "between-brokers" not in text


@pytest.mark.slow
async def test_slaves_have_the_users_of_their_master(tmp_path):
    """A tool may tell slaves, too, as RocketMQ's own does: whoever hears of a user first."""
    name_server = new_name_server(tmp_path)
    async with name_server, cast("root", "alice") as (root, alice):
        namesrv = f"127.0.0.1:{name_server.port}"
        slave_sets = ("brokerRole=SLAVE", "brokerId=1", "slaveSyncInterval=50")
        async with (
            new_broker(tmp_path / "master", *ON, namesrv_addr=namesrv) as master,
            new_broker(tmp_path / "slave", *ON, *slave_sets, namesrv_addr=namesrv) as slave,
        ):
            await root.create_user(master.address, "alice")
            await root.grant(master.address, "alice", "Topic:orders", "Pub,Sub")
            await root.grant(master.address, "alice", "Group:readers", "Sub")

            async def same():
                return await root.users(slave.address) == await root.users(master.address) and (
                    await root.acls(slave.address) == await root.acls(master.address)
                )

            await eventually(same)
            assert (await alice.pull(slave.address)).code != 16
            await root.create_user(slave.address, "alice")
            await root.delete_user(master.address, "alice")
            await eventually(same)
            assert await root.user(slave.address, "alice") is None


class Forger(SigningHook):
    """Signs nothing but one kind of request; the others carry its name and a wrong signature."""

    def before_request(self, peer, request):
        super().before_request(peer, request)
        if request.code != Code.AUTH_LIST_USER:
            request.ext["Signature"] = "forged"


async def test_a_stateful_strategy_asks_each_connection_once(tmp_path):
    strategy = "authenticationStrategy=org.apache.rocketmq.auth.authentication.strategy.StatefulAuthenticationStrategy"
    async with new_broker(tmp_path, *ON, strategy) as broker, cast("root") as [root]:
        at = broker.address
        async with Someone("root", hook=Forger) as one, Someone("root", hook=Forger) as other:
            assert await refused(one.send(at)) == "check signature failed."
            await one.users(at)
            await one.send(at)
            assert await refused(other.send(at)) == "check signature failed."
            await root.create_user(at, "alice")  # a change: everybody has to prove again who they are
            assert await refused(one.send(at)) == "check signature failed."
