"""Delays, timers, transactions, traces, look-ups and replies: official clients with our broker, and with ours.

Official clients differ in what they have: Node knows delay levels only, Go has no timers, and 4.9.8 neither.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from scripts.setup import SetupError
from tests.interop import wire
from tests.interop.apache import Admin
from tests.interop.drivers import PEERS, Driver
from tests.interop.process import PeerFailed, wait_until
from tests.interop.pyromq_up import PyroMQ
from tests.interop.received_by_us import Inbox, consumer_of

from pyromq.client import Client, Producer
from pyromq.protocol.record import MessageRecord, decode_records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyromq.client import ReceivedMessage

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("nothing_is_left")]

PULL_MESSAGE, QUERY_MESSAGE = 11, 12
JAVA = ("java-5.5.0", "java-4.9.8")
WITH_GO = (*JAVA, "go-2.1.2")
TIMERS = ("java-5.5.0",)
SUBSCRIPTION = 4
NOT_FOUND = 22
TRACES = "RMQ_SYS_TRACE_TOPIC"
SOON = 20.0
# Clients say every 30 s who they are; Go for the first time before it knows any broker.
KNOWN = 45.0
LATE = 1500  # milliseconds that a delivery may be late, on a busy machine
DELAYS = {1: 1000, 2: 2000, 3: 3000, 9: 3000}  # a level above the highest means the highest
SETTINGS: dict[str, Any] = {
    "messageDelayLevel": "1s 2s 3s",
    "recallMessageEnable": "true",
    "traceTopicEnable": "true",
    "transactionCheckInterval": 300,
    "transactionTimeOut": 500,
}


@dataclass(slots=True)
class Company:
    """Our broker and the peers that were asked for so far, each one process: a JVM costs seconds."""

    up: PyroMQ
    home: Path
    admin: Admin
    _drivers: dict[str, Driver] = field(default_factory=dict)

    def driver(self, peer: str) -> Driver:
        if peer not in self._drivers:
            self._drivers[peer] = self.another(peer, "first").__enter__()
        return self._drivers[peer]

    def another(self, peer: str, name: str) -> Driver:
        """A process of that peer that is not shared."""
        try:
            return Driver(peer, self.home / f"{peer}-{name}", self.up.namesrv)
        except SetupError as exc:
            pytest.fail(str(exc), pytrace=False)

    def close(self) -> None:
        for driver in self._drivers.values():
            driver.__exit__()

    def client(self, **settings: Any) -> Client:
        return Client(self.up.namesrv, route_interval=0.5, **settings)

    def stored(self, topic: str) -> list[MessageRecord]:
        """All messages of a topic with one queue."""
        found: list[MessageRecord] = []
        with wire.Connection(self.up.address) as connection:
            while True:
                answer = connection.ask(
                    PULL_MESSAGE,
                    consumerGroup="looking",
                    topic=topic,
                    queueId=0,
                    queueOffset=len(found),
                    maxMsgNums=32,
                    sysFlag=SUBSCRIPTION,
                    commitOffset=0,
                    suspendTimeoutMillis=0,
                    subVersion=0,
                    subscription="*",
                    expressionType="TAG",
                )
                if answer.code != 0:
                    return found
                found += decode_records(answer.body)

    def waited(self, topic: str) -> dict[str, int]:
        """How many milliseconds each message was kept back, by its body."""
        return {record.body.decode(): record.store_timestamp - record.born_timestamp for record in self.stored(topic)}

    def found(self, topic: str, key: str) -> list[MessageRecord] | None:
        """What the index finds, None if it finds nothing."""
        with wire.Connection(self.up.address) as connection:
            answer = connection.ask(
                QUERY_MESSAGE, topic=topic, key=key, maxNum=32, beginTimestamp=0, endTimestamp=2**62
            )
        if answer.code == NOT_FOUND:
            return None
        assert answer.code == 0, answer
        return list(decode_records(answer.body))

    def traces(self, message_id: str) -> dict[str, list[str]]:
        """The contexts of a message's trace by their type, without it."""
        records = [text for found in self.found(TRACES, message_id) or [] for text in found.body.decode().split("\x02")]
        contexts = [record.split("\x01") for record in records]
        return {context[0]: context[1:] for context in contexts if message_id in context}


