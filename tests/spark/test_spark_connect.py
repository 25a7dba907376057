"""Spark Connect: a server with a Python of its own, and a client that needs to reach nothing but it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.connect_server import ConnectServer
from tests.spark.messages import Topics, bodies, topics_in, until
from tests.spark.standalone import environment

import pyromq.spark as mq
from pyromq.cli.nouns.spark import main
from pyromq.errors import ConfigError, PyroMQError
from pyromq.spark.sessions.programs import reason
from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from pyromq.spark.source.lag_listener import BatchProgress

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with running_cluster() as cluster, topics_in(cluster) as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def _connect_mode() -> Iterator[None]:
    """PySpark remembers in the environment that it is to be remote; the modules after this one are not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        yield


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    keys = {"THERE_ACCESS_KEY": "AK", "THERE_SECRET_KEY": "SK"}
    with ConnectServer(tmp_path_factory.mktemp("connect"), Path(sys.executable), **keys) as started:
        yield started


def plain_session(server: ConnectServer) -> SparkSession:
    """A session as somebody makes it who never heard of us."""
    from pyspark.sql.connect.session import SparkSession

    return SparkSession.builder.remote(server.remote).create()  # type: ignore[return-value]  # its interface is the same


@pytest.fixture
def session(server: ConnectServer, topics: Topics) -> Iterator[SparkSession]:
    made = mq.session(topics.cluster.namesrv, remote=server.remote)
    yield made
    made.stop()


def all_now(spark: SparkSession, options: dict[str, str], folder: Path) -> list[str]:
    """What a stream reads until it has everything."""
    stream = spark.readStream.format("rocketmq").options(**options, startingOffsets="earliest").load()
    writer = stream.writeStream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    query = writer.format("parquet").start(str(folder / "rows"))
    assert query.awaitTermination(120)
    return bodies(spark.read.parquet(str(folder / "rows")))


@pytest.mark.scenario("spark 1")
def test_the_formats_are_there_without_a_word_of_ours(server, topics, tmp_path):
    topic, copies = topics.new(2), topics.new(2)
    topics.send(topic, [b"%d" % number for number in range(20)])
    expected = sorted(str(number) for number in range(20))
    spark = plain_session(server)
    try:
        frame = spark.read.format("rocketmq").options(**topics.options(topic)).load()
        assert bodies(frame) == expected
        assert frame.where("queueId = 1").count() == 10
        assert all_now(spark, topics.options(topic), tmp_path) == expected

        to = {"namesrv": topics.cluster.namesrv, "topic": copies}
        frame.select("body", "tags").write.format("rocketmq").options(**to).mode("append").save()
        assert bodies(spark.read.format("rocketmq").options(**topics.options(copies)).load()) == expected
        stream = spark.readStream.format("rocketmq").options(**topics.options(topic), startingOffsets="earliest").load()
        writer = stream.select("body").writeStream.format("rocketmq").options(**to).trigger(availableNow=True)
        assert writer.option("checkpointLocation", str(tmp_path / "copied")).start().awaitTermination(120)
        assert bodies(spark.read.format("rocketmq").options(**topics.options(copies)).load()) == sorted(expected * 2)

        table = spark.read.format("rocketmq_meta").options(namesrv=topics.cluster.namesrv, table="topics").load()
        assert {topic, copies} <= {row.topic for row in table.collect()}
    finally:
        spark.stop()


@pytest.mark.scenario("spark 1")
@pytest.mark.scenario("spark 5")
def test_topics_are_views_of_a_session_and_filters_reach_the_broker(session, topics):
    topic = topics.new(4)
    topics.send(topic, [b"%d" % number for number in range(20)])
    assert topic in mq.register_topics(session, pattern=topic)
    assert session.sql(f"SELECT count(*) FROM `{topic}` WHERE queueId = 1").first()[0] == 5
    plan = mq.read(session, topic).where("queueId = 1")._explain_string()  # type: ignore[operator]
    assert "Filter (" not in plan
    session.sql(f"INSERT INTO `{topic}` (body, tags) VALUES (CAST('sent' AS BINARY), 'x')").collect()
    assert bodies(mq.read(session, topic, tags="x")) == ["sent"]


def test_the_server_asks_for_a_client_that_reaches_nothing_else(session, topics):
    """The keys are in the server's environment alone, so whoever asks from here fails."""
    topic = topics.new(2)
    topics.send(topic, [b"%d" % number for number in range(8)])
    queues = topics.admin.topics.stats(topic)
    topics.admin.groups.create("connected")
    topics.admin.offsets.set("connected", dict.fromkeys(queues, 1))
    with pytest.raises(ConfigError, match="env:THERE has no access key"):
        mq.describe(topics.cluster.namesrv, topic, credentials="env:THERE")

    assert mq.register_topics(session, pattern=topic, credentials="env:THERE") == [topic]
    found = mq.describe(session, topic)
    assert (found.topic, found.messages, found.lag("connected")) == (topic, 8, 6)
    assert found.options["credentials"] == "env:THERE"
    asked_here = mq.describe(topics.cluster.namesrv, topic)
    assert [*found.queues] == [{**row, "error": None} for row in asked_here.queues]
    with pytest.raises(PyroMQError, match=r"^no-such: no broker has this topic$"):
        mq.describe(session, "no-such")


