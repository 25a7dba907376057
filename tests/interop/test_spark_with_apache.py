"""Spark next to Apache's brokers: topics and store directories as tables, and as the official client shows them."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop import apache as official
from tests.interop import wire
from tests.interop.process import Process, wait_until

from pyromq.protocol import sysflag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from tests.interop.apache_with_client import Apache

pytestmark = [
    pytest.mark.interop,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

SHOW_ROWS = Path(__file__).parent / "java_rows" / "ShowRows.java"
CLIENTS = {"4.9.7": "4.9.8", "5.5.0": "5.5.0"}
SOON = 60.0
COUNT = 1000
# What a client adds to the properties that it received.
ADDED = {"MIN_OFFSET", "MAX_OFFSET"}
LEVEL_OF_A_SECOND, LEVEL_OF_TEN_SECONDS = 1, 2


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    # Workers would otherwise be whatever python3 is first on PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    yield session
    session.stop()


@dataclass(frozen=True)
class Scene:
    """A broker of Apache's with messages of all kinds in it."""

    apache: Apache
    topic: str  # a thousand messages in four queues
    odd: str  # delayed ones, and the ends of transactions
    retried: str
    group: str
    home: Path

    def topic_rows(self, spark: SparkSession, topic: str = "", **options: object) -> DataFrame:
        reader = spark.read.format("rocketmq").options(namesrv=self.apache.namesrv, subscribe=topic or self.topic)
        return reader.options(**{name: str(value) for name, value in options.items()}).load()

    def log_rows(self, spark: SparkSession, **options: object) -> DataFrame:
        reader = spark.read.format("rocketmq_log").option("brokerName", self.apache.broker.name)
        return reader.options(**{name: str(value) for name, value in options.items()}).load(str(self.store))

    @property
    def store(self) -> Path:
        return self.home / "store"


