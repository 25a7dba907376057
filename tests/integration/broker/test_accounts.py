"""A broker with aclEnable: who gets in, what they may do, and how accounts change."""

from __future__ import annotations

import json
import logging
import re

import pytest
from tests.integration.broker.account_kit import SECRET, account, connect, write_accounts
from tests.integration.broker.life_kit import eventually, new_broker, new_name_server
from tests.integration.broker.replication_kit import MASTER, SLAVE, knows_topic
from tests.integration.broker.scene_kit import batch_body, messages_in, running, send_ext

from pyromq.broker.requests import RULES
from pyromq.client import Client, Consumer, Credentials, Message, Producer, StartAt
from pyromq.client.admin import Account, AdminClient
from pyromq.errors import ConfigError, NoPermission, PyroMQError

ACL = "aclEnable=true"
OWN = f'innerClientAuthenticationCredentials={{"accessKey":"administrator","secretKey":"{SECRET}"}}'


@pytest.fixture
def folder(tmp_path):
    write_accounts(
        tmp_path / "store",
        account("topic-b-sender", topics=["topicB=PUB"], groups=["g=SUB"]),
        account("orders-reader", topics=["orders=SUB"], groups=["readers=SUB"]),
        account("orders-sender", topics=["orders=PUB"]),
    )
    return tmp_path / "store"


@pytest.fixture
async def namesrv(tmp_path):
    async with new_name_server(tmp_path) as name_server:
        yield f"127.0.0.1:{name_server.port}"


@pytest.fixture
async def scene(folder):
    async with running(folder, ACL) as scene:
        yield scene


def refusal(reply):
    assert reply.code == 16, reply
    return reply.remark


@pytest.mark.scenario("admin 43")
async def test_an_account_that_may_publish_to_one_topic_does_nothing_else(scene):
    client = await connect(scene, "topic-b-sender")
    assert refusal(await client.pull("topicB")) == "No default permission for topic:topicB"
    await client.sent(b"hello", "topicB")
    batch = await client.call(320, send_ext("topicA", m="true"), batch_body(b"a", b"b"))
    assert refusal(batch) == "No default permission for topic:topicA"
    assert refusal(await client.put(b"hello", "topicA")) == "No default permission for topic:topicA"
    assert refusal(await client.create_topic("topicB")) == (
        "Need admin permission for request code=17, but accessKey=topic-b-sender is not"
    )
    administrator = await connect(scene, "administrator")
    assert [message.body for message in await administrator.read("topicB")] == [b"hello"]


async def test_who_has_no_account_or_not_its_secret_does_nothing(scene, caplog):
    assert refusal(await (await connect(scene)).put()) == "No accessKey is configured"
    assert refusal(await (await connect(scene, "nobody-1")).put()) == "No acl config for nobody-1"
    stranger = await connect(scene, "topic-b-sender", "another-secret")
    why = "Check signature failed for accessKey=topic-b-sender"
    assert refusal(await stranger.put(b"hello", "topicB")) == why
    assert "refused request 310 of 'topic-b-sender' from 127.0.0.1: Check signature failed" in caplog.text
    assert SECRET not in caplog.text
    assert scene.broker._access.refusals.counts[310] == 3


async def test_no_request_is_taken_without_an_account(scene):
    client = await connect(scene)
    for code in RULES:
        assert refusal(await client.call(code, {}, b"{}")) == "No accessKey is configured", code


async def test_messages_of_others_are_not_read_by_their_place(scene):
    sender, reader = await connect(scene, "orders-sender"), await connect(scene, "orders-reader")
    stranger = await connect(scene, "topic-b-sender")
    await sender.sent(b"an order", "orders")
    place = (await reader.read("orders", group="readers"))[0].physical
    for ext in ({"offset": place}, {"offset": place, "topic": "topicB"}):
        assert refusal(await stranger.call(33, ext)).startswith("No default permission for topic:")
    [found] = messages_in((await reader.call(33, {"offset": place})).body)
    assert found.body == b"an order"
    assert refusal(await stranger.send_back(place, group="g")) == "No default permission for topic:orders"
    assert (await reader.send_back(place, group="readers")).code == 0


