"""What `rocketmq_meta` finds out, and what it says where a broker is silent; no Spark is needed for that."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.messages import Topics, topics_in

from pyromq.errors import ConfigError, ConnectFailed, RouteNotFound
from pyromq.protocol.bodies import RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import RegisterBroker
from pyromq.remoting import RemotingClient
from pyromq.spark.blocking_client import Link
from pyromq.spark.meta.options import MetaOptions
from pyromq.spark.meta.rows import MetaRows
from pyromq.spark.meta.tables import TABLES
from pyromq.spark.options import parse
from pyromq.sync import Producer
from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with running_cluster() as cluster, topics_in(cluster) as made:
        yield made


def rows(namesrv: str, table: str, **given: Any) -> list[dict[str, Any]]:
    options = parse(MetaOptions, {"namesrv": namesrv, "table": table, **given})
    assert isinstance(options, MetaOptions)
    with Link(options) as link:
        found = link.run(MetaRows(link, options.topics, options.groups).of(table))
    assert all(row.keys() <= TABLES[table].columns.keys() for row in found)
    return found


@contextmanager
def dead_broker(namesrv: str, topic: str) -> Iterator[str]:
    """A broker that is registered and does not listen, as one is for a while after its machine died."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"  # bound and not listening: whoever connects is refused
        body = RegisterBrokerBody(
            topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
                topic_config_table={topic: TopicConfig(topic_name=topic, read_queue_nums=2, write_queue_nums=2)}
            )
        )
        header = RegisterBroker("broker-dead", address, "DefaultCluster", "", 0)
        registered, done = threading.Event(), threading.Event()

        async def live() -> None:
            async with RemotingClient() as client:
                request = Command.request(RequestCode.REGISTER_BROKER, header, body.encode())
                assert (await client.invoke(namesrv, request, 5.0)).code == 0
                registered.set()
                await asyncio.to_thread(done.wait)  # the registration goes with the connection

        thread = threading.Thread(target=lambda: asyncio.run(live()))
        thread.start()
        try:
            assert registered.wait(10)
            yield address
        finally:
            done.set()
            thread.join()


def test_topics_are_told_with_their_settings(topics):
    topic = topics.new(3)
    topics.admin.topics.update(topic, read_queues=5, perm=4)
    [row] = rows(topics.cluster.namesrv, "topics", topics=topic)
    assert (row["kind"], row["cluster"], row["brokerName"]) == ("user", "DefaultCluster", "broker-a")
    assert (row["readQueues"], row["writeQueues"], row["perm"], row["ordered"]) == (5, 3, 4, False)
    kinds = {row["topic"]: row["kind"] for row in rows(topics.cluster.namesrv, "topics")}
    assert (kinds[topic], kinds["SCHEDULE_TOPIC_XXXX"], kinds["broker-a"]) == ("user", "system", "system")


def test_queues_are_told_with_their_ends_also_those_that_are_no_more_written_to(topics):
    topic = topics.new(3)
    topics.send(topic, [b"%d" % number for number in range(30)])
    topics.admin.topics.update(topic, write_queues=1)
    found = rows(topics.cluster.namesrv, "queues", topics=topic)
    assert [row["queueId"] for row in found] == [0, 1, 2]
    assert sum(row["messages"] for row in found) == 30
    assert all(row["minOffset"] == 0 and row["maxOffset"] == row["messages"] for row in found)
    assert found[0]["lastStoreTimestamp"] is not None
    assert not {"SCHEDULE_TOPIC_XXXX", "TBW102"} & {row["topic"] for row in rows(topics.cluster.namesrv, "queues")}


