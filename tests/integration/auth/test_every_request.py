"""Every request code, sent by those who may not: with access control on, nothing passes that should not."""

from __future__ import annotations

import dataclasses

import pytest

from pyromq import broker, controller, namesrv
from pyromq.broker.requests import RULES as BROKER_RULES
from pyromq.controller.requests import RULES as CONTROLLER_RULES
from pyromq.namesrv.requests import RULES as NAMESRV_RULES
from pyromq.protocol.bodies import (
    BatchAck,
    BatchAckMessageRequestBody,
    CheckClientRequestBody,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    LockBatchRequestBody,
    MessageModel,
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    UnlockBatchRequestBody,
    UserInfo,
)
from pyromq.protocol.bodies.heartbeat import ConsumeFromWhere
from pyromq.protocol.codes import RequestCode as Code
from pyromq.protocol.command import Command
from pyromq.protocol.message_queue import MessageQueue
from pyromq.remoting import RemotingClient, SigningHook

NO_PERMISSION = 16
REFUSALS = ("No accessKey", "No acl config", "Check signature failed", "Need admin permission", "No default permission")
ADMIN, VIEWER = ("administrator", "adm1n-s3cret"), ("viewer-only", "v1ewer-s3cret")
ACCOUNTS = f"""
accounts:
- {{accessKey: {ADMIN[0]}, secretKey: {ADMIN[1]}, admin: true, defaultTopicPerm: PUB|SUB, defaultGroupPerm: PUB|SUB}}
- {{accessKey: {VIEWER[0]}, secretKey: {VIEWER[1]}, defaultTopicPerm: DENY, defaultGroupPerm: DENY}}
"""
INNER = f'innerClientAuthenticationCredentials={{"accessKey":"{ADMIN[0]}","secretKey":"{ADMIN[1]}"}}'

# Whatever a request calls its topic and its group: these, on which the viewer has no rights.
TOPIC, GROUP = "secret", "theirs"
FIELDS = {
    **dict.fromkeys(("topic", "b", "originTopic"), TOPIC),
    **dict.fromkeys(("consumerGroup", "group", "groupName", "a", "producerGroup", "srcGroup", "destGroup"), GROUP),
    "compareGroup": GROUP,
    "filterGroups": GROUP,
    "topicList": TOPIC,
}
QUEUE = MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=0)
SUBSCRIPTION = SubscriptionData(topic=TOPIC, sub_string="*")
BODIES = {
    Code.HEART_BEAT: HeartbeatData(
        client_id="c",
        consumer_data_set=[
            ConsumerData(
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
                consume_type=ConsumeType.CONSUME_ACTIVELY,
                group_name=GROUP,
                message_model=MessageModel.CLUSTERING,
                subscription_data_set=[SUBSCRIPTION],
            )
        ],
    ),
    Code.CHECK_CLIENT_CONFIG: CheckClientRequestBody(client_id="c", group=GROUP, subscription_data=SUBSCRIPTION),
    Code.LOCK_BATCH_MQ: LockBatchRequestBody(client_id="c", consumer_group=GROUP, mq_set=[QUEUE]),
    Code.UNLOCK_BATCH_MQ: UnlockBatchRequestBody(client_id="c", consumer_group=GROUP, mq_set=[QUEUE]),
    Code.BATCH_ACK_MESSAGE: BatchAckMessageRequestBody(acks=[BatchAck(consumer_group=GROUP, topic=TOPIC)]),
    Code.QUERY_ASSIGNMENT: QueryAssignmentRequestBody(consumer_group=GROUP, topic=TOPIC),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: SubscriptionGroupConfig(group_name=GROUP),
    Code.SET_MESSAGE_REQUEST_MODE: SetMessageRequestModeRequestBody(consumer_group=GROUP, topic=TOPIC),
}