async def test_transactions_of_others_are_not_ended(scene):
    sender, stranger = await connect(scene, "orders-sender"), await connect(scene, "topic-b-sender")
    reader = await connect(scene, "orders-reader")
    half = await sender.sent(b"half", "orders", properties={"TRAN_MSG": "true", "PGROUP": "producers"}, f=4)
    place = int(half.ext["msgId"][-16:], 16)
    end = {
        "producerGroup": "producers",
        "tranStateTableOffset": half.ext["queueOffset"],
        "commitLogOffset": place,
        "commitOrRollback": 8,
        "fromTransactionCheck": "false",
        "msgId": "m",
    }
    for ext in (end, end | {"topic": "topicB"}):
        assert refusal(await stranger.call(37, ext)) == "No default permission for topic:orders"
    assert (await sender.call(37, end | {"topic": "orders"})).code == 0
    assert [message.body for message in await reader.read("orders", group="readers")] == [b"half"]


@pytest.mark.slow
async def test_our_clients_sign_everything(folder, namesrv):
    async with running(folder, ACL, OWN, namesrv_addr=namesrv):
        async with (
            Client(namesrv, credentials=Credentials("orders-sender", SECRET)) as sending,
            Client(namesrv, credentials=Credentials("orders-reader", SECRET)) as reading,
            Producer("producers", client=sending) as producer,
        ):
            await producer.send(Message("orders", b"an order"))
            async with Consumer("readers", {"orders": "*"}, client=reading, start_at=StartAt.FIRST) as consumer:
                async for message in consumer:
                    assert message.body == b"an order"
                    message.ack()
                    break
            with pytest.raises(PyroMQError, match="No default permission for topic:topicB"):
                await producer.send(Message("topicB", b"?"))
        async with AdminClient(client=Client(namesrv)) as admin:
            with pytest.raises(NoPermission, match="No accessKey is configured"):
                await admin.topics.create("more")


@pytest.mark.scenario("admin 44")
async def test_a_rule_that_is_edited_is_effective_within_seconds(scene, folder, caplog):
    caplog.set_level(logging.DEBUG)
    client = await connect(scene, "topic-b-sender")
    assert (await client.put(b"hello", "topicA")).code == 16
    write_accounts(folder, account("topic-b-sender", topics=["topicA=PUB"]))

    async def allowed():
        return (await client.put(b"hello", "topicA")).code == 0

    await eventually(allowed)
    assert (await client.put(b"hello", "topicB")).code == 16
    assert SECRET not in caplog.text


@pytest.mark.scenario("admin 45")
async def test_a_broken_file_keeps_the_old_rules_and_says_why(scene, folder, caplog):
    client, administrator = await connect(scene, "topic-b-sender"), await connect(scene, "administrator")
    path = folder / "conf" / "plain_acl.yml"
    path.write_text(f"accounts:\n- accessKey: topic-b-sender\n   secretKey: {SECRET}\n")

    async def told():
        errors = (await administrator.call(52)).ext.get("fileErrors")
        return errors and json.loads(errors)

    errors = await eventually(told)
    assert re.match(rf"{re.escape(str(path))}:3: ", errors[str(path)])
    await client.sent(b"hello", "topicB")
    assert f"{path}:3: " in caplog.text
    assert "the old accounts stay" in caplog.text
    assert SECRET not in caplog.text
    write_accounts(folder)

    async def gone():
        return "fileErrors" not in (await administrator.call(52)).ext

    await eventually(gone)
    assert refusal(await client.put(b"hello", "topicB")) == "No acl config for topic-b-sender"