def test_the_doctor_looks_at_the_server_and_its_executors(session, topics):
    found = mq.doctor(session)
    assert found.problems == ()
    assert [place.name for place in found.places] == ["client", "server", "executor"]
    assert found.brokers == (topics.cluster.broker.address,)
    assert str(found).splitlines()[0] == f"Spark {session.version}, local[2] through Spark Connect"

    address = topics.cluster.broker.address
    ill = mq.doctor(session, brokerAddressMap=f"{address}=127.0.0.1:1")
    told = "broker 127.0.0.1:1 cannot be reached"
    assert [problem.partition(" on ")[0] for problem in ill.problems if told in problem] == ["server", "executor"]
    [problem] = mq.doctor(session, "127.0.0.1:1").problems
    assert problem.startswith("cannot find the brokers: name server: none can be reached")


def test_a_listener_hears_of_batches_where_it_is(session, topics, tmp_path):
    topic = topics.new(1)
    topics.send(topic, [b"%d" % number for number in range(5)])
    seen: list[BatchProgress] = []
    listener = mq.LagListener(seen.append)
    session.streams.addListener(listener)
    stream = mq.stream(session, topic, startingOffsets="earliest", maxOffsetsPerTrigger=3)
    writer = stream.writeStream.format("noop").queryName("heard").trigger(availableNow=True)
    assert writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination(120)
    until(lambda: len(seen) == 2)
    session.streams.removeListener(listener)
    assert [(batch.query, batch.rows, batch.total_lag) for batch in seen] == [("heard", 3, 2), ("heard", 2, 0)]


def test_the_command_line_works_through_a_server(server, topics, tmp_path, capfd):
    topic = topics.new(1)
    topics.send(topic, [b"%d" % number for number in range(5)])
    program = tmp_path / "copy.py"
    program.write_text(f"""
stream = mq.stream(spark, "{topic}", startingOffsets="earliest")
writer = stream.writeStream.format("noop").queryName("copy").trigger(availableNow=True)
writer.option("checkpointLocation", {str(tmp_path / "checkpoint")!r}).start()
""")
    where = ["--namesrv", topics.cluster.namesrv, "--remote", server.remote]
    assert main(["run", *where, str(program)]) == 0
    assert "copy: batch 0, 5 rows, " in capfd.readouterr().err
    assert main(["doctor", *where]) == 0
    assert capfd.readouterr().out.endswith("all is well\n")


@pytest.mark.scenario("spark 42")
def test_a_server_without_the_package_is_told_early_and_can_be_sent_it(topics, tmp_path):
    lacking = environment(tmp_path / "lacking", without=["pyromq"]) / "python3"
    topic = topics.new(1)
    topics.send(topic, [b"here"])
    with ConnectServer(tmp_path, lacking) as server:
        spark = plain_session(server)
        said = (
            "the Python of the Spark Connect server has no module 'pyromq', which PyroMQ needs there; install it there"
        )
        with pytest.raises(ConfigError) as refused:
            mq.enable(spark, namesrv=topics.cluster.namesrv)
        assert str(refused.value) == f"{said}, or enable(spark, by_value=True) sends PyroMQ along"
        with pytest.raises(PyroMQError) as unanswered:
            mq.describe(spark, topic)
        assert str(unanswered.value) == said
        found = mq.doctor(spark)
        assert found.problems[0] == f"cannot find the brokers: {said}"
        assert [problem.partition(" on ")[0] for problem in found.problems[1:]] == ["server", "executor"]
        assert all(problem.endswith(f"{lacking} has no module 'pyromq'") for problem in found.problems[1:])

        mq.enable(spark, by_value=True)
        assert bodies(mq.read(spark, topic)) == ["here"]
        mq.register_topics(spark, pattern=topic)
        spark.sql(f"INSERT INTO `{topic}` (body) VALUES (CAST('sent' AS BINARY))").collect()
        assert bodies(mq.read(spark, topic)) == ["here", "sent"]
        # Spark plans a stream in a process that is given nothing along.
        with pytest.raises(Exception, match="which PyroMQ needs there") as caught:
            all_now(spark, topics.options(topic), tmp_path)
        assert f"{lacking} has no module 'pyromq', which PyroMQ needs there" in reason(str(caught.value))
        spark.stop()


def test_a_server_that_is_not_there_is_told_at_once(monkeypatch):
    before = time.monotonic()
    with pytest.raises(ConfigError, match=r"no Spark Connect server can be reached at 127\.0\.0\.1:1: .*refused"):
        mq.session("localhost:9876", remote="sc://127.0.0.1:1")
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1/;user_id=me")
    with pytest.raises(ConfigError, match=r"no Spark Connect server can be reached at 127\.0\.0\.1:1: "):
        mq.session("localhost:9876")
    assert time.monotonic() - before < 30  # PySpark alone takes ten minutes
