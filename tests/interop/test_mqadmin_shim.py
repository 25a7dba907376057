"""Our `mqadmin` beside the official one of 5.5.0 on the same cluster of Apache's, of either line: the same columns.

Figures that move while one looks (rates, ages) are compared by their form, everything else by its text.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import TYPE_CHECKING

import pytest
from tests.interop.apache import CLUSTER, CONSUMED_WITHIN, Admin

from pyromq.cli.main import main
from pyromq.client import AdminClient
from pyromq.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.interop.apache_with_client import Apache
    from tests.interop.drivers import Sent

pytestmark = pytest.mark.interop

MESSAGES = 4
PATIENCE = 30.0
AT_ONCE = 3


class Both:
    """Runs a line by both, and a scene to run them on: a topic whose messages a Java consumer has consumed."""

    def __init__(self, apache: Apache, official: Admin, topic: str, group: str, sent: list[Sent]) -> None:
        self.apache = apache
        self.topic, self.group, self.sent = topic, group, sent
        self._official = official
        self._said: dict[str, str] = {}
        self.capsys: pytest.CaptureFixture[str]

    def prepare(self, *lines: str) -> None:
        """Have the official one run what tests will ask for; some at a time, as each takes seconds."""
        for start in range(0, len(lines), AT_ONCE):
            part = lines[start : start + AT_ONCE]
            self._said.update(zip(part, self._official.run(*part), strict=True))

    def theirs(self, line: str) -> list[str]:
        if line not in self._said:
            self.prepare(line)
        text = self._said[line]
        assert "Exception:" not in text, f"{line}\n{text}"
        return text.splitlines()

    def is_beyond_theirs(self, line: str) -> bool:
        """The tool of 5.5.0 asks brokers of 4.9 for what those do not know, or takes their refusals for failures. Ours
        does not, so that there is nothing to compare; it is only seen to work.
        """
        if self.apache.version == "5.5.0":
            return False
        if line not in self._said:
            self.prepare(line)
        return "Exception:" in self._said[line]

    def ours(self, line: str) -> list[str]:
        with pytest.raises(SystemExit) as done:
            main(["mqadmin", *line.split(), "-n", self.apache.namesrv])
        out, err = self.capsys.readouterr()
        assert not done.value.code, f"{line}\n{out}\n{err}"
        return out.splitlines()

    def __call__(self, line: str) -> tuple[list[str], list[str]]:
        return self.theirs(line), self.ours(line)


@pytest.fixture(scope="module")
def scene(apache: Apache, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    name = apache.version.replace(".", "-")
    topic, group = f"shim-{name}", f"shim-group-{name}"
    asyncio.run(apache.create_topic(topic))
    apache.java.do("push", name="shim", group=group, topic=topic)
    sent = [
        apache.java.send(topic=topic, body=f"body-{number}", keys=f"key-{number}", tags="red")[0]
        for number in range(MESSAGES)
    ]
    apache.java.wait_for_bodies("shim", {f"body-{number}" for number in range(MESSAGES)}, CONSUMED_WITHIN)
    eventually(lambda: asyncio.run(committed(apache, group, topic)) == MESSAGES)
    yield Both(apache, Admin("5.5.0", tmp_path_factory.mktemp("official"), apache.namesrv), topic, group, sent)
    apache.java.do("leave", name="shim")


@pytest.fixture
def both(scene: Both, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Both:
    for variable in ("NAMESRV_ADDR", "ROCKETMQ_HOME", "PYROMQ_ACCESS_KEY"):
        monkeypatch.delenv(variable, raising=False)
    scene.capsys = capsys
    return scene


async def committed(apache: Apache, group: str, topic: str) -> int:
    async with AdminClient(apache.namesrv) as admin:
        try:
            progress = await admin.groups.progress(group, topic)
        except BrokerError:
            return 0
    return sum(row.consumer_offset for row in progress.rows)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.2)


def words(lines: list[str]) -> list[list[str]]:
    return sorted(line.split() for line in lines if line.strip() and not line.startswith("#"))


def form(line: str) -> str:
    """The line with any number as the same letter, and blanks as one: for figures that move."""
    return " ".join(re.sub(r"-?\d+(\.\d+)?", "N", line).split())


def heading(lines: list[str]) -> str:
    return next(line for line in lines if line.startswith("#"))


@pytest.mark.scenario("admin 8")
def test_clusters_and_brokers(both: Both) -> None:
    address = both.apache.broker.address
    lines = ("clusterList", "clusterList -m", f"brokerStatus -b {address}", f"getBrokerConfig -b {address}")
    both.prepare(*lines, f"getBrokerConfig -c {CLUSTER}", "getNamesrvConfig")
    theirs, ours = both("clusterList")
    assert heading(ours) == heading(theirs)
    assert [line.split()[:5] for line in ours[1:]] == [line.split()[:5] for line in theirs[1:]]
    assert [form(line) for line in ours[1:]] == [form(line) for line in theirs[1:]]
    assert ours[1].index("true" if "true" in ours[1] else "false") == theirs[1].index(
        "true" if "true" in theirs[1] else "false"
    )
    theirs, ours = both("clusterList -m")
    assert ours == theirs
    assert both.ours("CLUSTERLIST")[0] == both.theirs("clusterList")[0]
    theirs, ours = both(f"brokerStatus -b {address}")
    assert [line[:33] for line in ours] == [line[:33] for line in theirs]
    for line in (f"getBrokerConfig -b {address}", f"getBrokerConfig -c {CLUSTER}", "getNamesrvConfig"):
        theirs, ours = both(line)
        assert ours[0] == theirs[0]
        assert sorted(ours) == sorted(theirs)


@pytest.mark.scenario("admin 8")
def test_topics(both: Both) -> None:
    topic = both.topic
    both.prepare("topicList", "topicList -c", f"topicRoute -t {topic}", f"topicRoute -t {topic} -l")
    both.prepare(f"topicStatus -t {topic}", f"statsAll -t {topic}", f"topicClusterList -t {topic}")
    theirs, ours = both("topicList")
    assert sorted(ours) == sorted(theirs)
    theirs, ours = both("topicList -c")
    assert heading(ours) == heading(theirs)
    assert words(ours) == words(theirs)
    theirs, ours = both(f"topicRoute -t {topic}")
    # FastJSON leaves numbers that are keys without quotes, which nobody else can read.
    assert ours == [re.sub(r"^(\t+)(\d+):", r'\1"\2":', line) for line in theirs]
    assert json.loads("\n".join(ours))
    for line in (f"topicRoute -t {topic} -l", f"topicClusterList -t {topic}"):
        theirs, ours = both(line)
        assert ours == theirs
    if both.is_beyond_theirs(f"topicStatus -t {topic}"):
        assert len(words(both.ours(f"topicStatus -t {topic}"))) == 4 + 1
    else:
        theirs, ours = both(f"topicStatus -t {topic}")
        assert ours[:-1] == theirs[:-1]
        assert form(ours[-1]) == form(theirs[-1])
    theirs, ours = both(f"statsAll -t {topic}")
    assert heading(ours) == heading(theirs)
    assert [form(line) for line in ours[1:]] == [form(line) for line in theirs[1:]]
    assert [line.split()[:3] for line in ours[1:]] == [line.split()[:3] for line in theirs[1:]]


@pytest.mark.scenario("admin 8")
def test_groups(both: Both) -> None:
    group, address = both.group, both.apache.broker.address
    progress = (f"consumerProgress -g {group}", f"consumerProgress -g {group} -t {both.topic} -s true")
    both.prepare(*progress, "consumerProgress")
    both.prepare(f"consumerConnection -g {group}", f"brokerConsumeStats -b {address}", f"getConsumerConfig -g {group}")
    for line in progress:
        if both.is_beyond_theirs(line):
            assert "Consume Diff Total: 0" in both.ours(line)
            continue
        # It commits in its retry topic, too, when it likes.
        theirs, ours = ([each for each in said if not each.startswith("%RETRY%")] for said in both(line))
        assert [each for each in ours if "TPS" not in each] == [each for each in theirs if "TPS" not in each]
        assert [form(each) for each in ours] == [form(each) for each in theirs]
    theirs, ours = both("consumerProgress")
    assert heading(ours) == heading(theirs)
    # The rate may be one or none, depending on the moment.
    assert [form(line) for line in ours if line.startswith(group)] == [
        form(line) for line in theirs if line.startswith(group)
    ]
    theirs, ours = both(f"consumerConnection -g {group}")
    assert sorted(ours) == sorted(theirs)
    theirs, ours = both(f"brokerConsumeStats -b {address}")
    assert heading(ours) == heading(theirs)
    assert [line for line in sorted(ours) if group in line] == [line for line in sorted(theirs) if group in line]
    theirs, ours = both(f"getConsumerConfig -g {group}")
    assert ours[0] == theirs[0]
    # Which settings there are depends on the version; those that both know are written the same way.
    assert len({*ours} & {*theirs}) >= 10


@pytest.mark.scenario("admin 8")
def test_messages(both: Both) -> None:
    topic, sent, broker = both.topic, both.sent[1], both.apache.broker.name
    place = f"-b {broker} -i {sent.queue} -o {sent.offset}"
    queries = (
        f"queryMsgById -t {topic} -i {sent.offset_id}",
        f"queryMsgByUniqueKey -t {topic} -i {sent.message_id}",
        f"queryMsgByOffset -t {topic} {place} -f UTF-8",
    )
    both.prepare(*queries)
    both.prepare(f"queryMsgByKey -t {topic} -k key-1", f"printMsg -t {topic}")
    for line in queries:
        theirs, ours = both(line)
        # Java's map has an order of its own, and says the cluster and who pulled.
        fields = [
            [each for each in said if not each.startswith(("Properties:", "MessageTrack"))] for said in (theirs, ours)
        ]
        assert [each for each in fields[1] if each.strip()] == [each for each in fields[0] if each.strip()]
        [track] = [each for each in ours if each.startswith("MessageTrack")]
        if both.apache.version == "5.5.0":
            assert track in "\n".join(theirs)
        assert f"consumerGroup={both.group}, trackType=CONSUMED, " in track
        assert properties(ours) == properties(theirs)
    theirs, ours = both(f"queryMsgByKey -t {topic} -k key-1")
    assert ours == theirs
    theirs, ours = both(f"printMsg -t {topic}")
    assert sorted(map(printed, ours)) == sorted(map(printed, theirs))


def properties(lines: list[str]) -> set[str]:
    [line] = [line for line in lines if line.startswith("Properties:")]
    return {each for each in line.split("{")[1].rstrip("}").split(", ") if "_OFFSET=" not in each}


def printed(line: str) -> str:
    """A printed message without its properties, whose order is Java's own."""
    return re.sub(r"properties=\{.*?\}", "properties={}", line)