# What every account of 4.x may ask a broker, whatever its rights: how things are, not what is in messages.
OPEN_TO_ACCOUNTS = {
    Code.GET_ALL_TOPIC_CONFIG,
    Code.GET_BROKER_RUNTIME_INFO,
    Code.GET_ALL_CONSUMER_OFFSET,
    Code.GET_ALL_DELAY_OFFSET,
    Code.GET_TIMER_CHECK_POINT,
    Code.GET_TIMER_METRICS,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    Code.GET_TOPIC_STATS_INFO,
    Code.GET_CONSUMER_CONNECTION_LIST,
    Code.GET_PRODUCER_CONNECTION_LIST,
    Code.GET_CONSUME_STATS,
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    Code.QUERY_TOPIC_CONSUME_BY_WHO,
    Code.QUERY_CONSUME_TIME_SPAN,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    Code.GET_CONSUMER_RUNNING_INFO,
    Code.QUERY_CORRECTION_OFFSET,
    Code.VIEW_BROKER_STATS_DATA,
    Code.GET_BROKER_CONSUME_STATS,
    Code.QUERY_CONSUME_QUEUE,
    Code.GET_ALL_PRODUCER_INFO,
    Code.QUERY_TOPICS_BY_CONSUMER,
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER,
    Code.GET_TOPIC_CONFIG,
    Code.GET_SUBSCRIPTIONGROUP_CONFIG,
    Code.GET_ALL_MESSAGE_REQUEST_MODE,
    Code.GET_BROKER_HA_STATUS,
    Code.GET_BROKER_EPOCH_CACHE,
}
# What every account of 4.x may ask a controller: who is master of a group, and who can be.
OPEN_TO_ACCOUNTS_AT_CONTROLLERS = {
    Code.CONTROLLER_GET_REPLICA_INFO,
    Code.CONTROLLER_GET_METADATA_INFO,
    Code.CONTROLLER_GET_SYNC_STATE_DATA,
    Code.CONTROLLER_GET_NEXT_BROKER_ID,
}
# What a name server refuses to those who are no administrators.
CHANGES = {
    Code.PUT_KV_CONFIG,
    Code.DELETE_KV_CONFIG,
    Code.WIPE_WRITE_PERM_OF_BROKER,
    Code.ADD_WRITE_PERM_OF_BROKER,
    Code.DELETE_TOPIC_IN_NAMESRV,
    Code.UPDATE_NAMESRV_CONFIG,
    Code.GET_NAMESRV_CONFIG,
}


@dataclasses.dataclass
class Asked:
    address: str

    async def __call__(self, code, account=None, **fields):
        hooks = () if account is None else (SigningHook(*account),)
        body = BODIES.get(code)
        async with RemotingClient(hooks=hooks) as client:
            request = Command(code, ext={**FIELDS, **fields}, body=None if body is None else body.encode())
            return await client.invoke(self.address, request, 5)

    async def refuses(self, code, account=None):
        """Whether access control refuses it. Processors have reasons of their own, such as an unknown topic."""
        reply = await self(code, account)
        return reply.code == NO_PERMISSION and (reply.remark or "").startswith(REFUSALS)


@pytest.fixture
async def guarded(tmp_path):
    """A broker with accounts of 4.x."""
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    sets = [
        *("bindAddress=127.0.0.1", "brokerIP1=127.0.0.1", "listenPort=0", "drainSeconds=0", "aclEnable=true"),
        *(f"storePathRootDir={tmp_path / 'store'}", f"brokerConfigPath={tmp_path / 'broker.conf'}"),
        *("mappedFileSizeCommitLog=1m", f"rocketmq.acl.plain.file={file}"),
        INNER,
    ]
    async with broker.Broker(broker.load_settings(environ={}, sets=sets)) as running:
        yield Asked(f"127.0.0.1:{running.port}")


@pytest.fixture
async def guarded_by_users(tmp_path):
    """A broker with users of 5.x: a super user, and one without policies."""
    sets = [
        *("bindAddress=127.0.0.1", "brokerIP1=127.0.0.1", "listenPort=0", "drainSeconds=0"),
        *(f"storePathRootDir={tmp_path / 'store'}", f"brokerConfigPath={tmp_path / 'broker.conf'}"),
        *("mappedFileSizeCommitLog=1m", "authenticationEnabled=true", "authorizationEnabled=true"),
        f'initAuthenticationUser={{"username":"{ADMIN[0]}","password":"{ADMIN[1]}"}}',
        INNER,
    ]
    async with (
        broker.Broker(broker.load_settings(environ={}, sets=sets)) as running,
        RemotingClient(hooks=[SigningHook(*ADMIN)]) as client,
    ):
        address = f"127.0.0.1:{running.port}"
        viewer = UserInfo(username=VIEWER[0], password=VIEWER[1], user_type="Normal")
        request = Command(Code.AUTH_CREATE_USER, ext={"username": VIEWER[0]}, body=viewer.encode())
        assert (await client.invoke(address, request, 5)).code == 0
        yield Asked(address)


@pytest.fixture
async def guarded_name_server(tmp_path):
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    sets = [
        *("bindAddress=127.0.0.1", "listenPort=0", "aclEnable=true", f"rocketmq.acl.plain.file={file}"),
        *(f"kvConfigPath={tmp_path / 'kv.json'}", f"configStorePath={tmp_path / 'namesrv.conf'}"),
    ]
    async with namesrv.NameServer(namesrv.load_settings(environ={}, sets=sets)) as running:
        yield Asked(running.address)


@pytest.fixture(params=["alone", "in a name server"])
async def guarded_controller(request, tmp_path):
    """A controller with accounts of 4.x; in a name server it reads the settings of that."""
    embedded = request.param != "alone"
    async with controller.Controller(controller_settings(tmp_path, "aclEnable=true", embedded=embedded)) as running:
        yield Asked(running.address)