@pytest.fixture(scope="module")
def company(java_packages: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    home = tmp_path_factory.mktemp("company")
    with PyroMQ(home / "up", **SETTINGS) as up:
        company = Company(up, home, Admin("5.5.0", home / "admin", up.namesrv))
        try:
            yield company
        finally:
            company.close()


@pytest.fixture
def peer(request: pytest.FixtureRequest, company: Company) -> Driver:
    return company.driver(request.param)


@pytest.fixture
def topic(request: pytest.FixtureRequest, company: Company) -> str:
    """A topic with one queue that no other test has."""
    letters = [letter if letter.isalnum() else "-" for letter in request.node.name.removeprefix("test_")]
    name = "".join(letters).strip("-")[-80:]  # the peer's name stands at the end
    company.up.create_topic(name, 1)
    return name


def every(*peers: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("peer", peers, indirect=True)


def is_kept_back(waited: int, delay: int) -> bool:
    return delay <= waited < delay + LATE


# Delays


@every(*PEERS)
def test_each_delay_level_has_its_time(peer: Driver, company: Company, topic: str) -> None:
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic)
    for level in DELAYS:
        [sent] = peer.send(topic=topic, body=f"level-{level}", delay=level)
        assert sent.status == "SEND_OK"
    peer.wait_for_bodies(topic, {f"level-{level}" for level in DELAYS}, SOON)
    assert len(peer.bodies(topic)) == len(DELAYS), "each message once"
    waited = company.waited(topic)
    assert {
        level: waited[f"level-{level}"] for level in DELAYS if not is_kept_back(waited[f"level-{level}"], DELAYS[level])
    } == {}
    peer.do("leave", name=topic)


@every(*TIMERS)
def test_a_timer_comes_when_it_is_due_and_not_before(peer: Driver, company: Company, topic: str) -> None:
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic)
    delays = {"soon": 700, "later": 3400, "between": 2000}
    for body, delay in delays.items():
        peer.send(topic=topic, body=body, timer=delay)
    peer.wait_for_bodies(topic, set(delays), SOON)
    assert peer.bodies(topic) == ["soon", "between", "later"]
    waited = company.waited(topic)
    # One step of the wheel, a second, is added to what is late otherwise.
    assert {
        body: waited[body] for body in delays if not delays[body] <= waited[body] < delays[body] + 1000 + LATE
    } == {}
    peer.do("leave", name=topic)


@every(*TIMERS)
def test_a_timer_is_recalled_with_its_handle(peer: Driver, company: Company, topic: str) -> None:
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic)
    [recalled] = peer.send(topic=topic, body="recalled", timer=4000)
    peer.send(topic=topic, body="stays", timer=4000)
    [handle] = peer.said("handle", recalled.message_id)
    assert f"recalled {recalled.message_id}" in peer.do("recall", topic=topic, handle=handle)
    peer.send(topic=topic, body="last", timer=6000)
    peer.wait_for_bodies(topic, {"stays", "last"}, SOON)
    assert peer.bodies(topic) == ["stays", "last"]
    with pytest.raises(PeerFailed, match="recall failed, timestamp invalid"):
        peer.do("recall", topic=topic, handle=handle)
    peer.do("leave", name=topic)


# Transactions


def transaction(peer: Driver, topic: str, body: str, state: str, check: str = "UNKNOW") -> None:
    [sent] = peer.send("transaction", group=f"p-{topic}", topic=topic, body=body, state=state, check=check)
    assert sent.status == "SEND_OK"


@every(*WITH_GO)
def test_the_producer_commits_rolls_back_and_is_asked(peer: Driver, company: Company, topic: str) -> None:
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic)
    transaction(peer, topic, "committed", "COMMIT_MESSAGE")
    transaction(peer, topic, "rolled-back", "ROLLBACK_MESSAGE")
    peer.wait_for_bodies(topic, {"committed"}, SOON)
    transaction(peer, topic, "undecided", "UNKNOW", check="UNKNOW")
    wait_until(lambda: len(peer.said("checked", f"p-{topic}")) >= 2, KNOWN, "it is asked twice")
    transaction(peer, topic, "another", "UNKNOW", check="COMMIT_MESSAGE")
    peer.wait_for_bodies(topic, {"undecided", "another"}, SOON)
    asked = len(peer.said("checked", f"p-{topic}"))
    transaction(peer, topic, "refused", "UNKNOW", check="ROLLBACK_MESSAGE")
    wait_until(lambda: len(peer.said("checked", f"p-{topic}")) > asked, SOON, "it is asked and refuses")
    transaction(peer, topic, "last", "COMMIT_MESSAGE")
    peer.wait_for_bodies(topic, {"last"}, SOON)
    assert sorted(peer.bodies(topic)) == ["another", "committed", "last", "undecided"]
    peer.do("leave", name=topic)


