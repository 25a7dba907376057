"""Pulling: which messages, which code, and how long a pull waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.broker.message_kit import Parts, Peer, pull_request

from pyromq.broker.config import BrokerConfig
from pyromq.broker.pull import tags_of_expression
from pyromq.errors import SubscriptionParseFailed
from pyromq.protocol.bodies import OffsetMovedEvent
from pyromq.protocol.bodies.groups import SubscriptionGroupConfig
from pyromq.protocol.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)
from pyromq.protocol.bodies.register import TopicConfig
from pyromq.protocol.hashing import java_hash
from pyromq.protocol.names import OFFSET_MOVED_TOPIC
from pyromq.protocol.record import decode_records

SUSPEND = 2


@pytest.fixture
async def parts(tmp_path):
    made = Parts(tmp_path)
    made.topics.update(TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4))
    yield made
    made.close()


async def test_a_pull_gets_the_records_as_they_are_stored(parts):
    for number in range(3):
        await parts.send(b"m%d" % number, "TAGS\x01A")
    reply = await parts.ask(Peer(), pull_request(1))
    assert (reply.code, reply.remark) == (0, "FOUND")
    assert [record.body for record in decode_records(reply.body_bytes)] == [b"m1", b"m2"]
    assert reply.ext == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "3",
        "minOffset": "0",
        "maxOffset": "3",
    }


@pytest.mark.parametrize(
    ("stored", "offset", "code", "status", "next_offset"),
    [
        (3, 3, 19, "OFFSET_OVERFLOW_ONE", 3),
        (3, 4, 21, "OFFSET_OVERFLOW_BADLY", 3),
        (0, 0, 19, "NO_MESSAGE_IN_QUEUE", 0),
        (0, 5, 21, "NO_MESSAGE_IN_QUEUE", 0),
    ],
)
async def test_a_pull_that_finds_nothing_says_why_and_where_to_go_on(parts, stored, offset, code, status, next_offset):
    for _ in range(stored):
        await parts.send(b"m")
    reply = await parts.ask(Peer(), pull_request(offset))
    assert (reply.code, reply.remark, reply.ext["nextBeginOffset"]) == (code, status, str(next_offset))
    parts.appends.flush()
    notes = [OffsetMovedEvent.decode(note.body) for note in parts.messages(OFFSET_MOVED_TOPIC, 0)]
    moved = [(note.consumer_group, note.message_queue.topic, note.offset_request, note.offset_new) for note in notes]
    assert moved == ([("billing", "orders", offset, next_offset)] if code == 21 else [])


async def test_a_pull_by_tag_passes_over_the_others(parts):
    for tag in ("A", "B", "A"):
        await parts.send(b"m", f"TAGS\x01{tag}")
    reply = await parts.ask(Peer(), pull_request(0, subscription="A || C"))
    assert len(decode_records(reply.body_bytes)) == 2
    nothing = await parts.ask(Peer(), pull_request(0, subscription="C"))
    assert (nothing.code, nothing.ext["nextBeginOffset"]) == (20, "3")


async def test_a_pull_commits_the_offset_that_it_brings(parts):
    await parts.ask(Peer(), pull_request(0, sys_flag=1 | 4, commit_offset=12))
    assert parts.offsets.get("billing", "orders", 0) == 12
    await parts.ask(Peer(), pull_request(0, sys_flag=4, commit_offset=99))
    assert parts.offsets.get("billing", "orders", 0) == 12


async def test_a_held_pull_is_answered_in_the_turn_in_which_its_message_arrives(parts):
    peer = Peer()
    assert await parts.ask(peer, pull_request(0, sys_flag=SUSPEND | 4)) is None
    await parts.send(b"other queue", queue_id=1)
    assert peer.replies == []
    await parts.send(b"hello")
    (reply,) = peer.replies
    assert [record.body for record in decode_records(reply.body_bytes)] == [b"hello"]
    assert len(parts.pulls.held) == 0


async def test_a_held_pull_is_not_woken_by_a_message_that_it_does_not_want(parts):
    peer = Peer()
    await parts.ask(peer, pull_request(0, sys_flag=SUSPEND | 4, subscription="A"))
    await parts.send(b"no", "TAGS\x01B")
    assert peer.replies == []
    await parts.send(b"yes", "TAGS\x01A")
    (reply,) = peer.replies
    assert [record.body for record in decode_records(reply.body_bytes)] == [b"yes"]
    assert (reply.ext or {})["nextBeginOffset"] == "2"


async def test_a_held_pull_is_answered_when_its_time_is_up(parts):
    peer, empty = Peer(), Peer()
    await parts.ask(peer, pull_request(0, sys_flag=SUSPEND | 4, subscription="A", suspend_timeout_millis=0))
    await parts.ask(empty, pull_request(0, sys_flag=SUSPEND | 4, queue_id=1, suspend_timeout_millis=0))
    await parts.send(b"no", "TAGS\x01B")
    parts.pulls.expire()
    for _ in range(9):  # on a busy machine that takes more than one turn
        await asyncio.sleep(0)
    assert [(reply.code, (reply.ext or {})["nextBeginOffset"]) for reply in peer.replies] == [(20, "1")]
    assert [reply.code for reply in empty.replies] == [19]


async def test_a_pull_of_a_peer_that_is_gone_is_forgotten(parts):
    peer = Peer()
    await parts.ask(peer, pull_request(0, sys_flag=SUSPEND | 4))
    peer.closed = True
    await parts.send(b"hello")
    assert peer.replies == []
    assert len(parts.pulls.held) == 0


async def test_a_broker_that_stops_answers_all_who_wait(parts):
    peers = [Peer() for _ in range(3)]
    for queue_id, peer in enumerate(peers):
        await parts.ask(peer, pull_request(0, sys_flag=SUSPEND | 4, queue_id=queue_id))
    parts.pulls.stop()
    assert [[reply.code for reply in peer.replies] for peer in peers] == [[19]] * 3


def heartbeat(*subscriptions: SubscriptionData, model: MessageModel = MessageModel.CLUSTERING) -> HeartbeatData:
    consumer = ConsumerData(
        group_name="billing",
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=model,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscription_data_set=list(subscriptions),
    )
    return HeartbeatData(client_id="c1", consumer_data_set=[consumer])


def subscription(text: str, version: int = 1, **fields: Any) -> SubscriptionData:
    tags = frozenset() if text == "*" else frozenset({text})
    codes = frozenset(map(java_hash, tags))
    return SubscriptionData(
        topic="orders", sub_string=text, tags_set=tags, code_set=codes, sub_version=version, **fields
    )


async def test_without_an_expression_the_heartbeat_says_what_is_wanted(parts):
    parts.clients.heartbeat(Peer(), heartbeat(subscription("A")), parts.now, version=409, language="JAVA")
    for tag in ("A", "B"):
        await parts.send(b"m", f"TAGS\x01{tag}")
    reply = await parts.ask(Peer(), pull_request(0, sys_flag=0, sub_version=1))
    assert len(decode_records(reply.body_bytes)) == 1
    older = await parts.ask(Peer(), pull_request(0, sys_flag=0, sub_version=2))
    assert (older.code, older.remark) == (25, "the consumer's subscription not latest")


async def test_a_consumer_whose_newest_heartbeat_was_lost_gets_messages_of_all_tags(parts):
    parts.clients.heartbeat(Peer(), heartbeat(subscription("A")), parts.now, version=513, language="JAVA")
    for tag in ("A", "B"):
        await parts.send(b"m", f"TAGS\x01{tag}")
    reply = await parts.ask(Peer(), pull_request(0, sys_flag=0, sub_version=2, expression_type="TAG"))
    assert (reply.code, len(decode_records(reply.body_bytes))) == (0, 2)


async def test_the_checks_come_in_order_with_their_codes_and_remarks(parts, tmp_path_factory):
    async def refusal(request, made=parts):
        reply = await made.ask(Peer(), request)
        return reply.code, reply.remark.partition("\n")[0]

    assert await refusal(pull_request(0, topic="nowhere")) == (17, "topic[nowhere] not exist, apply first please! ")
    parts.topics.update(TopicConfig(topic_name="deaf", perm=2))
    assert await refusal(pull_request(0, topic="deaf")) == (16, "the topic[deaf] pulling message is forbidden")
    assert await refusal(pull_request(0, queue_id=4)) == (
        1,
        "queueId[4] is illegal, topic:[orders] topicConfig.readQueueNums:[4] consumer:[/192.168.1.10:54321]",
    )
    assert await refusal(pull_request(0, subscription="||")) == (23, "parse the consumer's subscription failed")
    assert await refusal(pull_request(0, sys_flag=0)) == (24, "the consumer's group info not exist")
    assert (await refusal(pull_request(0, expression_type="SQL92", subscription="a > 1")))[0] == 1

    parts.groups.update(SubscriptionGroupConfig(group_name="billing", consume_enable=False))
    assert await refusal(pull_request(0)) == (16, "subscription group no permission, billing")

    closed = Parts(tmp_path_factory.mktemp("closed"), BrokerConfig(broker_permission=2, broker_ip1="10.0.0.1"))
    assert await refusal(pull_request(0), closed) == (16, "the broker[10.0.0.1] pulling message is forbidden")
    closed.close()
    strict = Parts(tmp_path_factory.mktemp("strict"), BrokerConfig(auto_create_group=False))
    assert (await refusal(pull_request(0), strict))[0] == 26
    strict.close()


async def all_are_woken(parts):
    """Thousands are woken in several turns."""
    async with asyncio.timeout(10):
        while parts.pulls._waking:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_thousands_of_held_pulls_wait_and_are_served_together(parts):
    peers = [Peer() for _ in range(2000)]
    for peer in peers:
        await parts.ask(peer, pull_request(0, sys_flag=SUSPEND | 4))
    await parts.send(b"hello")
    await all_are_woken(parts)
    assert all(len(peer.replies) == 1 for peer in peers)


@pytest.mark.slow
async def test_a_message_costs_little_for_thousands_of_pulls_that_do_not_want_it(parts, monkeypatch):
    for number in range(5000):
        request = pull_request(0, sys_flag=SUSPEND | 4, subscription=f"tag{number}")
        assert await parts.ask(Peer(), request) is None
    reads = []
    get = parts.store.get

    def counted(*args: Any, **more: Any) -> Any:
        reads.append(args)
        return get(*args, **more)

    monkeypatch.setattr(parts.store, "get", counted)
    await parts.send(b"hello", "TAGS\x01tag77")
    await all_are_woken(parts)
    assert len(parts.pulls.held) == 4999
    # Read for the one that gets it, and for those whose tags have the same hash, of whom there are none.
    assert len(reads) == 1


async def test_a_message_that_comes_while_others_are_woken_is_not_missed(parts, monkeypatch):
    monkeypatch.setattr("pyromq.broker.turns._TURN", 0.0)
    peers = [Peer() for _ in range(20)]
    for number, peer in enumerate(peers):
        await parts.ask(peer, pull_request(0, sys_flag=SUSPEND | 4, subscription="even" if number % 2 else "odd"))
    await parts.send(b"1", "TAGS\x01odd")
    await parts.send(b"2", "TAGS\x01even")
    await all_are_woken(parts)
    assert [len(peer.replies) for peer in peers] == [1] * 20


async def test_pulls_that_wait_are_answered_at_the_stop_though_they_are_being_woken(parts, monkeypatch):
    monkeypatch.setattr("pyromq.broker.turns._TURN", 0.0)
    peers = [Peer() for _ in range(50)]
    for peer in peers:
        await parts.ask(peer, pull_request(0, sys_flag=SUSPEND | 4))
    await parts.send(b"hello")
    parts.pulls.stop()
    assert [len(peer.replies) for peer in peers] == [1] * 50
    for _ in range(60):
        await asyncio.sleep(0)
    assert [len(peer.replies) for peer in peers] == [1] * 50
    assert len(parts.pulls.held) == 0


async def test_pulls_that_may_wait_are_bounded_by_connection_and_by_queue(tmp_path):
    config = BrokerConfig(max_held_pulls_per_connection=3, max_held_pulls_per_queue=5)
    parts = Parts(tmp_path, config)
    parts.topics.update(TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4))
    peer = Peer()
    for queue_id in range(3):
        assert await parts.ask(peer, pull_request(0, sys_flag=SUSPEND | 4, queue_id=queue_id)) is None
    refused = await parts.ask(peer, pull_request(0, sys_flag=SUSPEND | 4, queue_id=3))
    assert refused is not None
    assert refused.code == 2
    assert "this connection already has 3 waiting pulls" in (refused.remark or "")
    assert "maxHeldPullsPerConnection" in (refused.remark or "")
    for _ in range(4):
        assert await parts.ask(Peer(), pull_request(0, sys_flag=SUSPEND | 4)) is None
    refused = await parts.ask(Peer(), pull_request(0, sys_flag=SUSPEND | 4))
    assert refused is not None
    assert refused.code == 2
    assert "this queue already has 5 waiting pulls" in (refused.remark or "")
    # Once they are answered others may wait.
    await parts.send(b"hello")
    assert await parts.ask(peer, pull_request(1, sys_flag=SUSPEND | 4)) is None
    parts.close()


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_some_expressions_select_everything(expression):
    assert tags_of_expression(expression) is None


def test_tags_are_compared_by_the_lowest_bits_of_their_hash():
    wanted = tags_of_expression(" A ||refund|| ")
    assert wanted is not None
    assert wanted(java_hash("A"))
    assert wanted(java_hash("refund"))
    assert wanted(java_hash("refund") & 0xFFFFFFFF)
    assert not wanted(0)
    with pytest.raises(SubscriptionParseFailed):
        tags_of_expression(" || ")
