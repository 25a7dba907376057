"""Scenarios of docs/spec/namesrv.md 8 about what admins ask and change."""

from __future__ import annotations

import pytest
from tests.integration.namesrv.raw_client import identity, topic_config

A = "10.0.0.1:10911"
ORDER = "ORDER_TOPIC_CONFIG"


def item(namespace, key, value=None):
    ext = {"namespace": namespace, "key": key}
    return ext if value is None else ext | {"value": value}


@pytest.mark.scenario("namesrv 13")
async def test_a_wiped_perm_survives_registrations_until_the_version_changes(scenes):
    await scenes.reg()
    assert (await scenes.call(205, {"brokerName": "b"})).ext == {"wipeTopicCount": "1"}
    assert await scenes.perm() == 4
    await scenes.reg(on=scenes.brokers[A])
    assert await scenes.perm() == 4
    await scenes.reg(version=2, on=scenes.brokers[A])
    assert await scenes.perm() == 6


@pytest.mark.scenario("namesrv 14")
async def test_a_wiped_perm_can_be_given_back(scenes):
    await scenes.reg()
    await scenes.call(205, {"brokerName": "b"})
    assert (await scenes.call(327, {"brokerName": "b"})).ext == {"addTopicCount": "1"}
    assert await scenes.perm() == 6


@pytest.mark.scenario("namesrv 15")
async def test_topics_that_a_registration_leaves_out_stay(scenes):
    await scenes.reg()
    await scenes.reg(version=2, topics=["T2"], on=scenes.brokers[A])
    assert await scenes.addresses("T") == await scenes.addresses("T2") == {"b": {"0": A}}


@pytest.mark.scenario("namesrv 16")
async def test_a_deleted_topic_stays_away_until_the_version_changes(scenes):
    await scenes.reg()
    assert (await scenes.call(216, {"topic": "T"})).code == 0
    assert (await scenes.route()).code == 17
    await scenes.reg(on=scenes.brokers[A])
    assert (await scenes.route()).code == 17
    await scenes.reg(version=2, on=scenes.brokers[A])
    assert (await scenes.route()).code == 0


@pytest.mark.scenario("namesrv 17")
async def test_a_topic_can_be_deleted_in_one_cluster(scenes):
    await scenes.reg("b1", 0, A, cluster="c1")
    await scenes.reg("b2", 0, "10.0.0.2:10911", cluster="c2")
    assert (await scenes.call(216, {"topic": "T", "clusterName": "c1"})).code == 0
    assert await scenes.addresses() == {"b2": {"0": "10.0.0.2:10911"}}


@pytest.mark.scenario("namesrv 18")
async def test_a_broker_asks_whether_its_version_is_known(scenes):
    await scenes.reg()
    same = await scenes.call(322, identity("b", 0, A), b'{"counter":1,"timestamp":1}')
    assert (same.code, same.ext, same.json) == (0, {"changed": "false"}, {"counter": 1, "timestamp": 1})
    other = await scenes.call(322, identity("b", 0, A), b'{"counter":2,"timestamp":1}')
    assert (other.code, other.ext, other.json) == (0, {"changed": "true"}, {"counter": 1, "timestamp": 1})
    unknown = await scenes.call(322, identity("b", 0, "10.9.9.9:1"), b'{"counter":1,"timestamp":1}')
    assert (unknown.code, unknown.ext, unknown.body) == (0, {"changed": "true"}, None)
    without_body = await scenes.call(322, identity("b", 0, A))
    assert (without_body.code, without_body.ext) == (0, {"changed": "true"})


@pytest.mark.scenario("namesrv 23")
async def test_kv_config_is_set_read_listed_and_deleted(scenes):
    assert (await scenes.call(100, item("ns", "k", "v"))).code == 0
    assert (await scenes.call(101, item("ns", "k"))).ext == {"value": "v"}
    assert (await scenes.call(219, {"namespace": "ns"})).body == b'{"table":{"k":"v"}}'
    assert (await scenes.call(102, item("ns", "k"))).code == 0
    gone = await scenes.call(101, item("ns", "k"))
    assert (gone.code, gone.remark) == (22, "No config item, Namespace: ns Key: k")
    assert gone.header["extFields"] == {}
    assert (await scenes.call(219, {"namespace": "ns"})).body == b'{"table":{}}'
    never = await scenes.call(219, {"namespace": "never"})
    assert (never.code, never.remark) == (22, "No config item, Namespace: never")


