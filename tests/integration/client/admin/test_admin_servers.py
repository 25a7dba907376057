"""Brokers, name servers and access control by the admin client."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.integration.broker.life_kit import new_name_server
from tests.integration.client.admin.admin_kit import GROUP, TOPIC, commit, queue, send
from tests.integration.client.admin.stage import name_server_for
from tests.integration.client.cluster_kit import Spy

from pyromq.client.admin import Account, Acl, AdminClient, Policy, PolicyEntry, User
from pyromq.client.admin.fan_out import within
from pyromq.errors import (
    BrokerError,
    ConnectFailed,
    NoPermission,
    PartialFailure,
    QueryNotFound,
    RemoteProtocolError,
    RequestCodeNotSupported,
    RouteNotFound,
    ServerError,
)
from pyromq.protocol.bodies import DataVersion
from pyromq.protocol.codes import RequestCode

# Brokers


async def test_the_brokers_of_all_clusters(cluster, admin):
    await cluster.start_broker("broker-b")
    info = await admin.brokers.cluster_info()
    assert info.cluster_addr_table == {"DefaultCluster": ["broker-a", "broker-b"]}
    assert info.broker_addr_table["broker-b"].broker_addrs == {0: cluster.address("broker-b")}


async def test_a_setting_is_changed_on_all_brokers(cluster, admin):
    await cluster.start_broker("broker-b")
    assert (await admin.brokers.config("broker-a"))["brokerName"] == "broker-a"
    assert len(await admin.brokers.set_config({"fileReservedTime": "10"})) == 2
    for broker in ("broker-a", cluster.address("broker-b")):
        assert (await admin.brokers.config(broker))["fileReservedTime"] == "10"
    await admin.brokers.set_config({"fileReservedTime": "11"}, brokers="broker-b")
    assert (await admin.brokers.config("broker-a"))["fileReservedTime"] == "10"
    with pytest.raises(NoPermission):
        await admin.brokers.set_config({"brokerConfigPath": "x"}, brokers="broker-a")
    with pytest.raises(RouteNotFound):
        await admin.brokers.config("broker-z")


async def test_a_deadline_ends_a_change_with_who_made_it_and_who_is_silent(cluster, admin):
    """Before, everything ended in a bare TimeoutError, and nobody knew which broker had the setting."""

    async def say_nothing(reader, writer):
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        silent = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(PartialFailure) as caught:
            async with within(0.2):
                await admin.brokers.set_config({"fileReservedTime": "12"}, brokers=["broker-a", silent])
        [(who, error)] = caught.value.failures
        assert (caught.value.done, who) == ((cluster.address(),), silent)
        assert str(error) == f"{silent}: no answer within 0.2 s"
        await admin.client.close()
    assert (await cluster.peer.ask(cluster.address(), RequestCode.GET_BROKER_CONFIG)).body_bytes.count(
        b"fileReservedTime=12"
    )


async def test_the_figures_of_a_broker(cluster, admin, topic):
    await send(cluster)
    runtime = await admin.brokers.runtime("broker-a")
    assert runtime["msgPutTotalTodayNow"] == "1"
    assert {"brokerVersionDesc", "putTps", "commitLogDiskRatio"} <= runtime.keys()
    assert (await admin.brokers.stats("broker-a", "TOPIC_PUT_NUMS", topic)).stats_minute.sum >= 0
    with pytest.raises(ServerError, match="not exist"):
        await admin.brokers.stats("broker-a", "TOPIC_PUT_NUMS", "missing")


async def test_how_far_all_groups_are_on_one_broker(cluster, admin, topic):
    await send(cluster)
    await admin.groups.create(GROUP)
    await commit(admin, {0: 0})
    stats = await admin.brokers.consume_stats("broker-a")
    assert stats.total_diff == 1
    [by_topic] = [group[GROUP] for group in stats.consume_stats_list if GROUP in group]
    assert by_topic[0].offset_table[queue(0)].broker_offset == 1
    assert (await admin.brokers.consume_stats("broker-a", ordered=True)).total_diff == 0


async def test_brokers_clean_up(cluster, admin):
    for clean in (admin.brokers.clean_queues, admin.brokers.clean_topics, admin.brokers.clean_log):
        assert await clean() == [cluster.address()]
        assert await clean(brokers="broker-a") == [cluster.address()]


async def test_a_broker_is_taken_out_of_writing_and_put_back(cluster, admin, topic):
    counts = await admin.brokers.wipe_write_perm("broker-a")
    assert counts[cluster.namesrv] > 1
    [queues] = (await admin.topics.route(topic)).queue_datas
    assert queues.perm == 4
    assert await admin.brokers.add_write_perm("broker-a") == counts
    [queues] = (await admin.topics.route(topic)).queue_datas
    assert queues.perm == 6


# Name servers


async def test_keys_of_the_name_servers(admin):
    with pytest.raises(QueryNotFound):
        await admin.namesrv.list_kv("space")
    await admin.namesrv.put_kv("space", "key", "välue")
    assert await admin.namesrv.get_kv("space", "key") == "välue"
    assert await admin.namesrv.list_kv("space") == {"key": "välue"}
    await admin.namesrv.delete_kv("space", "key")
    await admin.namesrv.delete_kv("space", "key")
    with pytest.raises(QueryNotFound):
        await admin.namesrv.get_kv("space", "key")


async def test_the_settings_of_the_name_servers(cluster, admin):
    assert (await admin.namesrv.config())[cluster.namesrv]["orderMessageEnable"] == "false"
    await admin.namesrv.set_config({"orderMessageEnable": "true"})
    assert (await admin.namesrv.config())[cluster.namesrv]["orderMessageEnable"] == "true"


async def test_every_name_server_is_told(tmp_path, cluster):
    folder = tmp_path / "second"
    folder.mkdir()
    async with new_name_server(folder) as second:
        addresses = [cluster.namesrv, f"127.0.0.1:{second.port}"]
        async with AdminClient(";".join(addresses)) as admin:
            await admin.namesrv.put_kv("space", "key", "value")
        for address in addresses:
            async with AdminClient(address) as admin:
                assert await admin.namesrv.get_kv("space", "key") == "value"


async def test_a_name_server_that_is_down_is_named(cluster):
    async with AdminClient([cluster.namesrv, "127.0.0.1:1"]) as admin:
        with pytest.raises(PartialFailure) as caught:
            await admin.namesrv.put_kv("space", "key", "value")
        assert caught.value.done == (cluster.namesrv,)
        [(address, error)] = caught.value.failures
        assert address == "127.0.0.1:1"
        assert isinstance(error, ConnectFailed)
        # A question goes to whoever is there.
        assert await admin.namesrv.get_kv("space", "key") == "value"
        with pytest.raises(PartialFailure) as caught:
            await admin.namesrv.config()
        assert list(caught.value.partial) == [cluster.namesrv]


# Access control


async def test_a_broker_without_access_control_says_so(admin):
    for asked in (lambda: admin.acl.delete_account("key"), admin.acl.versions):
        with pytest.raises(RequestCodeNotSupported):
            await asked()
    for asked in (lambda: admin.acl.users("broker-a"), lambda: admin.acl.acl("broker-a", "User:x")):
        with pytest.raises(ServerError, match="This broker has no users: authenticationEnabled is false"):
            await asked()


@pytest.fixture
async def stage():
    """An admin client with a broker that answers as the test says, by `answers`: code to body or header."""
    answers: dict[int, tuple[bytes | None, dict[str, str] | None]] = {}

    def answer(connection, request):
        body, ext = answers.get(request.code, (None, None))
        reply = request.reply(body=body)
        reply.ext = ext
        return reply

    codes = [*range(50, 54), *range(3001, 3011)]
    async with (
        Spy(dict.fromkeys(codes, answer)) as broker,
        Spy(name_server_for(broker)) as name_server,
        AdminClient(name_server.address) as admin,
    ):
        yield admin, broker, answers


def last(broker):
    request = broker.requests[-1]
    return request.code, request.ext, json.loads(request.body_bytes) if request.body_bytes else None


async def test_accounts_of_4_9_are_sent_as_its_tools_send_them(stage):
    admin, broker, answers = stage
    account = Account(
        access_key="somebody", secret_key="12345678", topic_perms=("a=PUB", "b=SUB"), group_perms=("g=SUB",), admin=True
    )
    assert await admin.acl.set_account(account, cluster="c") == [broker.address]
    assert last(broker) == (
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        {
            "accessKey": "somebody",
            "secretKey": "12345678",
            "whiteRemoteAddress": "",
            "admin": "true",
            "defaultTopicPerm": "DENY",
            "defaultGroupPerm": "DENY",
            "topicPerms": "a=PUB,b=SUB",
            "groupPerms": "g=SUB",
        },
        None,
    )
    assert "12345678" not in repr(account)
    await admin.acl.delete_account("somebody")
    assert last(broker) == (RequestCode.DELETE_ACL_CONFIG, {"accessKey": "somebody"}, None)
    await admin.acl.set_white_addresses(["10.0.0.*", "10.1.0.1"], file="/conf/acl.yml")
    assert last(broker) == (
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        {"globalWhiteAddrs": "10.0.0.*,10.1.0.1", "aclFileFullPath": "/conf/acl.yml"},
        None,
    )
    answers[RequestCode.GET_BROKER_CLUSTER_ACL_INFO] = (
        None,
        {
            "brokerName": "broker-a",
            "brokerAddr": broker.address,
            "clusterName": "c",
            "version": '{"counter":3,"timestamp":5}',
            "allAclFileVersion": '{"/conf/plain_acl.yml":{"counter":3,"timestamp":5}}',
        },
    )
    [version] = (await admin.acl.versions()).values()
    assert (version.broker_name, version.cluster) == ("broker-a", "c")
    assert version.version == DataVersion(counter=3, timestamp=5)
    assert version.files == {"/conf/plain_acl.yml": version.version}


async def test_users_of_5_x_are_sent_and_read(stage):
    admin, broker, answers = stage
    user = User(username="somebody", password="secret", user_type="Normal", user_status="enable")
    text = {"username": "somebody", "password": "secret", "userType": "Normal", "userStatus": "enable"}
    for change, code in ((admin.acl.create_user, 3001), (admin.acl.update_user, 3002)):
        assert await change(user) == [broker.address]
        assert last(broker) == (code, {"username": "somebody"}, text)
    assert "secret" not in repr(user)
    await admin.acl.delete_user("somebody", brokers="broker-a")
    assert last(broker) == (3003, {"username": "somebody"}, None)
    answers[3004] = json.dumps(text).encode(), None
    assert await admin.acl.user("broker-a", "somebody") == user
    answers[3005] = json.dumps([text]).encode(), None
    assert await admin.acl.users(broker.address, "some") == [user]
    assert last(broker) == (3005, {"filter": "some"}, None)
    del answers[3004], answers[3005]
    with pytest.raises(BrokerError) as caught:
        await admin.acl.user("broker-a", "nobody")
    assert caught.value.code == 3001
    assert await admin.acl.users("broker-a") == []
    answers[3005] = b'{"no":"list"}', None
    with pytest.raises(RemoteProtocolError):
        await admin.acl.users("broker-a")


async def test_policies_of_5_x_are_sent_and_read(stage):
    admin, broker, answers = stage
    entry = PolicyEntry(resource=f"Topic:{TOPIC}", actions=["Pub"], source_ips=["10.0.0.1"], decision="Allow")
    acl = Acl(subject="User:somebody", policies=[Policy(policy_type="Custom", entries=[entry])])
    text = {
        "subject": "User:somebody",
        "policies": [
            {
                "policyType": "Custom",
                "entries": [
                    {
                        "resource": "Topic:orders",
                        "actions": ["Pub"],
                        "sourceIps": ["10.0.0.1"],
                        "decision": "Allow",
                    }
                ],
            }
        ],
    }
    for change, code in ((admin.acl.create_acl, 3006), (admin.acl.update_acl, 3007)):
        await change(acl)
        assert last(broker) == (code, {"subject": "User:somebody"}, text)
    await admin.acl.delete_acl("User:somebody", resource="Topic:orders", policy_type="Custom")
    assert last(broker)[1] == {"subject": "User:somebody", "policyType": "Custom", "resource": "Topic:orders"}
    answers[3009] = json.dumps(text).encode(), None
    assert await admin.acl.acl("broker-a", "User:somebody") == acl
    answers[3010] = json.dumps([text]).encode(), None
    assert await admin.acl.acls("broker-a", subject="User", resource="orders") == [acl]
    assert last(broker)[1] == {"subjectFilter": "User", "resourceFilter": "orders"}
    del answers[3009]
    with pytest.raises(BrokerError) as caught:
        await admin.acl.acl("broker-a", "User:nobody")
    assert caught.value.code == 3002