@every("node-3.12.0")
def test_consumers_of_a_client_without_transactions_see_what_was_committed(
    peer: Driver, company: Company, topic: str
) -> None:
    java = company.driver("java-5.5.0")
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic)
    for number in range(3):
        transaction(java, topic, f"rolled-back-{number}", "ROLLBACK_MESSAGE")
        transaction(java, topic, f"committed-{number}", "COMMIT_MESSAGE")
    committed = {f"committed-{number}" for number in range(3)}
    peer.wait_for_bodies(topic, committed, SOON)
    assert sorted(peer.bodies(topic)) == sorted(committed)
    peer.do("leave", name=topic)


@every(*WITH_GO)
def test_another_producer_is_asked_when_the_first_was_killed(peer: Driver, company: Company, topic: str) -> None:
    with company.another(peer.peer, f"dies-{topic}") as first:
        transaction(first, topic, "orphan", "UNKNOW")
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic)
    transaction(peer, topic, "own", "COMMIT_MESSAGE", check="COMMIT_MESSAGE")
    peer.wait_for_bodies(topic, {"orphan", "own"}, KNOWN)
    assert sorted(peer.bodies(topic)) == ["orphan", "own"]
    peer.do("leave", name=topic)


# Looking up


@pytest.mark.scenario("broker 11.1")
@every(*WITH_GO)
def test_a_message_is_found_by_each_of_its_keys(peer: Driver, company: Company, topic: str) -> None:
    keys = "k1,k2" if peer.peer in JAVA else "k1"
    peer.send(topic=topic, body="another", keys="k3")
    [sent] = peer.send(topic=topic, body="wanted", keys=keys)
    for key in (*keys.split(","), sent.message_id):
        found = company.found(topic, key)
        assert found is not None
        assert [record.body for record in found] == [b"wanted"], key
        assert company.found("TBW102", key) is None
    by_key, by_id = company.admin.run(
        f"queryMsgByKey -t {topic} -k k1", f"queryMsgByUniqueKey -t {topic} -i {sent.message_id}"
    )
    assert sent.message_id in by_key
    assert sent.message_id in by_id


# Traces


@pytest.mark.scenario("broker 11.2")
@every(*JAVA)
def test_traces_of_producers_and_of_consumers_of_4_are_found_by_mqadmin(
    peer: Driver, company: Company, topic: str
) -> None:
    assert_traced(peer, company.driver("java-4.9.8"), company, topic)


@every("java-5.5.0")
def test_so_are_traces_of_consumers_of_5(peer: Driver, company: Company, topic: str) -> None:
    assert_traced(peer, peer, company, topic)


def assert_traced(producer: Driver, consumer: Driver, company: Company, topic: str) -> None:
    group = f"g-{topic}"
    consumer.do("push", name=topic, group=group, topic=topic, trace=1)
    [sent] = producer.send(topic=topic, body="traced", keys="k-17", tags="TagA", trace=1)
    consumer.wait_for_bodies(topic, {"traced"}, SOON)
    consumer.do("leave", name=topic)
    wait_until(lambda: len(company.traces(sent.message_id)) == 3, SOON, "it is traced")
    traces = company.traces(sent.message_id)
    _, region, producers, of, message_id, tags, keys, address, size, _, kind, offset_id, success, *_ = traces["Pub"]
    assert (producers, of, message_id, tags, keys) == ("traced-producer", topic, sent.message_id, "TagA", "k-17")
    assert (region, address, size, kind) == ("DefaultRegion", company.up.address, "6", "0")
    assert (offset_id, success) == (sent.offset_id, "true")
    assert traces["SubBefore"][2] == group
    assert traces["SubBefore"][3] == traces["SubAfter"][0], "the id of the delivery"
    assert traces["SubAfter"][3] == "true"
    assert_shown(company, sent.message_id, "traced-producer", group)


def assert_shown(company: Company, message_id: str, producers: str, group: str) -> None:
    """mqadmin shows who sent it and who consumed it, and that both went well."""
    [shown] = company.admin.run(f"queryMsgTraceById -i {message_id}")
    rows = [line.split() for line in shown.splitlines() if line.startswith(("Pub", "Sub"))]
    assert [row[:2] for row in rows] == [["Pub", producers], ["Sub", group]], shown
    assert [row[-1] for row in rows] == ["success"] * 2, shown


