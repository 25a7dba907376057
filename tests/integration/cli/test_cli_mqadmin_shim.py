"""`mqadmin` by its classic names against a real cluster: what is printed where, and the exit codes."""

from __future__ import annotations

import pytest
from tests.integration.cli.cli_kit import Commands


@pytest.fixture
def mqadmin(pyromq):
    def run(line):
        return pyromq("mqadmin", *line.split())

    return run


def table(ended):
    """The headings on one line with single blanks, and the words of each row."""
    assert ended.code == 0, ended.err
    headings = next(line for line in ended.lines if line.startswith("#"))
    rows = [line.split() for line in ended.lines[ended.lines.index(headings) + 1 :] if line.strip()]
    return " ".join(headings.split()), rows


@pytest.mark.scenario("admin 8")
def test_names_are_matched_without_regard_to_case(mqadmin, cluster):
    headings, [row] = table(mqadmin("CLUSTERLIST"))
    assert headings == (
        "#Cluster Name #Broker Name #BID #Addr #Version #InTPS(LOAD) #OutTPS(LOAD) "
        "#Timer(Progress) #PCWait(ms) #Hour #SPACE #ACTIVATED"
    )
    assert row[:4] == ["DefaultCluster", "broker-a", "0", cluster.broker.address]
    _, [totals] = table(mqadmin("clusterlist -m"))
    assert len(totals) == 6


def test_a_topic_is_made_seen_and_deleted(mqadmin):
    made = mqadmin("updateTopic -c DefaultCluster -t classic -r 4 -w 3 -p 6")
    assert made.code == 0
    assert "readQueueNums=4, writeQueueNums=3, perm=RW-" in made.out
    assert "classic" in mqadmin("topicList").lines
    assert '"readQueueNums":4' in mqadmin("topicRoute -t classic").out
    assert mqadmin("topicRoute -t classic -l").lines[-1].split() == ["Total:", "1", "4", "3"]
    headings, rows = table(mqadmin("topicStatus -t classic"))
    assert headings == "#Broker Name #QID #Min Offset #Max Offset #Last Updated"
    assert next(row[:4] for row in rows if row[0] == "broker-a") == ["broker-a", "0", "0", "0"]
    assert "update topic perm from 6 to 4" in mqadmin("updateTopicPerm -t classic -c DefaultCluster -p 4").out
    assert mqadmin("topicClusterList -t classic").lines == ["DefaultCluster"]
    assert mqadmin("deleteTopic -t classic -c DefaultCluster").code == 0
    assert mqadmin("topicStatus -t classic").code == 3


def test_a_message_is_sent_found_and_printed(mqadmin, topic):
    headings, [[broker, queue, status, name]] = table(mqadmin(f"sendMessage -t {topic} -p hello -c red -k key-1"))
    assert headings == "#Broker Name #QID #Send Result #MsgId"
    assert (broker, status) == ("broker-a", "SEND_OK")
    assert mqadmin(f"queryMsgByKey -t {topic} -k key-1").lines[1].split()[:3] == [name, queue, "0"]
    for line in (
        f"queryMsgById -t {topic} -i {name}",
        f"queryMsgByUniqueKey -t {topic} -i {name}",
        f"queryMsgByOffset -t {topic} -b broker-a -i {queue} -o 0",
    ):
        ended = mqadmin(line)
        assert ended.code == 0, ended.err
        fields = {key: value.strip() for key, _, value in (each.partition(":") for each in ended.lines)}
        assert (fields["Tags"], fields["Keys"], fields["Queue ID"]) == ("[red]", "[key-1]", queue)
        with open(fields["Message Body Path"], "rb") as file:  # noqa: PTH123
            assert file.read() == b"hello"
        assert "WARN: No Consumer" in ended.out
    assert "Message Body:        hello" in mqadmin(f"queryMsgById -t {topic} -i {name} -f UTF-8").out
    assert f"MSGID: {name} MessageExt [brokerName=broker-a" in mqadmin(f"printMsg -t {topic}").out
    assert "BODY: hello" in mqadmin(f"printMsg -t {topic} -s red").out
    assert "MSGID" not in mqadmin(f"printMsg -t {topic} -s blue").out
    assert "NOT PRINT BODY" in mqadmin(f"printMsg -t {topic} -d false").out
    assert mqadmin(f"printMsgByQueue -t {topic} -a broker-a -i {queue} -f true").lines == [f"Tag: {'red':<30} Count: 1"]
    assert "Consume ok" in mqadmin(f"consumeMessage -t {topic} -c 1").lines
    assert "originalMsgId" in mqadmin(f"queryMsgById -t {topic} -i {name} -s true").out
    assert mqadmin(f"queryMsgById -t {topic} -i {name} -f no-such-encoding").code == 2
    assert mqadmin(f"consumeMessage -t {topic} -i 0").code == 2