@pytest.mark.scenario("admin 8")
def test_changes_are_said_in_the_same_words(both: Both) -> None:
    address, group, topic = both.apache.broker.address, f"{both.group}-made", f"{both.topic}-made"
    lines = (
        f"updateTopic -b {address} -t {topic} -r 4 -w 3",
        f"updateSubGroup -c {CLUSTER} -g {group} -r 3",
        f"updateBrokerConfig -b {address} -k fileReservedTime -v 72",
    )
    both.prepare(*lines)
    theirs, ours = both(lines[0])
    assert ours == theirs
    theirs, ours = both(lines[1])
    assert ours[0] == theirs[0]
    theirs, ours = both(lines[2])
    assert ours == theirs
    for line in (
        f"sendMessage -t {topic} -p hello -c red -k made",
        f"resetOffsetByTime -g {group} -t {topic} -s 1000",
        f"skipAccumulatedMessage -g {group} -t {topic}",
        f"deleteTopic -t {topic} -c {CLUSTER}",
    ):
        if both.is_beyond_theirs(line):
            assert heading(both.ours(line)).startswith("#brokerName")
            continue
        theirs, ours = both(line)
        assert [form(each) for each in ours[:2] if each.startswith("#")] == [
            form(each) for each in theirs[:2] if each.startswith("#")
        ]
        assert [len(each.split()) for each in ours] == [len(each.split()) for each in theirs], (theirs, ours)
        if "deleteTopic" in line or "Offset" in line or "skip" in line:
            assert ours[0] == theirs[0]