@pytest.mark.scenario("broker 11.2")
@pytest.mark.parametrize("peer", ["mqadmin-5.5.0"])
async def test_so_are_traces_of_our_clients(company: Company, peer: str) -> None:
    topic, group, inbox = "traced-by-ours", "g-traced-by-ours", Inbox()
    await asyncio.to_thread(company.up.create_topic, topic, 1)
    async with (
        Producer("ours-traced", client=company.client(trace=True)) as producer,
        consumer_of(group, topic, inbox, client=company.client(trace=True)),
    ):
        sent = await producer.send(topic, b"traced", tags="TagA", keys=["k-17"])
        await inbox.holds(1)
    assert set(company.traces(sent.id)) == {"Pub", "SubBefore", "SubAfter"}
    await asyncio.to_thread(assert_shown, company, sent.id, "ours-traced", group)


# Requests and replies


async def answer(message: ReceivedMessage) -> None:
    await message.reply(b"re:" + message.body)


@pytest.mark.scenario("broker 11.3")
@every(*WITH_GO)
async def test_we_ask_and_the_other_answers(peer: Driver, company: Company, topic: str) -> None:
    await asyncio.to_thread(peer.do, "push", name=topic, group=f"g-{topic}", topic=topic, reply=1)
    async with Producer("askers", client=company.client()) as producer:
        # The first consumer of a group may take some time to get its queues.
        await producer.request(topic, b"ready?", timeout=KNOWN)
        reply = await producer.request(topic, b"question", timeout=3.0)
    assert reply.body == b"re:question"
    properties = reply.raw.properties
    assert properties["TTL"] == "3000"
    now = 1000 * time.time()
    assert now - 60_000 < int(properties["PUSH_REPLY_TIME"]) <= int(properties["ARRIVE_TIME"]) <= now
    await asyncio.to_thread(peer.do, "leave", name=topic)


@pytest.mark.scenario("broker 11.3")
@every(*WITH_GO)
async def test_the_other_asks_and_we_answer(peer: Driver, company: Company, topic: str) -> None:
    async with consumer_of(f"g-{topic}", topic, answer, client=company.client()):
        said = await asyncio.to_thread(peer.do, "request", topic=topic, body="question")
    assert "reply re:question" in said


@pytest.mark.scenario("broker 11.3")
@pytest.mark.parametrize(
    ("peer", "asks"),
    [("go-2.1.2", "java-5.5.0"), ("java-5.5.0", "java-4.9.8")],
    indirect=["peer"],
    ids=["go-2.1.2", "java-5.5.0"],
)
def test_the_other_answers_an_official_client(peer: Driver, asks: str, company: Company, topic: str) -> None:
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic, reply=1)
    assert "reply re:question" in company.driver(asks).do("request", topic=topic, body="question")
    peer.do("leave", name=topic)


# A killed broker. These come last: it takes 30 s until all clients have told a new one who they are.


@every(*TIMERS)
def test_a_killed_broker_delivers_what_was_pending(peer: Driver, company: Company, topic: str) -> None:
    peer.send(topic=topic, body="of-a-level", delay=2)
    peer.send(topic=topic, body="of-a-timer", timer=2000)
    peer.send(topic=topic, body="of-a-later-timer", timer=7000)
    company.up.restart(kill=True)
    wait_until(lambda: len(company.stored(topic)) == 3, SOON, "all three are delivered")
    assert company.waited(topic)["of-a-later-timer"] >= 7000
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic)
    peer.wait_for_bodies(topic, {"of-a-level", "of-a-timer", "of-a-later-timer"}, KNOWN)
    assert len(peer.bodies(topic)) == 3, "each message once"
    peer.do("leave", name=topic)


@every(*WITH_GO)
def test_another_producer_is_asked_when_the_broker_was_killed_too(peer: Driver, company: Company, topic: str) -> None:
    with company.another(peer.peer, f"dies-{topic}") as first:
        transaction(first, topic, "decided", "COMMIT_MESSAGE")
        transaction(first, topic, "orphan", "UNKNOW")
    company.up.restart(kill=True)
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic)
    transaction(peer, topic, "own", "COMMIT_MESSAGE", check="COMMIT_MESSAGE")
    peer.wait_for_bodies(topic, {"decided", "orphan", "own"}, KNOWN)
    assert sorted(peer.bodies(topic)) == ["decided", "orphan", "own"]
    peer.do("leave", name=topic)