@pytest.mark.scenario("namesrv 24")
async def test_kv_config_survives_a_restart(start, tmp_path):
    async with start() as scenes:
        await scenes.call(100, item("ns", "k", "v"))
    assert (tmp_path / "kvConfig.json").read_bytes() == b'{"configTable":{"ns":{"k":"v"}}}'
    async with start() as scenes:
        assert (await scenes.call(101, item("ns", "k"))).ext == {"value": "v"}


async def test_kv_config_without_namespace_key_or_value(scenes):
    for ext in ({"namespace": "ns", "value": "v"}, {"key": "k", "value": "v"}):
        reply = await scenes.call(100, ext)
        assert (reply.code, reply.remark) == (1, "namespace or key is null")
    assert (await scenes.call(219, {"namespace": "ns"})).code == 22
    assert (await scenes.call(100, item("ns", "k"))).code == 0
    assert (await scenes.call(219, {"namespace": "ns"})).body == b'{"table":{}}'


@pytest.mark.scenario("namesrv 25")
async def test_order_topics_reach_brokers_always_and_clients_on_demand(scenes):
    await scenes.call(100, item(ORDER, "T", "b:4"))
    assert (await scenes.reg()).body == b'{"table":{"T":"b:4"}}'
    assert "orderTopicConf" not in (await scenes.route()).json
    assert (await scenes.call(318, body=b"orderMessageEnable=true")).code == 0
    assert (await scenes.route()).json["orderTopicConf"] == "b:4"
    await scenes.call(100, item(ORDER, "T", "b:8"))
    assert (await scenes.route()).json["orderTopicConf"] == "b:8"
    await scenes.call(102, item(ORDER, "T"))
    assert "orderTopicConf" not in (await scenes.route()).json


async def test_order_topics_can_be_kept_from_brokers(start):
    async with start("returnOrderTopicConfigToBroker=false") as scenes:
        await scenes.call(100, item(ORDER, "T", "b:4"))
        assert (await scenes.reg()).body is None


@pytest.mark.scenario("namesrv 26")
async def test_a_black_listed_setting_is_not_changed(scenes, tmp_path):
    reply = await scenes.call(318, body=b"orderMessageEnable=true\nkvConfigPath=/x")
    assert (reply.code, reply.remark) == (16, "Can not update config in black list.")
    lines = (await scenes.call(319)).body.decode().splitlines()
    assert f"kvConfigPath={tmp_path}/kvConfig.json" in lines
    assert "orderMessageEnable=false" in lines
    assert not (tmp_path / "namesrv.properties").exists()


@pytest.mark.scenario("namesrv 27")
async def test_a_changed_setting_is_listed_and_written(scenes, tmp_path):
    assert (await scenes.call(318, body=b"scanNotActiveBrokerInterval=5000\nnobodyKnows=1")).code == 0
    listed = (await scenes.call(319)).body
    lines = listed.decode().splitlines()
    assert "scanNotActiveBrokerInterval=5000" in lines
    assert "listenPort=0" in lines
    assert not any(line.startswith("nobodyKnows") for line in lines)
    assert (tmp_path / "namesrv.properties").read_bytes() == listed


async def test_a_change_of_settings_that_makes_no_sense(scenes):
    assert (await scenes.call(318)).code == 0
    unreadable = await scenes.call(318, body=rb"a=\u12")
    assert (unreadable.code, unreadable.remark) == (1, "string2Properties error")
    malformed = await scenes.call(318, body=b"orderMessageEnable=maybe")
    assert (malformed.code, malformed.remark) == (1, "orderMessageEnable must be true or false, not 'maybe'")


async def test_passwords_are_not_listed(start, tmp_path):
    async with start("tls.server.keyPassword=hush") as scenes:
        assert b"tls.server.keyPassword=******\n" in (await scenes.call(319)).body
        await scenes.call(318, body=b"orderMessageEnable=true")
        assert "tls.server.keyPassword=hush\n" in (tmp_path / "namesrv.properties").read_text()


