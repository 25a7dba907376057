"""Sending: what is stored and what is answered, and that the fast path and the general one are the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.broker.message_kit import STORE_HOST, Parts, Peer, send_request

from pyromq.broker.config import BrokerConfig
from pyromq.broker.send import strip_wait
from pyromq.protocol import properties as props
from pyromq.protocol.batch import BatchItem, encode_batch
from pyromq.protocol.bodies.register import TopicConfig, TopicFilterType

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyromq.protocol.command import Command
    from pyromq.protocol.record import MessageRecord


@pytest.fixture
async def parts(tmp_path: Path) -> Iterator[Parts]:  # type: ignore[misc]
    made = Parts(tmp_path)
    made.topics.update(TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4))
    yield made
    made.close()


@pytest.mark.scenario("broker 3.2")
async def test_a_send_is_answered_with_its_place_and_stored_with_the_cluster_and_without_wait(parts):
    for _ in range(2):  # the first send to a topic takes the general path, the second the fast one
        reply = await parts.send(b"hello", "TAGS\x01A\x02WAIT\x01true\x02KEYS\x01k", queue_id=2)
        assert reply.code == 0
        assert reply.ext["MSG_REGION"] == "DefaultRegion"
        assert reply.ext["TRACE_ON"] == "true"
        assert reply.ext["queueId"] == "2"
    first, second = parts.messages("orders", 2)
    assert reply.ext["msgId"] == second.offset_msg_id
    assert reply.ext["queueOffset"] == "1"
    for stored in (first, second):
        assert props.parse(props.decode(stored.properties)) == {"TAGS": "A", "KEYS": "k", "CLUSTER": "DefaultCluster"}
        assert stored.store_host == STORE_HOST
        assert stored.born_address == ("192.168.1.10", 54321)


@pytest.mark.scenario("broker 3.1")
async def test_a_negative_queue_id_lets_the_broker_choose_among_all_queues(parts):
    chosen = [(await parts.send(b"x", queue_id=-1)).ext["queueId"] for _ in range(200)]
    assert set(chosen) == {"0", "1", "2", "3"}
    for queue_id in range(4):
        assert len(parts.messages("orders", queue_id)) == chosen.count(str(queue_id))


async def test_an_unknown_topic_is_made_through_the_default_topic(parts):
    reply = await parts.send(b"x", topic="fresh")
    assert reply.code == 0
    assert parts.topics.get("fresh").write_queue_nums == 4


@pytest.mark.scenario("broker 2.3")
async def test_without_automatic_creation_an_unknown_topic_is_refused(tmp_path):
    parts = Parts(tmp_path, BrokerConfig(auto_create_topic=False))
    reply = await parts.send(b"x", topic="fresh")
    parts.close()
    assert reply.code == 17
    assert (reply.remark or "").startswith("topic[fresh] not exist, apply first please!")
    assert reply.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "OFFSET_MOVED_EVENT", "RMQ_SYS_TRANS_HALF_TOPIC"])
async def test_some_topics_are_not_for_clients(parts, topic):
    reply = await parts.send(b"x", topic=topic)
    assert (reply.code, reply.remark) == (16, f"Sending message to topic[{topic}] is forbidden.")


@pytest.mark.scenario("broker 2.7")
async def test_a_queue_beyond_the_topic_is_illegal_and_one_only_for_reading_is_not(parts):
    parts.topics.update(TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=2))
    assert (await parts.send(b"x", queue_id=3)).code == 0
    refused = await parts.send(b"x", queue_id=4)
    assert refused.code == 1
    assert refused.remark == (
        "request queueId[4] is illegal, TopicConfig [topicName=orders, readQueueNums=4, writeQueueNums=2, perm=RW-, "
        "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false] Producer: 192.168.1.10:54321"
    )


async def test_what_breaks_a_limit_is_illegal(parts):
    too_long = await parts.send(b"x" * (parts.store.config.max_message_size + 1))
    assert too_long.code == 13
    assert "4194304B" in too_long.remark
    assert (await parts.send(b"x", "a\x01" + "b" * 33000)).code == 13
    assert parts.messages("orders", 0) == []


async def test_zeros_in_properties_are_refused(parts):
    await parts.send(b"x")
    assert (await parts.send(b"x", "KEYS\x01a\0b")).code == 13
    items = encode_batch([BatchItem(b"m", 0, b"KEYS\x01a\0b")])
    assert (await parts.ask(Peer(), send_request(items, code=320, batch=True))).code == 13
    assert len(parts.messages("orders", 0)) == 1


async def test_a_delayed_message_is_parked_and_answered_with_its_real_queue(parts):
    reply = await parts.send(b"later", "DELAY\x013", queue_id=1)
    assert (reply.code, reply.ext["queueId"]) == (0, "1")
    (stored,) = parts.messages("SCHEDULE_TOPIC_XXXX", 2)
    assert stored.find_property("REAL_TOPIC") == "orders"
    assert stored.find_property("REAL_QID") == "1"
    entry = parts.store.queue("SCHEDULE_TOPIC_XXXX", 2).entry(0)
    assert entry[2] == parts.now + 10_000


async def test_a_delay_level_beyond_the_last_is_the_last(parts):
    await parts.send(b"later", "DELAY\x0199")
    (stored,) = parts.messages("SCHEDULE_TOPIC_XXXX", 17)
    assert stored.find_property("DELAY") == "18"


async def test_a_batch_becomes_messages_side_by_side(parts):
    items = [BatchItem(b"m0", 0, b"TAGS\x01A"), BatchItem(b"m1", 5), BatchItem(b"m2", 0, b"KEYS\x01k")]
    asked = send_request(encode_batch(items), "WAIT\x01true", queue_id=1, code=320, batch=True)
    reply = await parts.ask(Peer(), asked)
    stored = parts.messages("orders", 1)
    assert [record.body for record in stored] == [b"m0", b"m1", b"m2"]
    assert [record.flag for record in stored] == [0, 5, 0]
    assert reply.ext["msgId"] == ",".join(record.offset_msg_id for record in stored)
    assert reply.ext["queueOffset"] == "0"
    assert [record.find_property("CLUSTER") for record in stored] == ["DefaultCluster"] * 3


@pytest.mark.parametrize(
    ("body", "fields", "code"),
    [
        pytest.param(b"", {}, 1, id="empty"),
        pytest.param(b"\0" * 7, {}, 1, id="cut off"),
        pytest.param(encode_batch([BatchItem(b"m")]), {"properties": "DELAY\x013"}, 13, id="delayed"),
        pytest.param(encode_batch([BatchItem(b"m")]), {"sys_flag": 4}, 13, id="transactional"),
    ],
)
async def test_a_batch_that_is_none_is_refused(parts, body, fields, code):
    reply = await parts.ask(Peer(), send_request(body, code=320, batch=True, **fields))
    assert reply.code == code
    assert parts.messages("orders", 0) == []


async def test_a_message_tried_often_enough_goes_to_the_dead_letters(parts):
    parts.groups.get("billing")
    parts.topics.ensure_retry("billing", 1)
    asked = send_request(b"bad", topic="%RETRY%billing", reconsume_times=3, max_reconsume_times=3)
    assert (await parts.ask(Peer(), asked)).code == 0
    assert [record.body for record in parts.messages("%DLQ%billing", 0)] == [b"bad"]


async def test_a_one_way_send_is_stored_and_not_answered(parts):
    for _ in range(2):
        asked = send_request(b"x")
        asked.flag |= 2
        assert await parts.ask(Peer(), asked) is None
    assert len(parts.messages("orders", 0)) == 2


async def test_a_store_that_takes_nothing_answers_14(parts):
    await parts.send(b"x")
    parts.store.refusals["disk"] = "the disk is nearly full"
    reply = await parts.send(b"x")
    assert reply.code == 14
    assert "the disk is nearly full" in reply.remark


names = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=6)
pairs = st.lists(
    st.tuples(
        st.one_of(
            names, st.sampled_from(["WAIT", "TAGS", "KEYS", "AWAIT", "DELAY", "TRAN_MSG", "CLUSTER", "UNIQ_KEY"])
        ),
        st.one_of(names, st.sampled_from(["true", "false", "TRUE", "0", "3"])),
    ),
    max_size=5,
)


@given(pairs=pairs, ends=st.booleans())
def test_taking_wait_out_of_the_text_is_taking_it_out_of_the_properties(pairs, ends):
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs) + ("\x02" if ends else "")
    parsed = props.parse(text)
    wait = parsed.pop("WAIT", "true").lower() == "true"
    left, waits = strip_wait(text)
    assert props.parse(left) == parsed
    assert waits == wait


numbers = st.sampled_from(["0", "1", "3", "4", "-1", "+1", " 1", "1.0", "", "007", "99999999999", "2147483648", "٣"])


BATCH = encode_batch([BatchItem(b"a"), BatchItem(b"b", 3, b"k\x01v")])


class Send(msgspec.Struct, frozen=True):
    """A send of some kind, and whether it should take the fast path. `fields` are of the header, by their letters."""

    properties: str = ""
    topic: str = "orders"
    fields: dict[str, str] = {}
    peer: str = "192.168.1.10:54321"
    body: bytes = b"body"
    is_fast: bool = True


KINDS = {
    "plain": Send(),
    "empty": Send(body=b""),
    "tagged": Send("TAGS\x01A"),
    "keyed": Send("KEYS\x01k1 k2\x02UNIQ_KEY\x017F000001"),
    "waiting": Send("WAIT\x01true\x02TAGS\x01A"),
    "waiting, last": Send("TAGS\x01A\x02WAIT\x01true"),
    "not waiting": Send("KEYS\x01k\x02WAIT\x01false"),
    "multi-tag": Send("TAGS\x01A||B", topic="multi"),
    "compressed": Send(fields={"f": str(0x301)}),
    "retried": Send("RETRY_TOPIC\x01orders", fields={"j": "3"}),
    "to a retry topic": Send("RETRY_TOPIC\x01orders", topic="%RETRY%billing", fields={"j": "3"}, is_fast=False),
    "to the dead letters": Send(topic="%RETRY%billing", fields={"j": "16"}, is_fast=False),
    "delayed": Send("DELAY\x013\x02TAGS\x01A"),
    "timer": Send("TIMER_DELAY_SEC\x0110\x02UNIQ_KEY\x017F000001"),
    "timer in ms": Send("TIMER_DELAY_MS\x0190000"),
    "timer at": Send("TIMER_DELIVER_MS\x011700000100000"),
    "timer that is due": Send("TIMER_DELIVER_MS\x011600000000000"),
    "half": Send("TRAN_MSG\x01true\x02PGROUP\x01shop\x02UNIQ_KEY\x017F000001", fields={"f": "4"}),
    "half and delayed": Send("TRAN_MSG\x01true\x02PGROUP\x01shop\x02DELAY\x012", fields={"f": "4"}),
    "marked as half only": Send(fields={"f": "4"}, is_fast=False),
    "committed": Send(fields={"f": "8"}, is_fast=False),
    "IPv6 producer": Send(peer="[2001:db8::1]:54321"),
    "topic of 127 bytes": Send(topic="t" * 127),
    "stored before": Send("CLUSTER\x01other\x02TAGS\x01A", is_fast=False),
    "batch": Send(fields={"m": "true"}, body=BATCH, is_fast=False),
    "zeros": Send("a\x01\0", is_fast=False),
    "any queue": Send(fields={"e": "-1"}, is_fast=False),
    "no such queue": Send(fields={"e": "9"}, is_fast=False),
}


class Outcome(NamedTuple):
    reply: Command | None
    messages: list[MessageRecord]
    log: bytes
    entries: list[bytes]
    took_general: int


def outcome(folder: Path, request: Command, peer: str, *, fast: bool) -> Outcome:
    """What becomes of a send to a broker that knows the topics already."""

    async def sent() -> Outcome:
        parts = Parts(folder)
        try:
            for name in ("orders", "t" * 127):
                parts.topics.update(TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4))
                await parts.send(b"first", topic=name)
            parts.topics.update(TopicConfig(topic_name="multi", topic_filter_type=TopicFilterType.MULTI_TAG))
            await parts.send(b"first", topic="multi")
            parts.groups.get("billing")
            parts.topics.ensure_retry("billing", 4)
            for times in (3, 16):  # both topics are kept from now on
                await parts.ask(Peer(), send_request(b"first", topic="%RETRY%billing", reconsume_times=times))
            if not fast:
                for target in parts.sends._targets.values():
                    target.queues = {}
            before, start = parts.sends.general_sends, int(parts.store.log.end)
            reply = await parts.ask(Peer(peer), request)
            log = bytes(parts.store.log.read(start, int(parts.store.log.end) - start))
            entries = [bytes(queue.tail) for queue in parts.store.queues]
            messages = [each for each in _all_messages(parts) if each.physical_offset >= start]
            return Outcome(reply, messages, log, entries, parts.sends.general_sends - before)
        finally:
            parts.close()

    return asyncio.run(sent())


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_send_takes_the_path_that_is_its_own_and_both_do_the_same(tmp_path, monkeypatch, name):
    kind = KINDS[name]
    monkeypatch.setattr("random.randrange", lambda _: 2)  # a queue by chance
    outcomes = []
    for fast in (True, False):
        asked = send_request(kind.body, kind.properties, topic=kind.topic, queue_id=1)
        asked.ext = (asked.ext or {}) | kind.fields
        outcomes.append(outcome(tmp_path / str(fast), asked, kind.peer, fast=fast))
    one, other = outcomes
    assert one[:-1] == other[:-1]
    assert one.took_general == (0 if kind.is_fast else 1)
    assert other.took_general == 1
    assert one.reply is not None
    assert bool(one.log) == (one.reply.code == 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
@given(
    pairs=pairs,
    fields=st.dictionaries(st.sampled_from("efghj"), numbers, max_size=3),
    left_out=st.sets(st.sampled_from("efghijkm"), max_size=2),
    flag=st.sampled_from([0, 2]),
    body=st.sampled_from([None, b"", b"x", b"\0" * 2000]),
)
def test_any_send_is_stored_and_answered_the_same_by_both_paths(tmp_path_factory, pairs, fields, left_out, flag, body):
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs)
    if fields.get("e") == "-1":
        del fields["e"]  # a queue by chance
    outcomes = []
    for fast in (True, False):
        asked = send_request(b"", text, queue_id=1)
        asked.body = body
        asked.flag = flag
        asked.ext = {key: value for key, value in ((asked.ext or {}) | fields).items() if key not in left_out}
        outcomes.append(outcome(tmp_path_factory.mktemp("send"), asked, "192.168.1.10:54321", fast=fast))
    one, other = outcomes
    assert one.reply == other.reply
    # Of names that are there twice, or without a value, the general path stores what counts and no more.
    assert [replace(each, properties=b"") for each in one.messages] == [
        replace(each, properties=b"") for each in other.messages
    ]
    assert [props.parse(props.decode(each.properties)) for each in one.messages] == [
        props.parse(props.decode(each.properties)) for each in other.messages
    ]
    names = [name for name, value in pairs if name and value]
    if len(names) == len(pairs) == len(set(names)):
        assert one.log == other.log
    assert other.took_general == 1


def _all_messages(parts: Parts):
    return sorted(
        (record for queue in parts.store.queues for record in parts.messages(queue.topic, queue.queue_id)),
        key=lambda record: record.physical_offset,
    )