@pytest.mark.scenario("admin 8")
def test_queues_and_keys(both: Both) -> None:
    topic, broker = both.topic, both.apache.broker
    order = [f"updateOrderConf -t {topic}-o -m {method}" for method in (f"put -v {broker.name}:4", "get", "delete")]
    for line in order:
        theirs, ours = both(line)
        assert ours == theirs
    stable = (
        f"queryCq -t {topic} -q {both.sent[0].queue} -i 0 -c 2 -b {broker.address}",
        f"cleanExpiredCQ -b {broker.address}",
        f"cleanUnusedTopic -c {CLUSTER}",
        "updateKvConfig -s shim -k currency -v EUR",
        "deleteKvConfig -s shim -k currency",
        "updateNamesrvConfig -k orderMessageEnable -v false",
    )
    both.prepare(*stable, f"allocateMQ -t {topic} -i 10.0.0.1,10.0.0.2")
    for line in stable:
        theirs, ours = both(line)
        assert ours == theirs, line
    theirs, ours = both(f"allocateMQ -t {topic} -i 10.0.0.1,10.0.0.2")
    # Java's set of queues has an order of its own, so that only the sizes of the shares are the same.
    shares = [json.loads("".join(said))["result"] for said in (theirs, ours)]
    assert [{ip: len(queues) for ip, queues in share.items()} for share in shares] == [
        {"10.0.0.1": 2, "10.0.0.2": 2}
    ] * 2
    assert {json.dumps(queue) for queues in shares[1].values() for queue in queues} == {
        json.dumps(queue) for queues in shares[0].values() for queue in queues
    }


