"""The official `mqadmin` 5.5.0 against our broker. A consumer and a producer of 5.5.0 give it something to look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.interop import wire
from tests.interop.apache import Admin
from tests.interop.drivers import Driver, Sent
from tests.interop.process import wait_until
from tests.interop.pyromq_up import BROKER, CLUSTER, PyroMQ

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.interop

SOON = 10.0
TOPIC, GROUP = "looked-at", "looked-at-group"
MESSAGES = 8


@dataclass(frozen=True, slots=True)
class Scene:
    """A broker whose topic `TOPIC` was sent `MESSAGES` messages, all of them consumed by `GROUP`, which stays."""

    up: PyroMQ
    admin: Admin
    client: Driver
    sent: list[Sent]

    def run(self, *commands: str) -> list[str]:
        """What mqadmin prints; it prints exceptions, too, and ends well in any case."""
        said = self.admin.run(*commands)
        for command, text in zip(commands, said, strict=True):
            assert "Exception" not in text.replace("exceptionDesc=null", ""), f"{command}\n{text}"
        return said

    def route(self, topic: str) -> dict[str, tuple[str, int, int]]:
        return wire.route(self.up.namesrv, topic)


@pytest.fixture(scope="module")
def scene(java_packages: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    home = tmp_path_factory.mktemp("mqadmin")
    with PyroMQ(home / "up") as up, Driver("java-5.5.0", home / "client", up.namesrv) as client:
        up.create_topic(TOPIC)
        sent = [client.send(topic=TOPIC, body=f"body-{n}", keys=f"key-{n}", tags="red")[0] for n in range(MESSAGES)]
        client.do("push", name="one", group=GROUP, topic=TOPIC)
        client.wait_for_bodies("one", {f"body-{n}" for n in range(MESSAGES)}, SOON)
        yield Scene(up, Admin("5.5.0", home / "admin", up.namesrv), client, sent)


def rows(text: str) -> list[list[str]]:
    """The words of each line of a table."""
    return [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def fields(text: str, separator: str) -> dict[str, str]:
    pairs = [line.split(separator, 1) for line in text.splitlines() if separator in line]
    return {key.strip(): value.strip() for key, value in pairs}


def test_topics_are_made_shown_changed_and_deleted(scene: Scene) -> None:
    address = scene.up.address
    [made] = scene.run(f"updateTopic -c {CLUSTER} -t made -r 6 -w 5")
    assert f"create topic to {address} success" in made
    assert scene.route("made") == {BROKER: (address, 5, 6)}
    listed, route, status, clusters, changed = scene.run(
        "topicList",
        "topicRoute -t made",
        "topicStatus -t made",
        "topicClusterList -t made",
        f"updateTopicPerm -t made -b {address} -p 4",
    )
    assert {"made", TOPIC, "TBW102", CLUSTER, BROKER} <= set(listed.split())
    shown = wire.Answer(0, {}, "".join(route.split()).encode()).json
    assert [(data["brokerName"], data["readQueueNums"], data["writeQueueNums"]) for data in shown["queueDatas"]] == [
        (BROKER, 6, 5)
    ]
    # An empty topic has rows, too: tools learn its queues from them.
    assert sorted(row[:4] for row in rows(status) if row[0] == BROKER) == [
        [BROKER, str(queue), "0", "0"] for queue in range(5)
    ]
    assert clusters.split() == [CLUSTER]
    assert "update topic perm from 6 to 4" in changed
    assert scene.route("made") == {BROKER: (address, 5, 4)}
    [deleted] = scene.run(f"deleteTopic -c {CLUSTER} -t made")
    assert f"delete topic [made] from cluster [{CLUSTER}] success" in deleted
    assert scene.route("made") == {}


def test_groups_are_made_shown_and_deleted(scene: Scene) -> None:
    [made] = scene.run(f"updateSubGroup -c {CLUSTER} -g made-group -r 7 -q 2")
    assert f"create subscription group to {scene.up.address} success" in made
    [shown] = scene.run("getConsumerConfig -g made-group")
    assert {"retryMaxTimes": "7", "retryQueueNums": "2"}.items() <= fields(shown, "=").items()
    [deleted] = scene.run(f"deleteSubGroup -c {CLUSTER} -g made-group")
    assert "success" in deleted


@pytest.mark.scenario("broker 12.6")
def test_the_broker_is_shown(scene: Scene) -> None:
    address = scene.up.address
    listing, totals, status, settings = scene.run(
        "clusterList", "clusterList -m", f"brokerStatus -b {address}", f"getBrokerConfig -b {address}"
    )
    assert [CLUSTER, BROKER, "0", address] in [row[:4] for row in rows(listing)]
    [total] = [row for row in rows(totals) if row[:2] == [CLUSTER, BROKER]]
    assert int(total[4]) >= MESSAGES
    shown = fields(status, ":")
    assert shown["brokerActive"] == "true"
    assert int(shown["msgPutTotalTodayNow"]) >= MESSAGES
    assert int(shown["msgGetTotalTodayNow"]) >= MESSAGES
    assert fields(settings, "=")["brokerName"] == BROKER
    assert fields(settings, "=")["listenPort"] == str(scene.up.port)


def test_a_setting_is_changed(scene: Scene) -> None:
    address = scene.up.address
    [changed] = scene.run(f"updateBrokerConfig -b {address} -k fileReservedTime -v 10")
    assert f"update broker config success, {address}" in changed
    [settings] = scene.run(f"getBrokerConfig -b {address}")
    assert fields(settings, "=")["fileReservedTime"] == "10"


@pytest.mark.scenario("broker 12.6")
def test_the_progress_and_members_of_groups_are_shown(scene: Scene) -> None:
    def caught_up() -> bool:
        groups, progress = scene.run("consumerProgress", f"consumerProgress -g {GROUP}")
        queues = [row for row in rows(progress) if row[0] == TOPIC]
        assert [row[0] for row in rows(groups)].count(GROUP) == 1
        assert sum(int(row[3]) for row in queues) >= MESSAGES
        assert all(int(row[6]) >= 0 for row in queues), "messages in flight"
        return len(queues) == 4 and {row[5] for row in queues} == {"0"}

    wait_until(caught_up, 20, "the group is shown to have consumed everything")
    members, status, producers, brokers, stats = scene.run(
        f"consumerConnection -g {GROUP}",
        f"consumerStatus -g {GROUP}",
        f"producerConnection -g interop-producer -t {TOPIC}",
        f"brokerConsumeStats -b {scene.up.address}",
        f"topicStatus -t {TOPIC}",
    )
    assert "V5_5_0" in members
    assert [TOPIC, "*"] in rows(members)
    assert "MessageModel: CLUSTERING" in members
    assert "Rebalance OK" in status
    assert "V5_5_0" in producers
    assert [TOPIC, GROUP, BROKER] in [row[:3] for row in rows(brokers)]
    assert sum(int(row[3]) for row in rows(stats) if row[0] == BROKER) >= MESSAGES


def test_messages_are_found(scene: Scene) -> None:
    sent = scene.sent[5]
    place = f"-i {sent.queue} -o {sent.offset}"
    answers = scene.run(
        f"queryMsgById -t {TOPIC} -i {sent.offset_id}",
        f"queryMsgByOffset -t {TOPIC} -b {BROKER} {place}",
        f"queryMsgByUniqueKey -t {TOPIC} -i {sent.message_id}",
    )
    for answer in answers:
        shown = fields(answer, ":")
        assert (shown["Topic"], shown["Queue ID"], shown["Queue Offset"]) == (TOPIC, str(sent.queue), str(sent.offset))
        assert (shown["Tags"], shown["Keys"]) == ("[red]", "[key-5]")
        assert "trackType=CONSUMED" in answer
    [by_key] = scene.run(f"queryMsgByKey -t {TOPIC} -k key-5")
    assert [sent.message_id] in [row[:1] for row in rows(by_key)]


def test_messages_are_sent_consumed_and_printed(scene: Scene) -> None:
    scene.up.create_topic("printed")
    [sent] = scene.run(f"sendMessage -t printed -p by-the-tool -b {BROKER} -i 2 -k k -c t")
    assert [BROKER, "2", "SEND_OK"] in [row[:3] for row in rows(sent)]
    consumed, printed = scene.run(
        # Told no queue, it counts one message more in each than there is, and may end before it finds any.
        f"consumeMessage -t printed -g tools -b {BROKER} -i 2 -c 1",
        "printMsg -t printed",
    )
    assert "Consume ok" in consumed
    for text in (consumed, printed):
        assert text.count("BODY: by-the-tool") == 1


def test_a_group_is_set_back_to_a_time(scene: Scene) -> None:
    client, topic, group = scene.client, "set-back", "set-back-group"
    scene.up.create_topic(topic)
    for n in range(4):
        client.send(topic=topic, body=f"back-{n}")
    client.do("push", name="back", group=group, topic=topic)
    client.wait_for_bodies("back", {f"back-{n}" for n in range(4)}, SOON)
    wait_until(
        lambda: "Diff Total: 0" in scene.run(f"consumerProgress -g {group}")[0], 20, "what was consumed is committed"
    )
    [reset] = scene.run(f"resetOffsetByTime -g {group} -t {topic} -s 0")
    assert sorted(row for row in rows(reset) if row[0] == BROKER) == [[BROKER, str(queue), "0"] for queue in range(4)]
    # The consumer is told, waits for what it has in hand, and begins again: ten seconds, says the client.
    wait_until(lambda: sorted(client.bodies("back")) == sorted([f"back-{n}" for n in range(4)] * 2), 30, "all again")
    client.do("leave", name="back")


@pytest.mark.scenario("broker 9.7")
def test_a_group_is_set_back_by_the_broker_whether_it_is_online_or_not(scene: Scene) -> None:
    client, topic, group = scene.client, "set-back-here", "set-back-here-group"
    setting = f"updateBrokerConfig -b {scene.up.address} -k useServerSideResetOffset -v"
    reset = f"resetOffsetByTime -g {group} -t {topic} -s 0"
    bodies = [f"here-{n}" for n in range(4)]

    def consumed(name: str, times: int) -> bool:
        return sorted(client.bodies(name)) == sorted(bodies * times)

    scene.up.create_topic(topic)
    for body in bodies:
        client.send(topic=topic, body=body)
    scene.run(f"{setting} true")
    try:
        client.do("push", name="here", group=group, topic=topic)
        client.wait_for_bodies("here", set(bodies), SOON)
        done = "what was consumed is committed"
        wait_until(lambda: "Diff Total: 0" in scene.run(f"consumerProgress -g {group}")[0], 20, done)
        [said] = scene.run(reset)
        assert sorted(row for row in rows(said) if row[0] == BROKER) == [[BROKER, str(q), "0"] for q in range(4)]
        # It is told by its next pull, gives the queues up, and takes them again ten seconds later.
        wait_until(lambda: consumed("here", 2), 40, "all again")
        wait_until(lambda: "Diff Total: 0" in scene.run(f"consumerProgress -g {group}")[0], 20, done)
        client.do("leave", name="here")
        scene.run(reset)
        client.do("push", name="later", group=group, topic=topic)
        wait_until(lambda: consumed("later", 1), 40, "all once more, by a consumer that was not there")
        client.do("leave", name="later")
    finally:
        scene.run(f"{setting} false")
