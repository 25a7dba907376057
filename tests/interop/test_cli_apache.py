"""Our commands at Apache's brokers and name servers of both lines: every verb once, and Java clients moved by them."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop.apache import CONSUMED_WITHIN

from pyromq.admin.exporter import Exporter
from pyromq.cli.main import main
from pyromq.client import AdminClient
from pyromq.errors import BrokerError
from pyromq.metrics.exporter_metrics import EXPORTER

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.apache_with_client import Apache

    from pyromq.metrics.model import Sample

pytestmark = pytest.mark.interop

TOPIC, GROUP = "cli-orders", "cli-billing"
MESSAGES = 8
PATIENCE = 30.0
# A broker of Apache that has just been started answers its first requests slowly.
SLOWLY = ("--timeout", "20")


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str


class Commands:
    """Runs `pyromq …` in this process for one cluster."""

    def __init__(self, capsys: pytest.CaptureFixture[str], apache: Apache) -> None:
        self._capsys = capsys
        self._apache = apache

    def __call__(self, line: str) -> Ended:
        with pytest.raises(SystemExit) as done:
            main([*line.split(), "-n", self._apache.namesrv, *SLOWLY])
        out, err = self._capsys.readouterr()
        return Ended(int(done.value.code or 0), out, err)

    def said(self) -> tuple[str, str]:
        """What was printed since it was asked for the last time."""
        return self._capsys.readouterr()

    def ok(self, line: str) -> str:
        ended = self(line)
        assert ended.code == 0, f"{line}\n{ended}"
        return ended.out

    def rows(self, line: str) -> Any:
        return json.loads(self.ok(f"{line} -o json"))


@pytest.fixture
def pyromq(capsys: pytest.CaptureFixture[str], apache: Apache, monkeypatch: pytest.MonkeyPatch) -> Commands:
    for name in ("NAMESRV_ADDR", "ROCKETMQ_HOME", "PYROMQ_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    return Commands(capsys, apache)


@pytest.fixture(scope="module")
def at_the_end(apache: Apache) -> Apache:
    """A topic of eight messages, all consumed by a Java consumer that is still online, and committed."""
    topic = _unique(apache, TOPIC)
    apache.java.do("push", name="cli", group=_unique(apache, GROUP), topic=topic)
    for number in range(MESSAGES):
        apache.java.send(topic=topic, body=f"body-{number}", keys=f"key-{number}", tags="red")
    apache.java.wait_for_bodies("cli", {f"body-{number}" for number in range(MESSAGES)}, CONSUMED_WITHIN)
    eventually(lambda: asyncio.run(_committed(apache)) == MESSAGES)
    return apache


async def _committed(apache: Apache) -> int:
    """How many messages the Java consumer has said to have consumed; it does so every five seconds."""
    async with AdminClient(apache.namesrv) as admin:
        try:
            progress = await admin.groups.progress(_unique(apache, GROUP), _unique(apache, TOPIC))
        except BrokerError:
            return 0
    return sum(row.consumer_offset for row in progress.rows)


def _unique(apache: Apache, name: str) -> str:
    return f"{name}-{apache.version.replace('.', '-')}"


def eventually(condition: Callable[[], Any]) -> Any:
    """Ask until the answer is true; the peers are other processes, and no event tells us."""
    deadline = time.monotonic() + PATIENCE
    while not (answer := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.2)
    return answer


def test_topics(pyromq: Commands, apache: Apache) -> None:
    broker = apache.broker.name
    pyromq.ok("topic create cli-made -r 6 -w 5")
    eventually(lambda: "cli-made" in pyromq.ok("topic list -o name").split())
    assert "TBW102" not in pyromq.ok("topic list")
    assert {row["kind"] for row in pyromq.rows("topic list --system") if row["topic"] == broker} == {"system"}
    [long] = [row for row in pyromq.rows("topic list --long") if row["topic"] == "cli-made"]
    assert (long["readQueues"], long["writeQueues"], long["perm"]) == (6, 5, ["rw"])
    [place] = pyromq.rows("topic route cli-made")
    assert (place["broker"], place["master"]) == (broker, apache.broker.address)
    pyromq.ok("topic update cli-made -w 6")
    pyromq.ok("topic perm cli-made r")
    [settings] = pyromq.rows("topic describe cli-made")
    assert (settings["writeQueues"], settings["perm"]) == (6, "r")
    assert len(pyromq.rows("topic stats cli-made")) == 6
    assert pyromq.rows("topic groups cli-made") == []
    assert sum(row["count"] for row in pyromq.rows("topic assign cli-made a b")) == 6
    assert pyromq("topic order cli-made").code == 3
    pyromq.ok(f"topic order cli-made --set {broker}:6")
    assert pyromq.rows("topic order cli-made") == [{"broker": broker, "queues": 6}]
    pyromq.ok("topic order cli-made --remove")
    pyromq.ok("topic delete cli-made --yes")
    eventually(lambda: "cli-made" not in pyromq.ok("topic list -o name").split())
    ended = pyromq("topic stats cli-mad")
    assert ended.code == 3
    assert "cli-mad" not in pyromq.ok("topic list --system -o name").split()


def test_clusters_brokers_and_name_servers(pyromq: Commands, apache: Apache) -> None:
    broker, address = apache.broker.name, apache.broker.address
    [row] = pyromq.rows("cluster list")
    assert (row["cluster"], row["broker"], row["address"]) == ("interop", broker, address)
    assert row["version"] == f"V{apache.version.replace('.', '_')}"
    assert 0 <= row["disk"] <= 1
    assert pyromq.rows("cluster list -m")[0]["inToday"] is not None
    assert pyromq.rows("cluster ping --count 2")[0]["count"] == 2
    assert pyromq.rows(f"broker ping {broker} --count 2")[0]["count"] == 2
    assert pyromq.rows("broker list")[0]["broker"] == broker
    assert pyromq.rows(f"broker status {broker}")["brokerVersionDesc"] == row["version"]
    assert pyromq.rows(f"broker config get {address} fileReservedTime") == {"fileReservedTime": "72"}
    [changed] = pyromq.rows(f"broker config set fileReservedTime=48 -b {broker}")
    assert (changed["before"], changed["after"]) == ("72", "48")
    pyromq.ok("broker config set fileReservedTime=72 -c interop")
    pyromq.ok(f"broker lag {broker}")
    for what in ("queues", "topics", "log"):
        pyromq.ok(f"broker clean {what} --yes -b {broker}")
    pyromq.ok(f"broker drain {broker}")
    assert pyromq.rows("topic route TBW102")[0]["perm"] == "r"
    pyromq.ok(f"broker undrain {broker}")
    eventually(lambda: pyromq.rows("topic route TBW102")[0]["perm"] == "rw")
    assert "kvConfigPath" in pyromq.rows("namesrv config get")
    [changed] = pyromq.rows("namesrv config set orderMessageEnable=true")
    assert changed["after"] == "true"
    pyromq.ok("namesrv kv set CLI key value")
    assert pyromq.rows("namesrv kv get CLI key") == {"key": "value"}
    assert pyromq.rows("namesrv kv list CLI") == {"key": "value"}
    pyromq.ok("namesrv kv delete CLI key --yes")
    assert pyromq("namesrv kv get CLI key").code == 3
    assert pyromq.rows("check broker --warn 60000 --crit 60000")[0]["status"] == "ok"
    assert pyromq("check disk --warn 0").code == 6


def test_exports_can_be_applied_and_files_looked_at(pyromq: Commands, at_the_end: Apache, tmp_path: Path) -> None:
    broker, topic = at_the_end.broker.name, _unique(at_the_end, TOPIC)
    attribute = "-a message.type=FIFO" if at_the_end.version == "5.5.0" else ""
    pyromq.ok(f"topic create cli-exported -r 6 -w 5 --order {attribute}")
    pyromq.ok("group create cli-exported-readers --retry-max 3 --no-broadcast")
    pyromq.ok(f"export metadata -f {tmp_path}/shop.json")
    found = json.loads((tmp_path / "shop.json").read_text())
    assert {"cli-exported", topic} <= {each["name"] for each in found["topics"]}
    assert "0 to create, 0 to update" in pyromq.ok(f"apply -f {tmp_path}/shop.json --yes")
    # Made anew from the file, it is what it was.
    [before] = pyromq.rows("topic describe cli-exported")
    pyromq.ok("topic delete cli-exported --yes")
    pyromq.ok("topic order cli-exported --remove")
    pyromq.ok(f"apply -f {tmp_path}/shop.json --yes")
    eventually(lambda: "cli-exported" in pyromq.ok("topic list -o name").split())
    [after] = pyromq.rows("topic describe cli-exported")
    assert after == before
    assert json.loads(pyromq.ok("export configs"))["brokers"][broker]["0"]["brokerName"] == broker
    [size] = json.loads(pyromq.ok("export report"))["brokers"]
    assert size["topics"] >= 2
    watched = pyromq.rows(f"group watch {_unique(at_the_end, GROUP)} --looks 1")
    assert [row for row in watched if row["sign"] in ("stuck", "mismatch")] == []
    # A store of Apache's, while its broker runs.
    config = pyromq.rows(f"broker config get {broker}")
    with pytest.raises(SystemExit) as done:
        main(["store", "inspect", config["storePathRootDir"], "-o", "json"])
    assert not done.value.code
    out, err = pyromq.said()
    assert "is in use by process" in err
    inspected = json.loads(out)
    assert {row["topic"]: row["messages"] for row in inspected["topics"]}[topic] == MESSAGES
    assert inspected["log"]["tornAt"] is None
    file = f"{Path(config['storePathRootDir']).parent}/broker.conf"
    with pytest.raises(SystemExit):
        main(["config", "validate", file, "-o", "json"])
    # Once a setting was changed, all that Apache's broker knows is in the file: our broker would start with it.
    assert [row for row in json.loads(pyromq.said()[0]) if row["level"] == "error"] == []


def test_groups_and_producers(pyromq: Commands, at_the_end: Apache) -> None:
    topic, group = _unique(at_the_end, TOPIC), _unique(at_the_end, GROUP)
    broker = at_the_end.broker.name
    pyromq.ok("group create cli-group --retry-max 3 --no-broadcast")
    [settings] = pyromq.rows("group describe cli-group")
    assert (settings["retryMax"], settings["broadcast"]) == (3, False)
    pyromq.ok("group update cli-group --broadcast")
    assert pyromq.rows("group describe cli-group")[0]["broadcast"] is True
    deleted = pyromq("group delete cli-group --yes")
    assert deleted.code == 0
    # 5.5.0 makes a group that it is told to delete anew, with the settings that all have.
    if at_the_end.version == "5.5.0":
        assert "is there again" in deleted.err
        assert pyromq.rows("group describe cli-group")[0]["retryMax"] == 16
    else:
        assert pyromq("group describe cli-group").code == 3

    assert [row["lag"] for row in pyromq.rows("group list") if row["group"] == group] == [0]
    [online] = [row for row in pyromq.rows("group list --clients") if row["group"] == group]
    assert (online["clients"], online["model"]) == (1, "CLUSTERING")
    rows = pyromq.rows(f"group lag {group} -t {topic} --clients")
    assert sum(row["consumerOffset"] for row in rows) >= MESSAGES
    [client] = pyromq.rows(f"group clients {group}")
    assert {row["client"] for row in rows} == {client["client"]}
    assert client["language"] == "JAVA"
    [seen] = pyromq.rows(f"group inspect {group}")
    assert seen["subscriptions"] == {topic: "*"}
    assert "TOPIC" not in pyromq.ok(f"group inspect {group} --stacks -o name")
    assert group in [row["group"] for row in pyromq.rows(f"topic groups {topic}")]
    assert [row["group"] for row in pyromq.rows("topic stats --all") if row["topic"] == topic] == [group]
    assert pyromq(f"check lag {group} --warn 1").code == 0
    producers = pyromq.rows("producer list")
    assert producers
    assert pyromq.rows(f"producer clients {producers[0]['group']} -t {topic}")
    assert sum(row["offset"] for row in pyromq.rows(f"group offsets export {group} -t {topic}")) >= MESSAGES
    pyromq.ok(f"group offsets clone {group} cli-copy -t {topic} --yes")
    copied = pyromq.rows(f"group offsets export cli-copy -t {topic}")
    assert sum(row["offset"] for row in copied) >= MESSAGES
    assert {row["broker"] for row in copied} == {broker}
    wrong = pyromq(f"group lag {group}x")
    assert wrong.code == 3
    assert group in wrong.err


@pytest.mark.scenario("admin 38")
def test_the_exporter_shows_brokers_of_apache(at_the_end: Apache) -> None:
    topic, group = _unique(at_the_end, TOPIC), _unique(at_the_end, GROUP)

    async def look() -> list[Sample]:
        async with AdminClient(at_the_end.namesrv) as admin:
            exporter = Exporter(admin)
            for _ in range(2):  # the first learns who the clients are
                await exporter.ask()
            return [sample for sample in exporter.samples() if sample is not None]

    found = asyncio.run(look())
    values = {(sample.metric.name, sample.labels): sample.value for sample in found}
    missing = {metric.name for metric in EXPORTER} - {name for name, _ in values}
    # Nothing has died here; a young broker has no rates over a minute and no distribution yet, some no percentiles.
    expected = ("_dlq_offset", "_dlqdiff", "_tps60", "_tps600", "_latency_99", "_latency_999", "_dispatch_maxbuffer")
    assert [name for name in missing if "_pmdt_" not in name and not name.endswith(expected)] == []
    diffs = {labels: value for (name, labels), value in values.items() if name == "rocketmq_group_diff"}
    assert diffs[group, topic, "1", "1"] == 0
    assert [value for (name, labels), value in values.items() if name == "pyromq_exporter_broker_up"] == [1]


@pytest.mark.scenario("admin 11")
def test_a_java_consumer_gets_the_last_hour_again(pyromq: Commands, at_the_end: Apache) -> None:
    topic, group, java = _unique(at_the_end, TOPIC), _unique(at_the_end, GROUP), at_the_end.java
    before = len(java.bodies("cli"))
    ended = pyromq(f"group offsets reset {group} -t {topic} --to-time -1h --yes")
    assert ended.code == 0, ended
    assert f"replays {MESSAGES} messages" in ended.out
    eventually(lambda: len(java.bodies("cli")) >= before + MESSAGES)
    assert pyromq(f"group offsets skip {group} -t {topic} --yes").code == 0


@pytest.mark.scenario("admin 12")
def test_a_java_consumer_begins_where_its_new_group_was_put(pyromq: Commands, at_the_end: Apache) -> None:
    topic, java = _unique(at_the_end, TOPIC), at_the_end.java
    group = _unique(at_the_end, "cli-fresh")
    ended = pyromq(f"group offsets reset {group} -t {topic} --to-latest --yes")
    assert ended.code == 0, ended
    assert "gives " in ended.out
    for number in range(2):
        java.send(topic=topic, body=f"late-{number}")
    java.do("push", name="fresh", group=group, topic=topic)
    java.wait_for_bodies("fresh", {"late-0", "late-1"}, CONSUMED_WITHIN)
    assert set(java.bodies("fresh")) == {"late-0", "late-1"}, f"{ended.out}{pyromq.ok(f'group lag {group}')}"
    java.do("leave", name="fresh")


@pytest.mark.scenario("admin 13")
def test_without_a_yes_there_is_only_the_plan(pyromq: Commands, at_the_end: Apache) -> None:
    topic, group = _unique(at_the_end, TOPIC), _unique(at_the_end, "cli-copy-13")
    pyromq.ok(f"group offsets reset {group} -t {topic} --to-earliest --yes")
    ended = pyromq(f"group offsets reset {group} -t {topic} --to-latest")
    assert ended.code == 2
    assert "skips " in ended.out
    assert {row["offset"] for row in pyromq.rows(f"group offsets export {group} -t {topic}")} == {0}