@pytest.fixture
async def controller_guarded_by_users(tmp_path):
    """A controller with users of 5.x, who were accounts of 4.x."""
    on = ["authenticationEnabled=true", "authorizationEnabled=true", "migrateAuthFromV1Enabled=true"]
    async with controller.Controller(controller_settings(tmp_path, *on)) as running:
        yield Asked(running.address)


def controller_settings(folder, *sets, embedded=False):
    file = folder / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    here = ["bindAddress=127.0.0.1", "controllerDLegerPeers=n0-127.0.0.1:0", f"rocketmq.acl.plain.file={file}"]
    files = [f"controllerStorePath={folder}/controller", f"configStorePath={folder}/controller.properties"]
    return controller.load_settings(environ={}, sets=[*here, *files, INNER, *sets], embedded=embedded)


def test_every_code_whose_body_names_resources_has_a_sample():
    assert {code for code, rule in BROKER_RULES.items() if rule.needs.body is not None} == set(BODIES)


async def test_a_broker_does_nothing_for_those_without_an_account(guarded):
    wrong = (ADMIN[0], "wrong-s3cret")
    unknown = ("nobody-knows", ADMIN[1])
    for code in BROKER_RULES:
        assert (await guarded(code)).remark == "No accessKey is configured", code
        assert (await guarded(code, wrong)).remark == f"Check signature failed for accessKey={ADMIN[0]}", code
        assert (await guarded(code, unknown)).remark == "No acl config for nobody-knows", code


async def test_a_broker_refuses_an_account_without_rights_all_that_needs_some(guarded):
    refused = {code for code in BROKER_RULES if await guarded.refuses(code, VIEWER)}
    assert refused == set(BROKER_RULES) - OPEN_TO_ACCOUNTS


async def test_a_broker_refuses_an_administrator_nothing(guarded):
    assert {code for code in BROKER_RULES if await guarded.refuses(code, ADMIN)} == set()


async def test_a_broker_with_users_does_nothing_for_strangers(guarded_by_users):
    for code in BROKER_RULES:
        assert (await guarded_by_users(code)).remark == "username cannot be null.", code
        assert (await guarded_by_users(code, (ADMIN[0], "wrong-s3cret"))).remark == "check signature failed.", code
        assert (await guarded_by_users(code, ("nobody-knows", ADMIN[1]))).remark == "User:nobody-knows is not found."


async def test_a_broker_refuses_a_user_without_policies_everything(guarded_by_users):
    for code in BROKER_RULES:
        reply = await guarded_by_users(code, VIEWER)
        assert reply.code == NO_PERMISSION, code
        assert f"User:{VIEWER[0]} has no permission to access" in reply.remark, code


@pytest.mark.scenario("admin 46")
async def test_a_name_server_is_changed_by_administrators_only(guarded_name_server):
    for account in (None, VIEWER, (ADMIN[0], "wrong-s3cret")):
        refused = {code for code in NAMESRV_RULES if await guarded_name_server.refuses(code, account)}
        assert refused == CHANGES
    assert {code for code in NAMESRV_RULES if await guarded_name_server.refuses(code, ADMIN)} == set()


@pytest.mark.parametrize("account", [None, (ADMIN[0], "wrong-s3cret"), ("nobody-knows", ADMIN[1])])
async def test_a_controller_does_nothing_for_those_without_an_account(guarded_controller, account):
    refused = {code for code in CONTROLLER_RULES if await guarded_controller.refuses(code, account)}
    # Whom to ask is known to everybody.
    assert refused == set(CONTROLLER_RULES) - {Code.CONTROLLER_GET_METADATA_INFO}


async def test_a_controller_is_told_nothing_by_an_account_that_is_no_broker(guarded_controller):
    refused = {code for code in CONTROLLER_RULES if await guarded_controller.refuses(code, VIEWER)}
    assert refused == set(CONTROLLER_RULES) - OPEN_TO_ACCOUNTS_AT_CONTROLLERS
    assert {code for code in CONTROLLER_RULES if await guarded_controller.refuses(code, ADMIN)} == set()


async def test_a_controller_refuses_a_user_without_policies_everything(controller_guarded_by_users):
    ask = controller_guarded_by_users
    for code in CONTROLLER_RULES.keys() - {Code.CONTROLLER_GET_METADATA_INFO}:
        assert (await ask(code)).remark == "username cannot be null.", code
        assert (await ask(code, (ADMIN[0], "wrong-s3cret"))).remark == "check signature failed.", code
        assert f"User:{VIEWER[0]} has no permission to access" in (await ask(code, VIEWER)).remark, code
        assert (await ask(code, ADMIN)).code != NO_PERMISSION, code