def test_groups_are_told_with_their_lag_and_those_that_never_read_without(topics):
    topic = topics.new(2)
    topics.send(topic, [b"%d" % number for number in range(20)])
    topics.admin.groups.create("idle")
    topics.admin.groups.create("busy")
    ends = {queue: ends.max_offset for queue, ends in topics.admin.topics.stats(topic).items()}
    topics.admin.offsets.set("busy", dict.fromkeys(ends, 3))
    found = rows(topics.cluster.namesrv, "groups", groups="busy,idle", topics=topic)
    busy = [row for row in found if row["group"] == "busy"]
    assert {row["queueId"]: row["lag"] for row in busy} == {queue.queue_id: end - 3 for queue, end in ends.items()}
    assert [row for row in found if row["group"] == "idle"] == [{"group": "idle"}]
    everything = rows(topics.cluster.namesrv, "groups")
    assert {(row["topic"], row["queueId"], row["lag"]) for row in everything if row.get("group") == "busy"} >= {
        (topic, queue.queue_id, end - 3) for queue, end in ends.items()
    }
    assert "TOOLS_CONSUMER" not in {row.get("group") for row in everything}


def test_brokers_are_told_with_their_figures(topics):
    topics.send(topics.new(1), [b"x"])
    [row] = rows(topics.cluster.namesrv, "brokers")
    assert (row["cluster"], row["brokerName"], row["brokerId"]) == ("DefaultCluster", "broker-a", 0)
    assert row["address"] == topics.cluster.broker.address
    assert row["version"].startswith("V4")
    assert 0 < row["diskUsed"] < 1
    assert row["logBytes"] > 0
    assert row["startTimestamp"] <= row["oldestTimestamp"]
    assert row["inTps"] >= 0


def test_a_silent_broker_has_rows_without_figures_and_never_zeros(topics):
    topic = topics.new(1)
    topics.send(topic, [b"x"] * 3)
    namesrv = topics.cluster.namesrv
    with dead_broker(namesrv, topic) as address:
        by_broker = {row["brokerName"]: row for row in rows(namesrv, "brokers")}
        dead = by_broker["broker-dead"]
        assert dead.pop("error").startswith(f"{address}: cannot connect")
        assert dead == {
            "cluster": "DefaultCluster",
            "brokerName": "broker-dead",
            "brokerId": 0,
            "address": address,
        }
        assert "error" not in by_broker["broker-a"]

        alive, of_dead = rows(namesrv, "topics", topics=topic)
        assert ("error" in alive, alive["ordered"]) == (False, False)
        assert (of_dead["brokerName"], of_dead["readQueues"], of_dead["perm"]) == ("broker-dead", 2, 6)
        assert "ordered" not in of_dead
        assert address in of_dead["error"]

        queues = rows(namesrv, "queues", topics=topic)
        assert [(row["brokerName"], row["queueId"], row.get("messages")) for row in queues] == [
            ("broker-a", 0, 3),
            ("broker-dead", 0, None),
            ("broker-dead", 1, None),
        ]
        assert all((address in row.get("error", "")) is (row["brokerName"] == "broker-dead") for row in queues)

        [told] = [row for row in rows(namesrv, "groups") if row.get("brokerName") == "broker-dead"]
        assert told.keys() == {"brokerName", "error"}


def test_a_namespace_sees_its_own_topics_and_under_their_own_names(topics):
    topics.admin.topics.create("tenant%theirs", write_queues=1, read_queues=1)
    with Producer("p", namesrv=topics.cluster.namesrv) as producer:
        producer.send("tenant%theirs", b"x")
    found = rows(topics.cluster.namesrv, "queues", namespace="tenant")
    assert [(row["topic"], row["messages"]) for row in found if row["messages"]] == [("theirs", 1)]
    assert [row["topic"] for row in rows(topics.cluster.namesrv, "topics", namespace="tenant")] == ["theirs"]


def test_what_cannot_be_known_is_an_error(topics):
    with pytest.raises(RouteNotFound, match="no-such: no broker has this topic"):
        rows(topics.cluster.namesrv, "queues", topics="no-such")
    with pytest.raises(ConnectFailed, match="name server"):
        rows("127.0.0.1:1", "brokers")
    with pytest.raises(ConfigError, match="there is no table 'queue'; did you mean queues"):
        rows(topics.cluster.namesrv, "queue")
    with pytest.raises(ConfigError, match="option table is missing"):
        parse(MetaOptions, {"namesrv": topics.cluster.namesrv})