def test_a_group_is_made_seen_and_moved(mqadmin, pyromq, topic):
    group = f"group-of-{topic}"
    assert "retryMaxTimes=3" in mqadmin(f"updateSubGroup -c DefaultCluster -g {group} -r 3").out
    assert "retryMaxTimes                           =  3" in mqadmin(f"getConsumerConfig -g {group}").out
    for _ in range(4):
        mqadmin(f"sendMessage -t {topic} -p x")
    pyromq("message", "consume", topic, "-g", group, "--count", "4", "--idle", "20")
    headings, rows = table(mqadmin(f"consumerProgress -g {group}"))
    assert headings == ("#Topic #Broker Name #QID #Broker Offset #Consumer Offset #Diff #Inflight #LastTime")
    assert sum(int(row[4]) for row in rows if row[0] == topic) == 4
    assert "Consume Diff Total: 0" in mqadmin(f"consumerProgress -g {group} -s true").lines
    headings, rows = table(mqadmin("consumerProgress"))
    assert headings == "#Group #Count #Version #Type #Model #TPS #Diff Total"
    assert [group, "0", "OFFLINE", "0", "0"] in rows
    assert mqadmin(f"consumerConnection -g {group}").code == 3
    headings, rows = table(mqadmin(f"resetOffsetByTime -g {group} -t {topic} -s 0"))
    assert headings.split()[-1] == "#resetOffset"
    assert sum(int(row[5]) for row in rows) == 0
    headings, rows = table(mqadmin(f"skipAccumulatedMessage -g {group} -t {topic}"))
    assert sum(int(row[5]) for row in rows) == 4
    headings, [row] = table(mqadmin(f"statsAll -t {topic}"))
    assert headings == "#Topic #Consumer Group #Accumulation #InTPS #OutTPS #InMsg24Hour #OutMsg24Hour"
    assert row[:3] == [topic, group, "0"]
    assert "clone group offset success" in mqadmin(f"cloneGroupOffset -s {group} -d {group}-copy -t {topic}").out
    assert mqadmin(f"deleteSubGroup -g {group} -c DefaultCluster").code == 0


def test_brokers_are_looked_at_and_changed(mqadmin, cluster):
    address = cluster.broker.address
    assert any(line.startswith("brokerVersionDesc") for line in mqadmin(f"brokerStatus -b {address}").lines)
    assert mqadmin("brokerStatus -c DefaultCluster").lines[0].startswith(address)
    assert mqadmin(f"updateBrokerConfig -b {address} -k fileReservedTime -v 48").code == 0
    assert f"{'fileReservedTime':<50}=  48" in mqadmin(f"getBrokerConfig -b {address}").lines
    assert mqadmin("getBrokerConfig -c DefaultCluster").lines[0] == f"============Master: {address}============"
    assert mqadmin("getBrokerConfig").code == 2
    assert mqadmin(f"brokerConsumeStats -b {address}").lines[-1].startswith("Diff Total: ")
    assert "OK, " in mqadmin("wipeWritePerm -b broker-a").out
    assert "OK, " in mqadmin("addWritePerm -b broker-a").out
    assert mqadmin("getNamesrvConfig").lines[0] == f"============{cluster.namesrv}============"
    assert mqadmin(f"producer -b {address}").code == 0


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("topicStatus -t no-such-topic", 3),
        ("topicStatus", 2),
        ("updateTopic -t x", 2),
        ("updateTopic -t x -c NoSuchCluster", 3),
        ("updateTopic -t x -c DefaultCluster -a nonsense", 2),
        ("queryMsgByKey -t TBW102 -k nothing", 3),
        ("resetOffsetByTime -g g -t TBW102 -s yesterday", 2),
        ("clusterList -c NoSuchCluster", 3),
    ],
)
def test_failures_end_with_our_codes_and_one_line(mqadmin, line, code):
    ended = mqadmin(line)
    assert ended.code == code
    assert "Traceback" not in ended.err


@pytest.mark.scenario("admin 9")
def test_a_name_server_that_is_down_ends_with_five(capsys):
    nowhere = Commands(capsys, "127.0.0.1:1")
    for words in (("mqadmin", "topicList"), ("message", "list", "orders"), ("dlq", "list")):
        ended = nowhere(*words)
        assert ended.code == 5
        assert ended.err.count("\n") == 1
