"""Messages are protected on every way by which a broker gives them away, and not only on that of pulls."""

from __future__ import annotations

import json
import time

import pytest
from tests.integration.auth.users.test_user_requests import Someone
from tests.integration.broker.account_kit import SECRET, account, connect, write_accounts
from tests.integration.broker.scene_kit import heartbeat, messages_in, running, send_ext

CHECK_TRANSACTION_STATE, CONSUME_DIRECTLY, RESUME_CHECK, PUSH_REPLY = 39, 309, 323, 326
QUICKLY = ("transactionTimeOut=1", "transactionCheckInterval=50")
USERS = (
    "authenticationEnabled=true",
    "authorizationEnabled=true",
    f'initAuthenticationUser={{"username":"root","password":"{SECRET}"}}',
    f'innerClientAuthenticationCredentials={{"accessKey":"replica","secretKey":"{SECRET}"}}',
)
POLICIES = {
    "owner-of-secrets": ["Topic:secrets", "Group:theirs"],
    "neighbour": ["Topic:mine", "Group:mine"],
}


@pytest.fixture
async def by_users(tmp_path):
    """A broker of which two users share nothing: one has the topic `secrets`, the other `mine`."""
    async with running(tmp_path / "store", *USERS, *QUICKLY) as scene, Someone("root", SECRET) as root:
        at = f"127.0.0.1:{scene.port}"
        for name, resources in POLICIES.items():
            await root.create_user(at, name, SECRET)
            for resource in resources:
                await root.grant(at, name, resource)
        yield scene


@pytest.fixture
async def by_accounts(tmp_path):
    write_accounts(
        tmp_path / "store",
        account("owner-of-secrets", topics=["secrets=PUB|SUB"], groups=["theirs=SUB"]),
        account("neighbour", topics=["mine=PUB|SUB"], groups=["mine=SUB"]),
    )
    async with running(tmp_path / "store", "aclEnable=true", *QUICKLY) as scene:
        yield scene


@pytest.fixture(params=["users", "accounts"])
def scene(request):
    return request.getfixturevalue(f"by_{request.param}")


def refusal(reply):
    assert reply.code == 16, reply
    return reply.remark


async def test_nobody_has_messages_of_others_consumed_by_their_own_consumer(by_users):
    owner, neighbour = await connect(by_users, "owner-of-secrets"), await connect(by_users, "neighbour")
    sent = await owner.sent(b"a secret", "secrets")
    await neighbour.beat("c1", ["mine"], ["mine"])
    ask = {"consumerGroup": "mine", "clientId": "c1", "msgId": sent.ext["msgId"], "topic": "mine"}
    assert "no permission to access Topic:secrets" in refusal(await neighbour.call(CONSUME_DIRECTLY, ask))
    own = await neighbour.sent(b"my own", "mine")
    opaque = neighbour.ask(CONSUME_DIRECTLY, ask | {"msgId": own.ext["msgId"]})
    asked = await neighbour.request(CONSUME_DIRECTLY)
    assert [message.body for message in messages_in(asked.body)] == [b"my own"]
    neighbour.answer(asked, b"{}")
    assert (await neighbour.answer_to(opaque)).code == 0


async def test_nobody_has_messages_of_others_checked_again(by_users):
    owner, neighbour = await connect(by_users, "owner-of-secrets"), await connect(by_users, "neighbour")
    sent = await owner.sent(b"a secret", "secrets")
    for ext in ({"topic": "mine"}, {"topic": "secrets"}):
        reply = await neighbour.call(RESUME_CHECK, ext | {"msgId": sent.ext["msgId"]})
        assert "no permission to access Topic:secrets" in refusal(reply)
    # The real topic of a message is what the broker wrote, and not what its sender did.
    posing = await neighbour.sent(b"mine?", "mine", properties={"REAL_TOPIC": "secrets", "REAL_QID": "0"})
    reply = await neighbour.call(RESUME_CHECK, {"topic": "mine", "msgId": posing.ext["msgId"]})
    assert "no permission to access Topic:secrets" in refusal(reply)
    assert (await owner.call(RESUME_CHECK, {"topic": "secrets", "msgId": sent.ext["msgId"]})).code == 0


async def test_half_messages_are_shown_to_those_only_who_may_publish_to_their_topic(scene):
    """Whoever says to be a producer of a group is asked about its transactions, and sees the messages."""
    owner, neighbour = await connect(scene, "owner-of-secrets"), await connect(scene, "neighbour")
    for client, name in ((neighbour, "n1"), (owner, "o1")):
        await produces(client, name, "payers")
    born = time.time_ns() // 1_000_000
    await owner.sent(b"half", "secrets", properties={"TRAN_MSG": "true", "PGROUP": "payers"}, f=4, g=born)
    # They take turns: the second question would be the neighbour's.
    for _ in range(3):
        asked = await owner.request(CHECK_TRANSACTION_STATE)
        assert [message.body for message in messages_in(asked.body)] == [b"half"]
    await neighbour.call(26)
    assert neighbour.asked == []


async def produces(client, client_id, group):
    body = json.loads(heartbeat(client_id, groups=()))
    body["producerDataSet"] = [{"groupName": group}]
    assert (await client.call(34, body=json.dumps(body).encode())).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("properties", [{"DELAY": "1"}, {"TRAN_MSG": "true", "PGROUP": "p"}, {"TIMER_DELAY_MS": "10"}])
async def test_a_message_on_a_detour_goes_where_its_sender_may_send(scene, properties):
    """A sender may write any property, also those in which the broker keeps the real topic meanwhile."""
    owner, neighbour = await connect(scene, "owner-of-secrets"), await connect(scene, "neighbour")
    await owner.sent(b"there is a topic", "secrets")
    posing = properties | {"REAL_TOPIC": "secrets", "REAL_QID": "0"}
    half = await neighbour.sent(b"planted", "mine", properties=posing)
    if "PGROUP" in properties:
        end = {"producerGroup": "p", "commitOrRollback": 8, "tranStateTableOffset": half.ext["queueOffset"]}
        reply = await neighbour.call(37, end | {"commitLogOffset": int(half.ext["msgId"][-16:], 16)})
        assert reply.code == 0, reply
    assert (await neighbour.first("mine", group="mine")).body == b"planted"
    assert [message.body for message in await owner.read("secrets", group="theirs")] == [b"there is a topic"]


async def test_a_reply_goes_to_the_account_that_has_its_client_id(scene):
    """Ids of clients are no secret: any account can be told those of others."""
    owner, neighbour = await connect(scene, "owner-of-secrets"), await connect(scene, "neighbour")
    for client in (owner, neighbour, neighbour):
        await produces(client, "client-of-owner", "askers")
    properties = {"REPLY_TO_CLIENT": "client-of-owner", "CORRELATION_ID": "1"}
    opaque = owner.ask(325, send_ext("DefaultCluster_REPLY_TOPIC", 0, properties=properties), b"an answer")
    asked = await owner.request(PUSH_REPLY)
    assert asked.body == b"an answer"
    owner.answer(asked)
    assert (await owner.answer_to(opaque)).code == 0
    assert neighbour.asked == []