@pytest.mark.scenario("admin 8")
def test_what_members_of_a_group_do(both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    theirs, ours = both(f"consumerStatus -g {both.group}")
    assert ours[0] == theirs[0]
    assert ours[1].split()[:3] == theirs[1].split()[:3]
    assert [line for line in ours[2:] if line] == [line for line in theirs[2:] if line]
    client = ours[1].split()[1]
    theirs, ours = both(f"consumerStatus -g {both.group} -i {client}")
    # Times move, Java's properties have an order of their own, and which of them there are depends on the version.
    headings = [[line for line in said if line.startswith("#")] for said in (theirs, ours)]
    assert headings[1] == headings[0]
    forms = [sorted(form(line) for line in said if "ProcessQueueInfo [" in line) for said in (theirs, ours)]
    assert forms[1] == forms[0]
    assert {line for line in ours if " ClassFilter: " in line} == {line for line in theirs if " ClassFilter: " in line}


@pytest.mark.scenario("admin 8")
def test_files_that_are_written_have_the_same_in_them(both: Both, tmp_path: Path) -> None:
    folders = [tmp_path / "theirs", tmp_path / "ours"]
    for command, name in (
        (f"exportMetadata -c {CLUSTER}", "metadata.json"),
        (f"exportConfigs -c {CLUSTER}", "configs.json"),
        (f"exportMetrics -c {CLUSTER}", "metrics.json"),
    ):
        both.ours(f"{command} -f {folders[1]}")
        if both.is_beyond_theirs(f"{command} -f {folders[0]}"):
            [broker] = json.loads((folders[1] / name).read_text())["evaluateReport"].values()
            assert broker["runtimeQuota"]["topicSize"] > 0
            continue
        theirs = both.theirs(f"{command} -f {folders[0]}")
        assert theirs[-1] == f"export {folders[0]}/{name} success"
        read = [json.loads((folder / name).read_text()) for folder in folders]
        if name == "configs.json":
            assert read[1] == read[0]
        elif name == "metrics.json":
            assert _shape(read[1]["totalData"]) == _shape(read[0]["totalData"])
            [theirs_of_broker], [ours_of_broker] = (each["evaluateReport"].values() for each in read)
            assert _shape(ours_of_broker["runtimeQuota"]) == _shape(theirs_of_broker["runtimeQuota"])
            assert ours_of_broker["runtimeQuota"]["topicSize"] == theirs_of_broker["runtimeQuota"]["topicSize"]
        else:
            assert read[1]["topicConfigTable"].keys() == read[0]["topicConfigTable"].keys()
            topic, group = both.topic, both.group
            assert read[1]["topicConfigTable"][topic].items() <= read[0]["topicConfigTable"][topic].items()
            groups = [each["subscriptionGroupTable"] for each in read]
            assert groups[1].keys() == groups[0].keys()
            assert groups[1][group].items() <= groups[0][group].items()


def _shape(table: object) -> object:
    return {key: _shape(value) for key, value in table.items()} if isinstance(table, dict) else type(table)


@pytest.mark.scenario("admin 8")
def test_batches_modes_and_times_of_sends(both: Both, tmp_path: Path) -> None:
    address, topic, group = both.apache.broker.address, f"{both.topic}-listed", f"{both.group}-listed"
    (tmp_path / "topics.json").write_text(json.dumps([{"topicName": topic, "readQueueNums": 2, "writeQueueNums": 2}]))
    (tmp_path / "groups.json").write_text(json.dumps([{"groupName": group}]))
    lines = (
        f"updateTopicList -b {address} -f {tmp_path}/topics.json",
        f"updateSubGroupList -c {CLUSTER} -f {tmp_path}/groups.json",
        f"setConsumeMode -b {address} -t {both.topic} -g {group} -m POP -q 1",
    )
    both.prepare(*lines)
    for line in lines:
        if both.is_beyond_theirs(line):
            # 4.9 knows neither lists nor modes; we make topics and groups of a list one by one.
            if not line.startswith("setConsumeMode"):
                assert "success" in both.ours(line)[0]
            continue
        theirs, ours = both(line)
        assert ours == theirs[: len(ours)]  # for a cluster theirs prints its usage, too
    theirs, ours = both(f"checkMsgSendRT -t {topic} -a 4 -s 10")
    assert ours[0] == theirs[0]
    assert [form(line) for line in ours] == [form(line) for line in theirs]
    theirs, ours = both(f"sendMsgStatus -b {topic} -c 1")
    assert re.sub(r"=\w+", "=x", ours[0]) == re.sub(r"=\w+", "=x", theirs[0])
