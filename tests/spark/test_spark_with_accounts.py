"""Sources and sinks against servers that verify signatures: what keys are good for, and that nobody is shown them."""

from __future__ import annotations

import pytest

from pyromq import Credentials, sync
from pyromq.client.admin import Acl, Policy, PolicyEntry, User
from pyromq.testing import running_cluster

pytestmark = [pytest.mark.slow, pytest.mark.scenario("spark 22")]

ADMIN = Credentials("administrator", "adm1n-s3cr3t")
KEYS = {"accessKey": "analyst-1", "secretKey": "an4lyst-s3cr3t"}
ACCOUNTS = f"""
accounts:
- {{accessKey: {ADMIN.access_key}, secretKey: {ADMIN.secret_key}, admin: true}}
- accessKey: {KEYS["accessKey"]}
  secretKey: {KEYS["secretKey"]}
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [orders=SUB, copies=PUB|SUB]
  groupPerms: [analysts=SUB]
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("accounts")
    (folder / "plain_acl.yml").write_text(ACCOUNTS)
    with running_cluster(
        None,
        "aclEnable=true",
        f"rocketmq.acl.plain.file={folder / 'plain_acl.yml'}",
        f'innerClientAuthenticationCredentials={{"accessKey":"{ADMIN.access_key}","secretKey":"{ADMIN.secret_key}"}}',
    ) as running:
        with (
            sync.Client(running.namesrv, credentials=ADMIN) as client,
            sync.AdminClient(client=client) as admin,
            sync.Producer("makers", client=client) as producer,
        ):
            for topic in ("orders", "copies", "secrets"):
                admin.topics.create(topic, read_queues=2, write_queues=2)
            for number in range(10):
                producer.send("orders", b"%d" % number)
            producer.send("secrets", b"secret")
        yield running


@pytest.fixture
def read(spark, cluster):
    def read(topic="orders", streaming=False, **more):
        reader = spark.readStream if streaming else spark.read
        options = {"namesrv": cluster.namesrv, "subscribe": topic, "group": "analysts", **KEYS, **more}
        return reader.format("rocketmq").options(**options).load()

    return read


def bodies(frame):
    return sorted(row[0] for row in frame.selectExpr("CAST(body AS STRING)").collect())


def numbers(count):
    return sorted(str(number) for number in range(count))


def assert_hidden(*texts):
    for text in texts:
        assert "s3cr3t" not in text, text


def test_a_batch_reads_what_its_account_may(read, capfd, caplog):
    frame = read()
    assert bodies(frame) == numbers(10)
    frame.explain(extended=True)
    frame.explain(mode="formatted")
    captured = capfd.readouterr()
    assert "rocketmq" in captured.out
    assert_hidden(captured.out, captured.err, caplog.text, str(frame._jdf.queryExecution()))


@pytest.mark.parametrize(
    ("topic", "given", "why"),
    [
        ("orders", {"secretKey": "wr0ng-s3cr3t"}, "Check signature failed for accessKey=analyst-1"),
        ("orders", {"accessKey": "nobody-knows"}, "No acl config for nobody-knows"),
        ("orders", {"group": "others"}, "No default permission for group:others"),
        ("secrets", {}, "No default permission for topic:secrets"),
    ],
)
def test_what_is_missing_is_said_with_topic_and_right(topic, given, why, read, capfd, caplog):
    with pytest.raises(Exception, match=rf"reading topic {topic} .*needs the SUB permission: {why}") as caught:
        read(topic, **given).collect()
    captured = capfd.readouterr()
    assert_hidden(str(caught.value), captured.out, captured.err, caplog.text)


def test_without_keys_nothing_is_read(spark, cluster):
    frame = spark.read.format("rocketmq").option("namesrv", cluster.namesrv).option("subscribe", "orders")
    with pytest.raises(Exception, match="reading topic orders needs the SUB permission: No accessKey is configured"):
        frame.load().collect()


def test_a_stream_reads_and_a_sink_writes_what_their_account_may(read, spark, cluster, tmp_path, capfd, caplog):
    def copied(name, **more):
        options = {"namesrv": cluster.namesrv, "topic": "copies", **KEYS, **more}
        stream = read(streaming=True, startingOffsets="earliest").selectExpr("body")
        query = (
            stream.writeStream.format("rocketmq")
            .options(**options)
            .option("checkpointLocation", str(tmp_path / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    query = copied("good")
    assert bodies(read("copies")) == numbers(10)
    files = [path for path in (tmp_path / "good").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"s3cr3t" in path.read_bytes()]
    texts = [str(query.lastProgress), str(query.status)]
    for more in ({"topic": "secrets"}, {"secretKey": "wr0ng-s3cr3t"}):
        with pytest.raises(Exception, match=r"writing to topic \w+ needs the PUB permission") as caught:
            copied(str(len(texts)), **more)
        texts.append(str(caught.value))
    captured = capfd.readouterr()
    assert_hidden(*texts, captured.out, captured.err, caplog.text)


def test_a_batch_writes_what_its_account_may(read, spark, cluster):
    frame = spark.range(3).selectExpr("concat('batch-', id) AS body")
    sink = {"namesrv": cluster.namesrv, "topic": "copies", **KEYS}
    frame.write.format("rocketmq").options(**sink).mode("append").save()
    assert {"batch-0", "batch-1", "batch-2"} <= set(bodies(read("copies")))
    for more in ({"topic": "secrets"}, {"secretKey": "wr0ng-s3cr3t"}):
        with pytest.raises(Exception, match=r"writing to topic \w+ needs the PUB permission") as caught:
            frame.write.format("rocketmq").options(**sink | more).mode("append").save()
        assert_hidden(str(caught.value))


def test_users_of_5_x_read_with_the_right_to_subscribe_alone(spark):
    """The figures of a topic, by which batches are planned, take another right."""
    user = {"accessKey": "analyst", "secretKey": KEYS["secretKey"]}
    with running_cluster(
        None,
        "authenticationEnabled=true",
        "authorizationEnabled=true",
        f'initAuthenticationUser={{"username":"{ADMIN.access_key}","password":"{ADMIN.secret_key}"}}',
    ) as running:
        with (
            sync.Client(running.namesrv, credentials=ADMIN) as client,
            sync.AdminClient(client=client) as admin,
            sync.Producer("makers", client=client) as producer,
        ):
            admin.acl.create_user(User(username=user["accessKey"], password=user["secretKey"]))
            entries = [
                PolicyEntry(resource=each, actions=["Sub"], decision="Allow")
                for each in ("Topic:orders", "Group:analysts")
            ]
            admin.acl.create_acl(Acl(subject="User:analyst", policies=[Policy(entries=entries)]))
            for topic in ("orders", "secrets"):
                admin.topics.create(topic, read_queues=2, write_queues=2)
                for number in range(10):
                    producer.send(topic, b"%d" % number)
        options = {"namesrv": running.namesrv, "group": "analysts", **user}
        reader = spark.read.format("rocketmq").options(**options)
        assert bodies(reader.option("subscribe", "orders").load()) == numbers(10)
        why = "reading topic secrets needs the SUB permission: User:analyst has no permission to access Topic:secrets"
        with pytest.raises(Exception, match=why):
            reader.option("subscribe", "secrets").load().collect()