@pytest.fixture(scope="module")
def scene(apache: Apache, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    suffix = apache.version.replace(".", "_")
    [folder] = {path.parent for path in Path(apache.java_home).parent.glob("broker/store")}
    made = Scene(apache, f"rows-{suffix}", f"odd-{suffix}", f"retried-{suffix}", f"rows-group-{suffix}", folder)
    with wire.Connection(apache.broker.address) as connection:
        for topic, queues in ((made.topic, 4), (made.odd, 1), (made.retried, 1)):
            wire.create_topic(connection, topic, queues)
        for queue in range(4):
            wire.send(connection, made.topic, queue, b"\xff\x00\xfe not text", KEYS="raw", WAIT="false")
    java = apache.java
    missing = COUNT - 100
    while missing:  # a broker that is busy refuses some
        count = min(missing, 100)
        sent = java.send("async", topic=made.topic, count=count, tags="plain", keys="one,zwölf", property="größe:10µm")
        missing -= len(sent)
    for number in range(30):
        java.send(topic=made.topic, body=f"single-{number}", tags="grün", keys=f"k{number}")
    for _ in range(2):
        java.do("batch", topic=made.topic, count=30, tags="batched", keys="in-a-batch")
    for _ in range(6):
        java.send(topic=made.topic, body="", size=20_000, tags="packed")  # the client compresses it
    java.send(topic=made.odd, body="delivered", delay=LEVEL_OF_A_SECOND)
    for state in ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"):
        options = {"group": f"makers-{suffix}", "topic": made.odd, "body": state, "state": state, "check": "UNKNOW"}
        java.send("transaction", **options)
    java.send(topic=made.retried, body="tried-again")
    java.do("push", name=f"failing-{suffix}", group=made.group, topic=made.retried, fail=1)
    java.do("push", name=f"seeing-{suffix}", group=f"seeing-{suffix}", topic=made.odd)
    java.wait_for_bodies(f"seeing-{suffix}", {"delivered", "COMMIT_MESSAGE"}, SOON)
    wait_until(lambda: len(java.received(f"failing-{suffix}")) >= 2, SOON, "the message that failed is there once more")
    for name in ("failing", "seeing"):
        java.do("leave", name=f"{name}-{suffix}")
    return made


def shown_by_java(scene: Scene, topic: str, home: Path) -> dict[tuple[int, int], dict[str, Any]]:
    """All that the official client tells about the messages of a topic, as rows of ours."""
    home.mkdir()
    flags = (*official.SMALL_CLIENT, official.silent(home))
    command = [*official.java(CLIENTS[scene.apache.version], home, flags), str(SHOW_ROWS)]
    env = official.environment(home)
    with Process("rows", [*command, scene.apache.namesrv, topic], log=home / "rows.out", env=env) as process:
        process.wait_for("all shown", SOON)
        lines = process.lines("row")
    rows = {}
    for line in lines:
        pairs = [(base64.b64decode(name).decode(), base64.b64decode(value)) for name, value in _split(line)]
        fields: dict[str, Any] = {name: value if name == "body" else value.decode() for name, value in pairs}
        properties = {name[9:]: value for name, value in fields.items() if name.startswith("property.")}
        row = {name: value for name, value in fields.items() if not name.startswith("property.")}
        row["properties"] = {name: value for name, value in properties.items() if name not in ADDED}
        rows[int(row["queueId"]), int(row["queueOffset"])] = row
    return rows


def _split(line: str) -> Iterator[tuple[str, str]]:
    for word in line.split():
        name, _, value = word.partition(":")
        yield name, value


def milliseconds(collected: datetime) -> int:
    """Spark gives times of this place, without saying so."""
    return round(collected.timestamp() * 1000)


def as_java_shows(row: Any) -> dict[str, Any]:
    """A row in the words of the official client."""
    shown: dict[str, Any] = {}
    for name, value in row.asDict().items():
        if value is None:
            continue
        if name in ("body", "properties"):
            shown[name] = bytes(value) if name == "body" else dict(value)
        elif isinstance(value, datetime):
            shown[name] = str(milliseconds(value))
        else:
            shown[name] = str(value)
    return shown


def plain(frame: DataFrame) -> dict[tuple[str, int, int], dict[str, Any]]:
    return {(row.topic, row.queueId, row.queueOffset): row.asDict() for row in frame.collect()}


@pytest.mark.scenario("spark 3")
@pytest.mark.scenario("spark 4")
def test_every_column_is_what_the_official_client_shows(scene, spark, tmp_path):
    expected = shown_by_java(scene, scene.topic, tmp_path / "java")
    assert len(expected) == COUNT
    found = {(row.queueId, row.queueOffset): as_java_shows(row) for row in scene.topic_rows(spark).collect()}
    assert found.keys() == expected.keys()
    for place, row in expected.items():
        if scene.apache.version == "5.5.0":
            # It takes the flag off when it has opened a body; a table shows what is stored, as the client of 4.9 does.
            found[place]["sysFlag"] = str(int(found[place]["sysFlag"]) & ~sysflag.COMPRESSED)
        assert found[place] == row, place


@pytest.mark.scenario("spark 28")
@pytest.mark.parametrize("via", ["log", "queue"])
def test_the_files_of_a_running_broker_hold_the_rows_that_it_serves(scene, spark, via):
    served = plain(scene.topic_rows(spark))
    assert len(served) == COUNT
    assert plain(scene.log_rows(spark, topics=scene.topic, via=via)) == served


@pytest.mark.scenario("spark 28")
@pytest.mark.parametrize("via", ["log", "queue"])
def test_everything_that_is_shown_of_a_store_is_served(scene, spark, via):
    topics = [scene.topic, scene.odd, scene.retried]
    of_logs = plain(scene.log_rows(spark, via=via, topics=",".join(topics)))
    assert of_logs == {place: row for topic in topics for place, row in plain(scene.topic_rows(spark, topic)).items()}


def test_keys_and_ids_are_found_by_the_index_that_apache_wrote(scene, spark):
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = scene.log_rows(spark)
        [row] = frame.where(f"keys = 'k17' AND topic = '{scene.topic}'").collect()
        assert bytes(row.body) == b"single-17"
        assert frame.where(f"msgId = '{row.msgId}'").collect() == [row]
        assert frame.where(f"keys = 'in-a-batch' AND topic = '{scene.topic}'").count() == 60
        assert frame.where("keys = 'nobody has it'").count() == 0
        assert frame.where(f"tags = 'grün' AND topic = '{scene.topic}'").count() == 30
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.scenario("spark 31")
@pytest.mark.parametrize("via", ["log", "queue"])
def test_what_waits_in_the_broker_or_was_rolled_back_is_shown_only_when_asked_for(scene, spark, via):
    delayed = f"still-delayed-{via}"
    sent_at = time.monotonic()
    scene.apache.java.send(topic=scene.odd, body=delayed, delay=LEVEL_OF_TEN_SECONDS)

    def bodies(**options: object) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for row in scene.log_rows(spark, via=via, **options).select("topic", "body", "properties").collect():
            if scene.odd in (row.topic, row.properties.get("REAL_TOPIC")) or "tried" in str(bytes(row.body)):
                found.setdefault(row.topic, set()).add(bytes(row.body).decode())
        return found

    shown = bodies()
    assert shown.pop(scene.retried) == {"tried-again"}
    if time.monotonic() < sent_at + 10:  # on a machine that is very busy it may have arrived
        assert delayed not in shown[scene.odd]
    assert shown.pop(scene.odd) >= {"delivered", "COMMIT_MESSAGE"}
    assert not {"ROLLBACK_MESSAGE", "UNKNOW"} & {body for each in shown.values() for body in each}
    assert not shown
    internal = bodies(includeInternal=True)
    assert internal["RMQ_SYS_TRANS_HALF_TOPIC"] >= {"COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"}
    assert internal["SCHEDULE_TOPIC_XXXX"] >= {"delivered", delayed, "tried-again"}
    assert internal[f"%RETRY%{scene.group}"] == {"tried-again"}
    with_names = scene.log_rows(spark, via=via, topics=f"%RETRY%{scene.group}")
    assert [bytes(row.body) for row in with_names.collect()] == [b"tried-again"]


@pytest.mark.scenario("spark 7")
def test_offsets_and_times_choose_exactly_the_ranges_asked_for(scene, spark):
    whole = plain(scene.topic_rows(spark))
    broker = scene.apache.broker.name
    ends = {queue: 1 + max(offset for _, each, offset in whole if each == queue) for queue in range(4)}

    def chosen(**options: object) -> set[tuple[str, int, int]]:
        frame = scene.topic_rows(spark, **options).select("topic", "queueId", "queueOffset")
        return {tuple(row) for row in frame.collect()}

    def places(offsets: dict[int, int]) -> str:
        return json.dumps({scene.topic: {broker: {str(queue): offset for queue, offset in offsets.items()}}})

    assert chosen(
        startingOffsets=places({0: 5, 1: -2, 2: -1, 3: 7}), endingOffsets=places({0: 6, 1: 3, 2: -1, 3: ends[3]})
    ) == {
        place
        for place in whole
        if (place[1] == 0 and place[2] == 5) or (place[1] == 1 and place[2] < 3) or (place[1] == 3 and place[2] >= 7)
    }

    def stored(place: tuple[str, int, int]) -> int:
        return milliseconds(whole[place]["storeTimestamp"])

    times = sorted({stored(place) for place in whole})
    for since, until in ((times[3], times[-3]), (times[len(times) // 2], times[-1] + 1), (times[0] - 5, times[1])):
        found = chosen(startingTimestamp=since, endingTimestamp=until, startingOffsetsByTimestampStrategy="latest")
        assert found == {place for place in whole if since <= stored(place) < until}, (since, until)
    middle = times[len(times) // 2]
    of_queues = {0: middle, 1: times[0], 2: times[-1] + 1000, 3: times[2]}
    found = chosen(startingOffsetsByTimestamp=places(of_queues), startingOffsetsByTimestampStrategy="latest")
    assert found == {place for place in whole if stored(place) >= of_queues[place[1]]}