@pytest.mark.scenario("namesrv 36")
async def test_topics_of_a_cluster_and_system_topics(scenes):
    await scenes.reg()
    assert (await scenes.call(224, {"cluster": "c1"})).json == {"topicList": ["T"]}
    nope = await scenes.call(224, {"cluster": "nope"})
    assert (nope.code, nope.body) == (0, b'{"topicList":[]}')
    system = (await scenes.call(304)).json
    assert {"c1", "b"} <= set(system["topicList"])
    assert system["brokerAddr"] == A


@pytest.mark.scenario("namesrv 37")
async def test_unit_topics_go_by_flag(scenes):
    flags = {"U": 1, "S": 2, "US": 3}
    await scenes.reg(topics={name: topic_config(name, flag=flag) for name, flag in flags.items()})
    lists = [set((await scenes.call(code)).json["topicList"]) for code in (311, 312, 313)]
    assert lists == [{"U", "US"}, {"S", "US"}, {"S"}]


async def test_topic_lists_can_be_refused(scenes):
    await scenes.reg()
    await scenes.call(318, body=b"enableTopicList=false")
    for code in (224, 311, 312, 313):
        reply = await scenes.call(code, {"cluster": "c1"})
        assert (reply.code, reply.remark) == (1, "disable")
    assert (await scenes.call(206)).json == {"topicList": ["T"]}
    await scenes.call(318, body=b"enableAllTopicList=false")
    reply = await scenes.call(206)
    assert (reply.code, reply.remark) == (1, "disable")


@pytest.mark.limit("maxBrokers")
async def test_brokers_are_bounded_and_those_that_are_there_register_again(start):
    async with start("maxBrokers=2") as scenes:
        for number in (1, 2):
            assert (await scenes.reg(f"b{number}", 0, f"10.0.0.{number}:10911")).code == 0
        refused = await scenes.reg("b3", 0, "10.0.0.3:10911")
        remark = "10.0.0.3:10911 is not registered: there are 2 brokers (maxBrokers)"
        assert (refused.code, refused.remark) == (1, remark)
        assert (await scenes.reg("b1", 0, A, version=2)).code == 0
        assert set(await scenes.addresses()) == {"b1", "b2"}
        await scenes.call(104, identity("b2", 0, "10.0.0.2:10911"))
        assert (await scenes.reg("b3", 0, "10.0.0.3:10911")).code == 0


@pytest.mark.limit("maxKvConfigSize")
async def test_the_kv_config_is_bounded_and_may_shrink(start):
    async with start("maxKvConfigSize=2000") as scenes:
        assert (await scenes.call(100, item("n", "a", "x" * 1000))).code == 0
        refused = await scenes.call(100, item("n", "b", "x" * 1000))
        assert refused.code == 1
        assert "at most 2000 (maxKvConfigSize)" in refused.remark
        assert (await scenes.call(101, item("n", "b"))).code == 22
        assert (await scenes.call(318, body=b"maxKvConfigSize=10")).code == 0
        assert (await scenes.call(100, item("n", "a", "x" * 1001))).code == 1
        assert (await scenes.call(100, item("n", "a", "x"))).code == 0
        assert (await scenes.call(102, item("n", "a"))).code == 0


async def test_a_path_is_never_changed_by_a_request(scenes):
    for key in ("configStorePath", "kvConfigPath", "rocketmqHome", "configBlackList"):
        refused = await scenes.call(318, body=f"{key}=/tmp/elsewhere".encode())
        assert (refused.code, refused.remark) == (16, "Can not update config in black list.")
    refused = await scenes.call(318, body=b"tls.server.keyPath=/etc/shadow")
    assert refused.code == 1
    assert "tls.server.keyPath cannot be changed while the server runs; set it in " in refused.remark


async def test_rates_can_be_limited_while_the_name_server_runs(scenes):
    client = await scenes.connect()
    assert (await client.call(318, body=b"maxRequestsPerSecond=3")).code == 0
    codes = [(await client.call(106)).code for _ in range(6)]
    assert codes[:3] == [0] * 3
    assert 2 in codes