async def test_accounts_are_changed_by_requests_and_survive_a_restart(folder, namesrv):
    credentials = Credentials("administrator", SECRET)
    async with (
        running(folder, ACL, namesrv_addr=namesrv) as scene,
        AdminClient(client=Client(namesrv, credentials=credentials)) as admin,
    ):
        here = [scene.broker.address]
        made = Account(access_key="new-sender", secret_key=SECRET, topic_perms=("more=PUB", "other=SUB"))
        assert await admin.acl.set_account(made, brokers=here) == here
        await (await connect(scene, "new-sender")).sent(b"hello", "more")
        [found] = (await admin.acl.versions(brokers=here)).values()
        assert (found.broker_name, found.files[str(folder / "conf" / "plain_acl.yml")].counter) == ("broker-a", 1)
        listed = (await admin.acl.accounts(brokers=here))[here[0]]
        new = next(each for each in listed.plain_access_configs if each.access_key == "new-sender")
        assert (new.secret_key, new.topic_perms) == (None, ["more=PUB", "other=SUB"])
        assert SECRET not in str(listed.encode())
        await admin.acl.delete_account("orders-sender", brokers=here)
        with pytest.raises(PyroMQError, match="there is no account orders-sender"):
            await admin.acl.delete_account("orders-sender", brokers=here)
        await admin.acl.set_white_addresses(["10.0.0.*", "127.0.0.{1,2}"], brokers=here)
        await (await connect(scene)).sent(b"hello", "anything")
        await admin.acl.set_white_addresses([], brokers=here)
    async with running(folder, ACL) as scene:
        await (await connect(scene, "new-sender")).sent(b"hello", "more")
        assert refusal(await (await connect(scene, "orders-sender")).put()) == "No acl config for orders-sender"
        assert refusal(await (await connect(scene)).put()) == "No accessKey is configured"
    assert (folder / "conf" / "plain_acl.yml").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("code", "ext", "answer", "why"),
    [
        (50, {"accessKey": "short", "secretKey": "secret-2"}, 209, "accessKey must be longer than 6 characters"),
        (50, {"accessKey": "long-enough", "secretKey": "short"}, 209, "secretKey must be longer than 6 characters"),
        (50, {"accessKey": "topic-b-sender", "topicPerms": "a=X"}, 209, "topicPerms: 'X' is not one of DENY, PUB,"),
        (51, {"accessKey": "nobody-1"}, 210, "there is no account nobody-1"),
        (53, {"globalWhiteAddrs": "10.0.0.1", "aclFileFullPath": "/etc/passwd"}, 211, "/etc/passwd is not one of"),
        (53, {"globalWhiteAddrs": "here"}, 211, "globalWhiteRemoteAddresses: 'here' is not an address"),
    ],
)
async def test_a_change_that_cannot_be_is_refused_as_by_rocketmq(scene, code, ext, answer, why):
    reply = await (await connect(scene, "administrator")).call(code, ext)
    assert (reply.code, reply.remark[: len(why)]) == (answer, why)


async def test_what_a_sender_of_rocketmq_leaves_out_of_a_change_stays(scene):
    administrator = await connect(scene, "administrator")
    change = {"accessKey": "topic-b-sender", "secretKey": "a-new-secret", "admin": "false", "defaultTopicPerm": "SUB"}
    assert (await administrator.call(50, change)).code == 0
    client = await connect(scene, "topic-b-sender", "a-new-secret")
    await client.sent(b"hello", "topicB")
    assert (await client.pull("topicA")).code == 17  # it may, but there is no such topic


async def test_without_access_control_there_are_no_accounts(tmp_path):
    async with running(tmp_path / "store") as scene:
        client = await connect(scene)
        for code in (50, 51, 52, 53, 54):
            reply = await client.call(code, {"accessKey": "somebody", "globalWhiteAddrs": "*"})
            assert (reply.code, reply.remark) == (3, f"request type {code} not supported: this broker has no aclEnable")


async def test_without_accounts_a_broker_does_not_start(tmp_path):
    with pytest.raises(ConfigError, match="aclEnable needs accounts: there is neither"):
        async with new_broker(tmp_path / "store", ACL):
            pass


# Slaves


@pytest.mark.parametrize(
    ("sets", "why"),
    [
        ([], "aclEnable needs innerClientAuthenticationCredentials: its master would refuse requests"),
        ([OWN.replace(SECRET, "another-secret")], "the accounts have another secretKey for administrator"),
        ([OWN.replace("administrator", "orders-reader")], "orders-reader must be an administrator without limits"),
    ],
)
async def test_a_slave_needs_an_account_and_says_so_at_the_start(folder, sets, why):
    with pytest.raises(ConfigError, match=why):
        async with new_broker(folder, *SLAVE, ACL, *sets):
            pass


@pytest.mark.slow
async def test_a_slave_signs_what_it_asks_its_master(tmp_path, group):
    for name in ("a", "b"):
        write_accounts(tmp_path / name, account("orders-sender", topics=["orders=PUB"]))
    group.folder = tmp_path
    master = await group.start("a", MASTER, ACL, OWN)
    slave = await group.start("b", *SLAVE, ACL, OWN)
    await (await connect(master, "orders-sender")).sent(b"an order", "orders")
    reader = await connect(slave, "administrator")

    async def copied():
        return await knows_topic(reader, "orders") and await reader.read("orders")

    assert [message.body for message in await eventually(copied)] == [b"an order"]
    assert not master.broker._access.refusals.total
