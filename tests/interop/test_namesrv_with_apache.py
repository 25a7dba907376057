"""Our name server between parts that nobody here wrote: Apache's brokers, the official Java clients and `mqadmin`.

Every check of what the name server holds goes over a bare socket (`wire.py`), so that a mistake our own client shares
with our server cannot hide.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop import wire
from tests.interop.apache import CLUSTER, CONSUMED_WITHIN, TLS_CLIENT, Broker, Client
from tests.interop.conftest import REGISTERED_WITHIN
from tests.interop.peers import OURS, NameServer
from tests.interop.process import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.conftest import Cluster
    from tests.interop.process import Process

pytestmark = pytest.mark.interop

CLIENTS = ("4.9.8", "5.5.0")
ADMINS = ("4.9.7", "5.5.0")
MESSAGES = 200
HEALED_WITHIN = 35.0  # brokers register every 30 s


def plain(version: str) -> str:
    """A version as part of a topic's name, where no dot may stand."""
    return version.replace(".", "_")


def test_brokers_of_both_lines_register(cluster: Cluster) -> None:
    assert wire.brokers(cluster.namesrv.address) == cluster.addresses
    # Where a producer's unknown topic goes, and the topic named like the cluster that admin tools create topics by.
    for topic in ("TBW102", CLUSTER):
        route = wire.route(cluster.namesrv.address, topic)
        assert {name: (address, perm & 6) for name, (address, _, perm) in route.items()} == {
            broker.name: (broker.address, 6) for broker in cluster.brokers
        }


@pytest.fixture(scope="session")
def sent_topic(cluster: Cluster) -> Callable[[str], str]:
    """A topic that nobody created, filled once by the producer of a version."""

    @functools.cache
    def topic_of(version: str) -> str:
        topic = f"sent-by-{plain(version)}"
        sent = cluster.client(version).produce(topic, MESSAGES)
        assert len({message_id for message_id, _ in sent}) == MESSAGES
        assert {broker for _, broker in sent} == cluster.addresses.keys()
        return topic

    return topic_of


@pytest.mark.parametrize("consumer", CLIENTS)
@pytest.mark.parametrize("producer", CLIENTS)
def test_official_clients_produce_and_consume_over_both_brokers(
    cluster: Cluster, sent_topic: Callable[[str], str], producer: str, consumer: str
) -> None:
    topic = sent_topic(producer)
    got = cluster.client(consumer).consume(topic, f"group-{plain(producer)}-{plain(consumer)}", MESSAGES)
    assert sorted(set(got)) == sorted(f"{topic}-{n}" for n in range(MESSAGES))


@pytest.mark.parametrize("version", ADMINS)
def test_mqadmin_shows_brokers_topics_routes_and_settings(cluster: Cluster, version: str) -> None:
    listing, topics, route, clusters, settings = cluster.admin(version).run(
        "clusterList", "topicList", "topicRoute -t TBW102", "topicClusterList -t TBW102", "getNamesrvConfig"
    )
    rows = [line.split() for line in listing.splitlines()]
    for broker in cluster.brokers:
        assert [CLUSTER, broker.name, "0", broker.address] in [row[:4] for row in rows], listing
    assert {"TBW102", CLUSTER, *cluster.addresses} <= set(topics.split())
    shown = wire.Answer(0, {}, "".join(route.split()).encode()).json
    assert {data["brokerName"]: data["brokerAddrs"] for data in shown["brokerDatas"]} == cluster.addresses
    assert clusters.split() == [CLUSTER]
    shown_settings = dict(line.split("=", 1) for line in "".join(settings.split(" ")).splitlines() if "=" in line[1:])
    assert shown_settings["listenPort"] == str(cluster.namesrv.port)


@pytest.mark.parametrize("version", ADMINS)
def test_mqadmin_changes_what_the_name_server_holds_and_takes_it_back(cluster: Cluster, version: str) -> None:
    address, admin, broker = cluster.namesrv.address, cluster.admin(version), cluster.brokers[0]
    topic = f"made-by-{plain(version)}"
    ordered = f"ordered-by-{plain(version)}"  # no broker knows it, or it would register anew and undo the wiping

    def kv(namespace: str, key: str) -> str | None:
        answer = wire.ask(address, wire.GET_KV_CONFIG, namespace=namespace, key=key)
        assert answer.code in (0, 22)
        return answer.ext.get("value")

    def is_writeable() -> bool:
        _, _, perm = wire.route(address, "SELF_TEST_TOPIC")[broker.name]
        return perm & 2 != 0

    def settings() -> list[str]:
        return wire.ask(address, wire.GET_NAMESRV_CONFIG).body.decode().splitlines()

    said = admin.run(
        f"updateTopic -c {CLUSTER} -t {topic} -r 6 -w 6",
        f"updateKvConfig -s interop -k {version} -v kept",
        f"updateOrderConf -m put -t {ordered} -v {broker.name}:6",
        "updateNamesrvConfig -k orderMessageEnable -v true",
    )
    for each in cluster.brokers:
        assert f"create topic to {each.address} success" in said[0]
    assert "create or update kv config to namespace success" in said[1]
    assert "update orderConf success" in said[2]
    assert "update name server config success" in said[3]
    assert wire.route(address, topic) == {each.name: (each.address, 6, 6) for each in cluster.brokers}
    assert kv("interop", version) == "kept"
    assert kv("ORDER_TOPIC_CONFIG", ordered) == f"{broker.name}:6"
    assert "orderMessageEnable=true" in settings()

    said = admin.run(
        f"wipeWritePerm -b {broker.name}",
        f"deleteKvConfig -s interop -k {version}",
        f"updateOrderConf -m get -t {ordered}",
        "updateNamesrvConfig -k orderMessageEnable -v false",
    )
    assert f"wipe write perm of broker[{broker.name}] in name server[{address}] OK," in said[0]
    assert "delete kv config from namespace success" in said[1]
    assert f"get orderConf success. topic=[{ordered}], orderConf=[{broker.name}:6]" in said[2]
    assert "update name server config success" in said[3]
    assert not is_writeable()
    assert kv("interop", version) is None
    assert "orderMessageEnable=false" in settings()

    said = admin.run(
        f"addWritePerm -b {broker.name}",
        f"updateOrderConf -m delete -t {ordered}",
        f"deleteTopic -c {CLUSTER} -t {topic}",
    )
    assert f"add write perm of broker[{broker.name}] in name server[{address}] OK," in said[0]
    assert "delete orderConf success" in said[1]
    assert f"delete topic [{topic}] from NameServer success" in said[2]
    assert is_writeable()
    assert kv("ORDER_TOPIC_CONFIG", ordered) is None
    assert wire.route(address, topic) == {}


