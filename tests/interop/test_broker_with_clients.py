"""Our broker and name server, as `pyromq up` runs them, under the official clients of four kinds.

Every test has topics and groups of its own. A peer is one process for the whole module, since a JVM costs seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scripts.setup import SetupError
from tests.interop.drivers import PEERS, Driver
from tests.interop.process import PeerFailed, wait_until
from tests.interop.pyromq_up import BROKER, PyroMQ

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.interop

JAVA = ("java-5.5.0", "java-4.9.8")
WITH_GO = (*JAVA, "go-2.1.2")
MAKES_TOPICS = WITH_GO  # the Node client takes the name server's "no such topic" for the last word
# The stock delays begin with a second and a retry takes the third: 10 s.
DELAYS = " ".join(["1s"] * 18)
SOON = 10.0


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PyroMQ]:
    with PyroMQ(tmp_path_factory.mktemp("up"), messageDelayLevel=DELAYS) as running:
        running.create_topic("makes-groups")
        yield running


@pytest.fixture(scope="module")
def drivers(up: PyroMQ, java_packages: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Driver]]:
    running: dict[str, Driver] = {}
    yield running
    for driver in running.values():
        driver.__exit__()


@pytest.fixture
def peer(
    request: pytest.FixtureRequest,
    up: PyroMQ,
    drivers: dict[str, Driver],
    tmp_path_factory: pytest.TempPathFactory,
) -> Driver:
    """The driver of the kind that the test is run for, started when it is first asked for."""
    name = request.param
    if name not in drivers:
        try:
            drivers[name] = Driver(name, tmp_path_factory.mktemp(name), up.namesrv)
        except SetupError as exc:
            pytest.fail(str(exc), pytrace=False)
        drivers[name].__enter__()
    return drivers[name]


@pytest.fixture
def topic(request: pytest.FixtureRequest, up: PyroMQ, peer: Driver) -> str:
    """A topic that no other test has. It comes to be with the first message, unless the client cannot do that."""
    letters = [letter if letter.isalnum() else "-" for letter in request.node.name.removeprefix("test_")]
    name = "".join(letters).strip("-")[-90:]  # the peer's name stands at the end
    if peer.peer not in MAKES_TOPICS:
        up.create_topic(name)
    return name


def every(*peers: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("peer", peers, indirect=True)


def make_group(peer: Driver, group: str) -> None:
    """Have the broker make a group and its retry topic.

    Every client looks for the retry topic before its first heartbeat, which is what makes it, and then not for 30 s.
    """
    peer.send(topic="makes-groups", body="-")
    peer.do("push", name=f"{group}-maker", group=group, topic="makes-groups")
    peer.do("leave", name=f"{group}-maker")


def bodies(topic: str, count: int) -> set[str]:
    return {f"{topic}-{n}" for n in range(count)}


@every(*PEERS)
def test_sync_sends_are_consumed(peer: Driver, topic: str) -> None:
    sent = [peer.send(topic=topic, body=f"{topic}-{n}")[0] for n in range(8)]
    assert {each.status for each in sent} == {"SEND_OK"}
    assert {each.broker for each in sent} == {BROKER}
    assert len({(each.queue, each.offset) for each in sent}) == 8
    assert len({each.message_id for each in sent}) == 8
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic)
    peer.wait_for_bodies(topic, bodies(topic, 8), SOON)
    peer.send(topic=topic, body="later")
    peer.wait_for_bodies(topic, {"later"}, SOON)
    assert len(peer.bodies(topic)) == 9, "each message once"
    peer.do("leave", name=topic)


@every(*WITH_GO)
def test_async_sends_are_consumed(peer: Driver, topic: str) -> None:
    sent = peer.send("async", topic=topic, count=200)
    assert len(sent) == 200
    assert len({(each.queue, each.offset) for each in sent}) == 200
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic)
    peer.wait_for_bodies(topic, bodies(topic, 200), SOON)
    peer.do("leave", name=topic)


@every(*WITH_GO)
def test_oneway_sends_are_consumed(peer: Driver, topic: str) -> None:
    peer.do("oneway", topic=topic, count=20)
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic)
    peer.wait_for_bodies(topic, bodies(topic, 20), SOON)
    peer.do("leave", name=topic)


@every(*WITH_GO)
def test_a_batch_is_consumed_as_single_messages(peer: Driver, topic: str) -> None:
    [sent] = peer.send("batch", topic=topic, count=10)
    assert sent.status == "SEND_OK"
    assert len(set(sent.offset_id.split(","))) == 10
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic)
    peer.wait_for_bodies(topic, bodies(topic, 10), SOON)
    assert sorted(got.offset for got in peer.received(topic)) == list(range(10))
    assert {got.queue for got in peer.received(topic)} == {sent.queue}
    peer.do("leave", name=topic)


@every(*WITH_GO)
def test_an_ordered_topic_is_consumed_in_order(peer: Driver, topic: str) -> None:
    sent = peer.send("ordered", topic=topic, orders=4, count=10)
    assert len({each.queue for each in sent}) == 4
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic, orderly=1)
    peer.wait_for_bodies(topic, {f"{name}-{step}" for name in "abcd" for step in range(10)}, SOON)
    for name in "abcd":
        got = [body for body in peer.bodies(topic) if body.startswith(name)]
        assert got == [f"{name}-{step}" for step in range(10)]
    peer.do("leave", name=topic)


@every(*JAVA)
def test_an_orderly_consumer_that_fails_tries_the_same_message_again(peer: Driver, topic: str) -> None:
    peer.send("ordered", topic=topic, orders=1, count=4)
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic, orderly=1, fail=2)
    peer.wait_for_bodies(topic, {"a-3"}, SOON)
    wait_until(lambda: len(peer.bodies(topic)) >= 12, SOON, "each message three times")
    assert peer.bodies(topic)[:12] == [f"a-{step}" for step in range(4) for _ in range(3)]
    peer.do("leave", name=topic)


@every(*PEERS)
def test_tags_select_messages(peer: Driver, topic: str) -> None:
    for n in range(9):
        peer.send(topic=topic, body=f"{topic}-{n}", tags=("red", "green", "blue")[n % 3])
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic, tags="red||blue")
    peer.wait_for_bodies(topic, {f"{topic}-{n}" for n in range(9) if n % 3 != 1}, SOON)
    peer.send(topic=topic, body="not-this", tags="green")
    peer.send(topic=topic, body="but-this", tags="blue")
    peer.wait_for_bodies(topic, {"but-this"}, SOON)
    assert {got.tags for got in peer.received(topic)} == {"red", "blue"}
    peer.do("leave", name=topic)


@every(*PEERS)
def test_two_members_share_the_queues_and_take_over_at_once(peer: Driver, topic: str) -> None:
    peer.send(topic=topic, body="first")
    group = f"g-{topic}"
    one, two = f"{topic}-one", f"{topic}-two"
    peer.do("push", name=one, group=group, topic=topic)
    peer.wait_for_bodies(one, {"first"}, SOON)
    assert len(peer.queues(one)) == 4
    peer.do("push", name=two, group=group, topic=topic)
    # The broker tells the first member of the second; by itself it would look after 20 s (but see node/peer.js).
    wait_until(lambda: len(peer.queues(one)) == len(peer.queues(two)) == 2, SOON, "each has two queues")
    assert not peer.queues(one) & peer.queues(two)
    for n in range(20):
        peer.send(topic=topic, body=f"{topic}-{n}")
    wait_until(
        lambda: bodies(topic, 20) <= {*peer.bodies(one), *peer.bodies(two)}, SOON, "the two got everything together"
    )
    got = [body for body in peer.bodies(one) + peer.bodies(two) if body != "first"]
    assert sorted(got) == sorted(bodies(topic, 20)), "each message once"
    assert bodies(topic, 20) & set(peer.bodies(two)), "the second got its share"
    peer.do("leave", name=one)
    wait_until(lambda: len(peer.queues(two)) == 4, SOON, "the one that is left has all queues")
    for n in range(20, 24):
        peer.send(topic=topic, body=f"{topic}-{n}")
    peer.wait_for_bodies(two, {f"{topic}-{n}" for n in range(20, 24)}, SOON)
    peer.do("leave", name=two)


@every(*PEERS)
def test_broadcasting_gives_every_member_every_message(peer: Driver, topic: str) -> None:
    peer.send(topic=topic, body="before")
    names = [f"{topic}-one", f"{topic}-two"]
    for name in names:
        peer.do("push", name=name, group=f"g-{topic}", topic=topic, broadcast=1)
    for n in range(8):
        peer.send(topic=topic, body=f"{topic}-{n}")
    for name in names:
        peer.wait_for_bodies(name, bodies(topic, 8), SOON)
        peer.do("leave", name=name)


@every(*WITH_GO)
def test_failed_messages_are_tried_again_and_end_among_the_dead_letters(peer: Driver, topic: str) -> None:
    group = f"g-{topic}"
    peer.send(topic=topic, body="poison", tags="red", keys="k")
    make_group(peer, group)
    peer.do("push", name=topic, group=group, topic=topic, fail=99, max=2)
    wait_until(lambda: len(peer.bodies(topic)) >= 3, SOON, "tried three times")
    peer.do("push", name=f"{topic}-dead", group=f"{group}-dead", topic=f"%DLQ%{group}")
    peer.wait_for_bodies(f"{topic}-dead", {"poison"}, SOON)
    assert [got.times for got in peer.received(topic)] == [0, 1, 2]
    assert {got.topic for got in peer.received(topic)} == {topic}
    [dead] = peer.received(f"{topic}-dead")
    assert dead.tags == "red"
    peer.do("leave", name=topic)
    peer.do("leave", name=f"{topic}-dead")


@every(*PEERS)
def test_a_message_that_failed_once_comes_again(peer: Driver, topic: str) -> None:
    peer.send(topic=topic, body="again")
    make_group(peer, f"g-{topic}")
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic, fail=1)
    wait_until(lambda: len(peer.bodies(topic)) >= 2, SOON, "tried twice")
    assert [(got.body, got.times) for got in peer.received(topic)] == [("again", 0), ("again", 1)]
    peer.do("leave", name=topic)


@every(*WITH_GO)
def test_a_delayed_message_comes_later(peer: Driver, topic: str) -> None:
    peer.send(topic=topic, body="now")
    peer.send(topic=topic, body="delayed", delay=3)
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic)
    peer.wait_for_bodies(topic, {"now", "delayed"}, SOON)
    peer.do("leave", name=topic)


@every(*JAVA)
def test_lite_pull_seeks_and_goes_on_where_it_committed(peer: Driver, topic: str) -> None:
    [sent] = peer.send("batch", topic=topic, count=10)
    queue = {"group": f"g-{topic}", "topic": topic, "queue": sent.queue}
    said = peer.do("lite", name=f"{topic}-one", **queue, offset=4, count=3)
    assert peer.bodies(f"{topic}-one") == [f"{topic}-{n}" for n in (4, 5, 6)]
    assert "committed 7" in said
    peer.do("lite", name=f"{topic}-two", **queue, count=3)
    assert peer.bodies(f"{topic}-two") == [f"{topic}-{n}" for n in (7, 8, 9)]
    peer.do("lite", name=f"{topic}-three", **queue, offset=0, count=10)
    assert peer.bodies(f"{topic}-three") == [f"{topic}-{n}" for n in range(10)]


@every(*JAVA)
def test_big_messages_pass_and_too_big_ones_are_refused(peer: Driver, topic: str) -> None:
    [sent] = peer.send(topic=topic, body="-", size=4 << 20)
    assert sent.status == "SEND_OK"
    with pytest.raises(PeerFailed, match=r"message body size over|illegal"):
        peer.send(topic=topic, body="-", size=(4 << 20) + 1)


@every(*JAVA)
def test_the_port_for_important_clients_takes_sends(peer: Driver, topic: str) -> None:
    [sent] = peer.send(topic=topic, body="important", vip=1)
    assert sent.status == "SEND_OK"
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic)
    peer.wait_for_bodies(topic, {"important"}, SOON)
    peer.do("leave", name=topic)
