"""The rarer subcommands of `mqadmin` against a real cluster."""

from __future__ import annotations

import json
import re
import threading

import pytest
from tests.integration.broker.command_kit import line_with, started, stop
from tests.integration.cli.cli_kit import send

from pyromq import StartAt
from pyromq.sync import Consumer


@pytest.fixture
def mqadmin(pyromq, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(line):
        return pyromq("mqadmin", *line.split())

    return run


def test_metadata_configs_and_metrics_are_written_to_files(mqadmin, topic, tmp_path, cluster):
    folder = tmp_path / "export"
    mqadmin(f"updateSubGroup -c DefaultCluster -g {topic}-readers -r 3")
    said = mqadmin(f"exportMetadata -c DefaultCluster -f {folder}")
    assert (said.code, said.out) == (0, f"export {folder}/metadata.json success\n")
    metadata = json.loads((folder / "metadata.json").read_text())
    assert metadata["topicConfigTable"][topic]["readQueueNums"] == 4
    assert metadata["subscriptionGroupTable"][f"{topic}-readers"]["retryMaxTimes"] == 3
    assert metadata["exportTime"] > 0
    assert mqadmin(f"exportMetadata -b {cluster.broker.address} -t -f {folder}").code == 0
    assert json.loads((folder / "topic.json").read_text()).keys() == {"exportTime", "topicConfigTable"}
    assert mqadmin(f"exportConfigs -c DefaultCluster -f {folder}").code == 0
    configs = json.loads((folder / "configs.json").read_text())
    assert configs["clusterScale"] == {"namesrvSize": 1, "masterBrokerSize": 1, "slaveBrokerSize": 0}
    assert configs["brokerConfigs"]["broker-a"]["brokerRole"] == "ASYNC_MASTER"
    assert mqadmin(f"exportMetrics -c DefaultCluster -f {folder}").code == 0
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["evaluateReport"]["broker-a"]["runtimeQuota"]["topicSize"] >= 1
    assert metrics["totalData"].keys() == {"totalTps", "totalOneDayNum"}
    assert mqadmin("exportMetadata").code == 2
    (folder / "configs.json").unlink()
    (folder / "configs.json").symlink_to(tmp_path / "elsewhere")
    assert mqadmin(f"exportConfigs -c DefaultCluster -f {folder}").code == 2, "no link is followed"


def test_many_topics_and_groups_are_made_from_a_file(mqadmin, topic, tmp_path, cluster):
    names = [f"{topic}-one", f"{topic}-two"]
    configs = [{"topicName": name, "readQueueNums": 3, "writeQueueNums": 2, "perm": 6} for name in names]
    (tmp_path / "topics.json").write_text(json.dumps(configs))
    address = cluster.broker.address
    line = f"submit batch of topic config to {address} success, please check the result later."
    assert mqadmin("updateTopicList -c DefaultCluster -f topics.json").lines == [line]
    assert '"writeQueueNums":2' in mqadmin(f"topicRoute -t {names[1]}").out
    (tmp_path / "groups.json").write_text(json.dumps([{"groupName": f"{topic}-readers", "retryMaxTimes": 5}]))
    assert address in mqadmin(f"updateSubGroupList -b {address} -f groups.json").out
    assert "retryMaxTimes                           =  5" in mqadmin(f"getConsumerConfig -g {topic}-readers").out
    for text in ("{}", "[1]", "[{}]", "[", ""):
        (tmp_path / "wrong.json").write_text(text)
        ended = mqadmin("updateTopicList -c DefaultCluster -f wrong.json")
        assert (ended.code, ended.err.count("\n")) == (2, 1), text
    assert mqadmin("updateTopicList -c DefaultCluster -f missing.json").code == 2
    assert mqadmin("updateTopicList -f topics.json").code == 2


def test_members_of_a_group_tell_what_they_do(mqadmin, pyromq, topic, tmp_path):
    group = f"{topic}-readers"
    send(pyromq.namesrv, topic, 4)
    came = threading.Event()
    consumer = Consumer(group, namesrv=pyromq.namesrv, start_at=StartAt.FIRST)
    consumer.subscribe(topic, "*", lambda message: came.set())
    consumer.start()
    try:
        assert came.wait(20)
        ended = mqadmin(f"consumerStatus -g {group}")
        assert ended.code == 0, ended.err
        assert ended.lines[0].split() == ["#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile"]
        number, client, version, file = ended.lines[1].split()
        assert (number, version[:1]) == ("1", "V")
        assert "Same subscription in the same group of consumer" in ended.lines
        text = (tmp_path / file).read_text()
        assert f"Topic: {topic} " in text
        one = mqadmin(f"consumerStatus -g {group} -i {client} -s")
        for heading in ("Properties", "Subscription", "Offset", "MQ Detail", "Pop Detail", "RT&TPS", "jstack"):
            assert f"#Consumer {heading}#" in one.lines
        assert "ProcessQueueInfo [commitOffset=" in one.out
    finally:
        consumer.close()
    assert mqadmin(f"consumerStatus -g {group}").code == 3


def test_order_and_assignment_of_queues(mqadmin, topic):
    assert mqadmin(f"updateOrderConf -t {topic} -m get").code == 3
    put = mqadmin(f"updateOrderConf -t {topic} -m put -v broker-a:4")
    assert put.lines == [f"update orderConf success. topic=[{topic}], orderConf=[broker-a:4]"]
    got = mqadmin(f"updateOrderConf -t {topic} -m get")
    assert got.lines == [f"get orderConf success. topic=[{topic}], orderConf=[broker-a:4] "]
    assert mqadmin(f"updateOrderConf -t {topic} -m delete").code == 0
    assert mqadmin(f"updateOrderConf -t {topic} -m put").code == 2
    assert mqadmin(f"updateOrderConf -t {topic} -m turn").code == 2
    shares = mqadmin(f"allocateMQ -t {topic} -i 10.0.0.1,10.0.0.2,10.0.0.3").json["result"]
    assert {address: len(queues) for address, queues in shares.items()} == {
        "10.0.0.1": 2,
        "10.0.0.2": 1,
        "10.0.0.3": 1,
    }
    assert shares["10.0.0.1"][0] == {"brokerName": "broker-a", "queueId": 0, "topic": topic}


def test_entries_of_a_consume_queue(mqadmin, pyromq, topic, cluster):
    send(pyromq.namesrv, topic, 8)
    ended = mqadmin(f"queryCq -t {topic} -q 0 -i 0 -c 2 -b {cluster.broker.address} -g {topic}-readers")
    assert ended.code == 0, ended.err
    assert "max: 2, min: 0" in ended.lines
    assert ended.out.count("ConsumeQueueData{physicOffset=") == 2
    assert mqadmin(f"queryCq -t {topic} -q 0 -i 0 -b 127.0.0.1:1").code == 3


def test_sends_are_timed(mqadmin, topic):
    ended = mqadmin(f"checkMsgSendRT -t {topic} -a 5 -s 10")
    assert ended.lines[0].split() == ["#Broker", "Name", "#QID", "#Send", "Result", "#RT"]
    assert [line.split()[:3] for line in ended.lines[1:6]] == [["broker-a", str(n % 4), "true"] for n in range(5)]
    assert re.fullmatch(r"Avg RT: \d+\.\d\d", ended.lines[-1])
    ended = mqadmin("sendMsgStatus -b broker-a -c 2")
    assert len(ended.lines) == 2
    assert re.fullmatch(r"rt=\d+ms, SendResult=SendResult \[sendStatus=SEND_OK, msgId=\w+, .*\]", ended.lines[0])
    assert mqadmin(f"checkMsgSendRT -t {topic} -a 0").code == 2
    assert mqadmin("sendMsgStatus -b no-such-broker -c 1").code == 3


def test_what_is_expired_is_deleted_at_once(mqadmin, cluster):
    for line in ("cleanExpiredCQ", "cleanUnusedTopic -c DefaultCluster"):
        assert mqadmin(line).lines == ["success"]
    assert mqadmin(f"deleteExpiredCommitLog -b {cluster.broker.address}").lines == ["success"]
    assert mqadmin("cleanExpiredCQ -c NoSuchCluster").code == 3


def test_name_servers_are_changed(mqadmin, pyromq):
    ended = mqadmin("updateNamesrvConfig -k clusterTest -v false")
    assert ended.lines == [f"update name server config success![{pyromq.namesrv}]", "clusterTest : false"]
    assert mqadmin("updateKvConfig -s shop -k currency -v EUR").lines == [
        "create or update kv config to namespace success."
    ]
    assert pyromq("namesrv", "kv", "get", "shop", "currency", "-o", "json").json == {"currency": "EUR"}
    assert mqadmin("deleteKvConfig -s shop -k currency").lines == ["delete kv config from namespace success."]
    assert pyromq("namesrv", "kv", "get", "shop", "currency").code == 3


def test_the_mode_of_a_group_is_set(mqadmin, topic, cluster):
    assert mqadmin(f"setConsumeMode -c DefaultCluster -t {topic} -g poppers -m POP -q 1").lines == [
        f"set consume mode to {cluster.broker.address} success.",
        f"topic[{topic}] group[poppers] consume mode[POP] popShareQueueNum[1]",
    ]
    assert mqadmin(f"setConsumeMode -c DefaultCluster -t {topic} -g poppers -m PUSH").code == 2
    assert mqadmin(f"setConsumeMode -t {topic} -g poppers -m POP").code == 2


@pytest.mark.slow
def test_monitoring_and_cluster_times_go_on_until_ctrl_c(mqadmin, pyromq, topic, tmp_path):
    group = f"{topic}-behind"
    send(pyromq.namesrv, topic, 1)
    pyromq("message", "consume", topic, "-g", group, "--count", "1", "--idle", "20")
    send(pyromq.namesrv, topic, 3)
    undone = f"UndoneMsgs [consumerGroup={group}, topic={topic}, undoneMsgsTotal=3, undoneMsgsSingleMQ="
    with started(tmp_path, "mqadmin", "startMonitoring", "-n", pyromq.namesrv) as monitor:
        line_with(monitor, undone)
        line_with(monitor, "endRound")
        assert stop(monitor)[0] == 130
    asked = ("clusterRT", "-a", "2", "-c", "DefaultCluster", "-n", pyromq.namesrv)
    with started(tmp_path, "mqadmin", *asked) as times:
        heading, row = times.stdout.readline(), line_with(times, "DefaultCluster")
        assert stop(times)[0] == 130
    assert heading.split() == ["#Cluster", "Name", "#Broker", "Name", "#RT", "#successCount", "#failCount"]
    assert [*row.split()[:2], *row.split()[3:]] == ["DefaultCluster", "broker-a", "2", "0"]
    assert mqadmin("clusterRT -c NoSuchCluster").code == 3