def test_brokers_and_clients_speak_tls_and_killed_brokers_are_forgotten_at_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    """This name server refuses plain text, so what gets through went through TLS.

    The brokers also compress their registration and ask for the data version first, which is not the default.
    """
    make = cluster.namesrv.make
    # 5.5.0 says in its header that the body is not compressed, and Apache's name servers believe it.
    versions = ("4.9.7", "5.5.0") if make == OURS else ("4.9.7",)
    with NameServer(make, tmp_path / "namesrv", tls_mode="enforcing") as namesrv, contextlib.ExitStack() as running:
        settings: dict[str, Any] = {"compressedRegister": "true", "forceRegister": "false"}
        brokers = [
            Broker(version, tmp_path / f"broker-{version}", namesrv.address, jvm=TLS_CLIENT, **settings)
            for version in versions
        ]
        for broker in brokers:
            running.enter_context(broker.process)
        for broker in brokers:
            broker.wait_until_booted()
        known = {broker.name: {"0": broker.address} for broker in brokers}
        wait_until(lambda: wire.brokers(namesrv.address, tls=True) == known, REGISTERED_WITHIN, f"it knows {known}")

        producer = Client("4.9.8", tmp_path / "producer", namesrv.address, jvm=TLS_CLIENT)
        consumer = Client("5.5.0", tmp_path / "consumer", namesrv.address, jvm=TLS_CLIENT)
        assert {broker for _, broker in producer.produce("sealed", 20)} == known.keys()
        assert set(consumer.consume("sealed", "sealed-group", 20)) == {f"sealed-{n}" for n in range(20)}

        for broker in brokers:
            broker.process.kill()
        wait_until(lambda: not wire.brokers(namesrv.address, tls=True), 2, "the killed brokers are forgotten")


def test_everything_heals_when_the_name_server_was_killed_and_started_again(
    cluster: Cluster, sent_topic: Callable[[str], str]
) -> None:
    address = cluster.namesrv.address
    wire.ask(address, wire.PUT_KV_CONFIG, namespace="interop", key="before", value="the crash")
    topic = sent_topic("4.9.8")  # on both brokers already: a consumer would learn of a second one only 30 s later
    with contextlib.ExitStack() as running:
        producer = running.enter_context(cluster.client("4.9.8").producer())
        consumer = running.enter_context(cluster.client("5.5.0").consumer(topic, "healed-group"))
        send(producer, topic, "one")
        # All of them, for then both brokers serve it.
        everything = {f"{topic}-{n}" for n in range(MESSAGES)} | {"one"}
        wait_until(lambda: set(consumer.lines("got")) == everything, CONSUMED_WITHIN, "the consumer got what there was")

        cluster.namesrv.kill()
        send(producer, topic, "two")  # with the routes they know, clients do not miss a name server
        cluster.namesrv.start()
        assert wire.ask(address, wire.GET_KV_CONFIG, namespace="interop", key="before").ext == {"value": "the crash"}
        healed = cluster.wait_until_registered(HEALED_WITHIN)
        print(f"brokers were back {healed:.1f} s after the start")

        # A new topic needs a route from the new name server, asked for by a client that knew the old one.
        send(producer, "new-topic", "three")
        send(producer, topic, "four")
        wait_until(lambda: {"two", "four"} <= set(consumer.lines("got")), 10, "the running consumer goes on")
    assert cluster.client("5.5.0").consume("new-topic", "new-group", 1) == ["three"]


def send(producer: Process, topic: str, body: str) -> None:
    """Have a running producer send one message that must arrive."""
    done = len(producer.lines("sent"))
    producer.say(f"{topic} {body}")
    wait_until(lambda: len(producer.lines("sent")) > done or bool(producer.lines("failed")), 20, f"{body} was sent")
    assert producer.lines("failed") == []
