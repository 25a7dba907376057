"""`import pyromq.spark as mq`: what makes a session, its views, and what there is to know of topics and executors."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.spark.messages import Topics, bodies, topics_in, until

import pyromq.spark as mq
from pyromq.errors import ConfigError, RouteNotFound, StateError
from pyromq.spark.sessions.session import keeps_filters_apart
from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pyromq.spark.source.lag_listener import BatchProgress

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECRETS = {"accessKey": "AK-visible-nowhere", "secretKey": "SK-visible-nowhere", "securityToken": "ST-visible-nowhere"}


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with running_cluster() as cluster, topics_in(cluster) as made:
        yield made


@pytest.fixture(scope="module")
def session(topics: Topics, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
    }
    made = mq.session(topics.cluster.namesrv, master="local[2]", conf=conf)
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def _no_views(session):
    yield
    for view in session.catalog.listTables():
        if view.isTemporary:
            session.catalog.dropTempView(view.name)


def test_importing_the_package_imports_neither_spark_nor_arrow():
    program = "import sys, pyromq.spark; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pyspark", "pyarrow", "numpy", "asyncio", "pyromq.client"} & {*loaded}


def test_calling_a_helper_twice_calls_the_same_helper():
    # A module of a function's name would take its place once it is imported.
    for name in mq.__all__:
        assert callable(getattr(mq, name))
    import pyromq.spark.sessions.descriptions
    import pyromq.spark.sessions.diagnosis
    import pyromq.spark.sessions.session
    import pyromq.spark.sessions.views  # noqa: F401

    for name in mq.__all__:
        assert callable(getattr(mq, name))


@pytest.mark.scenario("spark 2")
def test_filters_of_one_read_do_not_get_into_another(session, topics):
    """Spark up to 4.3 mixes them up once it pushes them down, so a session of ours does not turn that on there."""
    topic = topics.new(2)
    topics.send(topic, [b"%d" % number for number in range(20)], tags=lambda number: "AAB"[number % 3])
    frame = mq.read(session, topic)
    mq.register_topics(session)
    for source in (frame, session.table(f"`{topic}`")):
        assert source.where("tags = 'A'").count() == 14
        assert source.count() == 20
        both = source.where("tags = 'A'").groupBy().count().union(source.where("tags = 'B'").groupBy().count())
        assert [row[0] for row in both.collect()] == [14, 6]


@pytest.mark.scenario("spark 1")
def test_a_session_that_somebody_else_made_is_enabled(session, topics):
    other = session.newSession()
    other.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    topic = topics.new(1)
    topics.send(topic, [b"x"])
    with pytest.raises(ConfigError, match="no name server"):
        mq.read(other, topic)
    mq.enable(other, namesrv=topics.cluster.namesrv)
    assert bodies(mq.read(other, topic, tags="*", includeProperties=False)) == ["x"]
    is_on = other.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert is_on is keeps_filters_apart()


@pytest.mark.scenario("spark 5")
def test_a_view_sees_new_messages_and_takes_text_as_a_body(session, topics):
    topic = topics.new(2)
    topics.send(topic, [b"a"])
    mq.register_topics(session)
    count = f"SELECT count(*) FROM `{topic}`"
    session.sql(f"CREATE TEMPORARY VIEW mine AS SELECT * FROM `{topic}` WHERE tags IS NULL")
    assert (session.sql(count).first()[0], session.table("mine").count()) == (1, 1)
    topics.send(topic, [b"b"])
    assert (session.sql("SELECT count(*) FROM mine").first()[0], session.sql(count).first()[0]) == (2, 2)
    session.sql(f"INSERT INTO `{topic}` (body, tags) VALUES ('grüße', 't')")
    session.sql(f"INSERT INTO `{topic}` (body) SELECT 'one more'")
    assert bodies(session.sql(f"SELECT * FROM `{topic}`")) == ["a", "b", "grüße", "one more"]
    assert bodies(session.table(f"`{topic}`")) == ["a", "b", "grüße", "one more"]
    with pytest.raises(Exception, match=r"CANNOT_SAFELY_CAST.* `flag`"):
        session.sql(f"INSERT INTO `{topic}` (body, flag) VALUES ('x', 'no number')")
    # Whoever replaces a view keeps what they made of it.
    session.sql("SELECT 7 AS seven").createOrReplaceTempView(f"`{topic}`")
    assert session.sql(f"SELECT * FROM `{topic}`").columns == ["seven"]
    assert session.sql(f"SELECT * FROM `{topic}`").columns == ["seven"]


@pytest.mark.scenario("spark 5")
def test_topics_are_views_called_by_their_names(session, topics, caplog):
    for topic in ("view-a", "view_b", "View_B", "other"):
        topics.admin.topics.create(topic, write_queues=1, read_queues=1)
        topics.send(topic, [topic.encode()])
    with caplog.at_level(logging.WARNING):
        assert mq.register_topics(session, pattern="(?i)view.*") == ["View_B", "view-a"]
    assert "topic view_b has no view: Spark cannot tell its name from that of topic View_B" in caplog.text
    assert bodies(session.sql("SELECT * FROM `view-a`")) == ["view-a"]
    assert bodies(session.sql("SELECT * FROM view_b")) == ["View_B"]
    assert not session.catalog.tableExists("other")
    everything = mq.register_topics(session, maxRecordsPerPartition=1)
    assert {"other", "view-a"} <= {*everything}
    assert not any(name.startswith(("%", "rmq_sys_", "SCHEDULE")) for name in everything)


@pytest.mark.scenario("spark 5")
def test_a_table_in_the_catalog_keeps_its_topic_for_reading_and_for_streams(session, topics, tmp_path):
    topic = topics.new(1)
    topics.send(topic, [b"kept"])
    namesrv = topics.cluster.namesrv
    session.sql(f"CREATE TABLE kept USING rocketmq OPTIONS (namesrv '{namesrv}', subscribe '{topic}')")
    try:
        assert bodies(session.sql("SELECT * FROM kept")) == ["kept"]
        stream = session.readStream.option("startingOffsets", "earliest").table("kept")
        writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).format("memory").queryName("kept_rows").start()
        assert query.awaitTermination(90)
        assert bodies(session.table("kept_rows")) == ["kept"]
        assert mq.describe(session, "kept").topic == topic
        session.sql(f"CREATE TABLE narrow (body binary) USING rocketmq OPTIONS (namesrv '{namesrv}')")
        with pytest.raises(Exception, match="created with a list of columns; use the option columns"):
            session.sql("SELECT * FROM narrow").collect()
    finally:
        session.sql("DROP TABLE IF EXISTS kept")
        session.sql("DROP TABLE IF EXISTS narrow")


def test_a_topic_is_described_by_its_name_or_by_that_of_a_view(session, topics):
    topic = topics.new(2)
    topics.send(topic, [b"%d" % number for number in range(8)])
    ends = {queue: ends.max_offset for queue, ends in topics.admin.topics.stats(topic).items()}
    topics.admin.groups.create("describers")
    topics.admin.offsets.set("describers", dict.fromkeys(ends, 1))
    mq.register_topics(session, pattern=topic)
    found = mq.describe(session, topic)
    assert (found.topic, found.messages, found.lag("describers"), found.lag("nobody")) == (topic, 8, 6, None)
    text = str(found)
    assert text.startswith(f"{topic}: 8 messages in 2 queues, the last of 20")
    assert f"option namesrv: {topics.cluster.namesrv}" in text
    assert "group describers: 6 behind" in text
    assert mq.describe(topics.cluster.namesrv, topic).queues == found.queues
    assert repr(found) == text


def test_what_cannot_be_described_is_told(session, topics):
    with pytest.raises(RouteNotFound, match="no-such: no broker has this topic"):
        mq.describe(session, "no-such")
    session.range(1).createOrReplaceTempView("numbers")
    with pytest.raises(StateError, match="not one of PyroMQ's"):
        mq.describe(session, "numbers")
    namesrv = topics.cluster.namesrv
    session.sql(f"CREATE TEMPORARY VIEW many USING rocketmq OPTIONS (namesrv '{namesrv}', subscribePattern 'a.*')")
    with pytest.raises(ConfigError, match="many is not a table of one topic"):
        mq.describe(session, "many")


def test_the_doctor_finds_nothing_where_all_is_well(session, topics):
    found = mq.doctor(session)
    assert found.problems == ()
    assert found.is_well
    assert [place.name for place in found.places] == ["driver", "executor"]
    assert found.brokers == (topics.cluster.broker.address,)
    assert str(found).endswith("all is well")


def test_the_doctor_says_who_cannot_reach_which_broker(session, topics):
    address = topics.cluster.broker.address
    found = mq.doctor(session, brokerAddressMap=f"{address}=127.0.0.1:1")
    assert not found.is_well
    assert [problem for problem in found.problems if problem.startswith("executor on") and "127.0.0.1:1 " in problem]
    assert [problem for problem in found.problems if problem.startswith("driver on") and "127.0.0.1:1 " in problem]
    [problem] = mq.doctor(session, "127.0.0.1:1").problems
    assert problem.startswith("cannot find the brokers: name server: none can be reached")


def test_a_listener_knows_how_far_each_query_is_behind(session, topics, tmp_path):
    topic = topics.new(2)
    topics.send(topic, [b"%d" % number for number in range(10)])
    seen: list[BatchProgress] = []
    listener = mq.LagListener(seen.append)
    session.streams.addListener(listener)
    try:
        stream = mq.stream(session, topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
        writer = stream.writeStream.option("checkpointLocation", str(tmp_path)).queryName("listened")
        query = writer.format("noop").start()
        until(lambda: sum(batch.rows for batch in seen) == 10 or not query.isActive)
        assert query.isActive, query.exception()
        until(lambda: sum(listener.lag["listened"].values()) == 0)
        query.stop()
        until(lambda: "listened" not in listener.lag)
    finally:
        session.streams.removeListener(listener)
    first = seen[0]
    assert (first.batch, first.rows, first.total_lag) == (0, 4, 6)
    assert {queue.topic for queue in first.lag} == {topic}
    assert str(first).startswith("listened: batch 0, 4 rows, ")
    assert str(first).endswith("rows/s, lag 6")


@pytest.mark.scenario("spark 22")
def test_secrets_show_in_no_plan_no_catalog_no_history_and_no_log(session, topics, capfd, caplog):
    topic = topics.new(1)
    topics.send(topic, [b"x"])
    options = topics.options(topic, **SECRETS)
    frame = session.read.format("rocketmq").options(**options).load()
    assert bodies(frame) == ["x"]  # this broker asks nobody for a key
    texts = [frame._jdf.queryExecution().toString(), str(frame.schema.json())]
    session.sql(
        "CREATE TEMPORARY VIEW secretive USING rocketmq OPTIONS ("
        + ", ".join(f"{key} '{value}'" for key, value in options.items())
        + ")"
    )
    assert bodies(session.table("secretive")) == ["x"]
    for statement in ("DESCRIBE EXTENDED secretive", "EXPLAIN EXTENDED SELECT * FROM secretive", "SHOW VIEWS"):
        texts += [str(tuple(row)) for row in session.sql(statement).collect()]
    texts.append(str(mq.describe(session, "secretive")))
    # What the pages of the user interface are made of.
    history = session._jsparkSession.sharedState().statusStore().executionsList()
    assert history.size() > 0
    texts += [history.apply(at).details() + history.apply(at).description() for at in range(history.size())]
    texts += [history.apply(at).physicalPlanDescription() for at in range(history.size())]
    for at in range(history.size()):
        texts.append(history.apply(at).modifiedConfigs().toString())
    with pytest.raises(Exception, match=r"(?i)unknown option sekretKey; did you mean secretKey") as caught:
        session.read.format("rocketmq").options(**options, sekretKey="SK-visible-nowhere").load()
    texts += [str(caught.value)]
    captured = capfd.readouterr()
    texts += [captured.out, captured.err, caplog.text]
    for secret in SECRETS.values():
        assert not [text for text in texts if secret in text]


@pytest.mark.scenario("spark 22")
def test_literal_secrets_are_refused_where_they_would_be_kept(session, topics):
    namesrv = topics.cluster.namesrv
    with pytest.raises(ConfigError, match="secretKey would be visible in the text of every view"):
        mq.register_topics(session, secretKey="SK-visible-nowhere", accessKey="AK")
    for source, more in (("rocketmq", "subscribe 'x'"), ("rocketmq_meta", "table 'topics'")):
        options = f"namesrv '{namesrv}', {more}, accessKey 'AK', secretKey 'SK-visible-nowhere'"
        with pytest.raises(Exception, match="Key would be stored in the catalog; use credentials=env") as caught:
            session.sql(f"CREATE TABLE open_secret USING {source} OPTIONS ({options})")
        assert "SK-visible" not in str(caught.value)


@pytest.mark.scenario("spark 22")
def test_keys_in_the_environment_are_found_where_they_are_used(session, topics, monkeypatch, tmp_path: Path):
    topic = topics.new(1)
    topics.send(topic, [b"x"])
    keys = tmp_path / "keys.properties"
    keys.write_text("accessKey=AK\nsecretKey=SK\n")
    assert bodies(mq.read(session, topic, credentials=f"file:{keys}")) == ["x"]
    assert "MQ_TEST_SECRET_KEY" not in os.environ
    with pytest.raises(Exception, match="credentials: env:MQ_TEST has no access key and secret key"):
        mq.read(session, topic, credentials="env:MQ_TEST").collect()


def test_what_is_missing_is_said_in_a_sentence(monkeypatch):
    from pyromq.spark.sessions.session import check_requirements

    check_requirements()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(ConfigError, match=r"Spark needs Java 17 or newer, and there is none in JAVA_HOME \(/nowhere\)"):
        check_requirements()
    check_requirements(java=False)
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match="there is none on PATH"):
        check_requirements()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pyspark is not installed; pip install 'pyromq\[spark\]' installs it"):
        check_requirements()
