"""A timer that is recalled in time is never delivered; everything else about recalls is refused."""

from __future__ import annotations

import base64

import pytest
from tests.unit.broker.timers.timer_kit import TimerParts, after

from pyromq.protocol.bodies.register import TopicConfig
from pyromq.protocol.recall_handle import RecallHandle


@pytest.fixture
async def parts(tmp_path):
    made = TimerParts(tmp_path)
    yield made
    made.close()


async def handle(parts: TimerParts, key: str = "key", seconds: float = 10, body: bytes = b"x") -> str:
    reply = await parts.send(body, after(seconds, key))
    assert reply.code == 0
    assert reply.ext is not None
    text = reply.ext["recallHandle"]
    assert isinstance(text, str)
    return text


async def test_a_recalled_message_is_never_delivered_and_others_are(parts):
    mine = await handle(parts, "mine", body=b"mine")
    await handle(parts, "theirs", body=b"theirs")
    await parts.wait(1_000)
    reply = await parts.recall(mine)
    assert (reply.code, reply.ext) == (0, {"MSG_REGION": "DefaultRegion", "msgId": "mine"})
    await parts.wait(60_000)
    assert parts.bodies() == [b"theirs"]
    assert parts.timers.pending == 0


@pytest.mark.parametrize(("with_topic", "key"), [(False, "key"), (True, "orders+key")])
async def test_a_recall_is_written_for_one_version_of_rocketmq_or_the_other_and_both_are_read(
    tmp_path, with_topic, key
):
    parts = TimerParts(tmp_path, recall_with_topic=with_topic)
    assert (await parts.recall(await handle(parts))).code == 0
    recalled = parts.messages("rmq_sys_wheel_timer", 0)[1]
    assert recalled.find_property("TIMER_DEL_UNIQKEY") == key
    await parts.wait(60_000)
    assert parts.bodies() == []
    parts.close()


async def test_a_message_can_be_recalled_until_its_time_and_twice(parts):
    text = await handle(parts)
    parts.now += 8_999
    assert (await parts.recall(text)).code == 0
    assert (await parts.recall(text)).code == 0
    await parts.wait(60_000)
    assert parts.bodies() == []


async def test_the_same_id_in_another_topic_is_another_message(parts):
    parts.topics.update(TopicConfig(topic_name="bills", read_queue_nums=4, write_queue_nums=4))
    await parts.send(b"bill", after(10, "key"), topic="bills")
    assert (await parts.recall(await handle(parts))).code == 0
    await parts.wait(60_000)
    assert (parts.bodies(), parts.bodies(topic="bills")) == ([], [b"bill"])


async def test_a_recall_survives_the_end_of_the_broker(tmp_path):
    parts = TimerParts(tmp_path)
    text = await handle(parts)
    await parts.deliver()
    await parts.save()
    assert (await parts.recall(text)).code == 0
    parts = parts.cut_off()
    await parts.wait(60_000)
    assert parts.bodies() == []
    parts.close()


async def test_a_recall_of_what_waits_for_long_is_rolled_with_it(parts):
    text = await handle(parts, seconds=3 * 86_400 - 1)
    assert (await parts.recall(text)).code == 0
    await parts.wait(2 * 86_400_000)
    await parts.wait(2 * 86_400_000)
    assert parts.store.queue("rmq_sys_wheel_timer", 0).max_offset == 4
    assert parts.bodies() == []


async def test_a_plain_message_has_no_handle(parts):
    assert "recallHandle" not in (await parts.send(b"x", "UNIQ_KEY\x01key")).ext
    assert "recallHandle" not in (await parts.send(b"x", "UNIQ_KEY\x01key\x02DELAY\x011")).ext


def forged(parts: TimerParts, **changes) -> str:
    return RecallHandle("orders", "broker-a", parts.now + 5_000, "key")._replace(**changes).encode()


@pytest.mark.parametrize(
    ("config", "code", "remark"),
    [
        ({"recall": False}, 16, "recall failed, operation is forbidden"),
        ({"start_accept_send": 2_000_000_000_000}, 14, "recall failed, broker service not available"),
        (
            {"broker_permission": 4, "recall_when_not_writable": False},
            *(14, "recall failed, broker service not available"),
        ),
    ],
)
async def test_a_broker_may_not_take_recalls(tmp_path, config, code, remark):
    parts = TimerParts(tmp_path, **config)
    reply = await parts.recall(forged(parts))
    assert (reply.code, reply.remark, reply.ext) == (code, remark, {"MSG_REGION": "DefaultRegion"})
    parts.close()


async def test_a_broker_that_is_only_read_from_takes_recalls(tmp_path):
    parts = TimerParts(tmp_path, broker_permission=4)
    assert (await parts.recall(forged(parts))).code == 0
    parts.close()


async def test_an_unknown_topic_is_refused(parts):
    reply = await parts.recall(forged(parts, topic="nothing"), topic="nothing")
    assert (reply.code, reply.remark) == (17, "recall failed, the topic[nothing] not exist")


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"topic": "bills"}, "recall failed, topic not match"),
        ({"broker_name": "broker-b"}, "recall failed, broker service not available"),
        ({"deliver_ms": 1_700_000_000_000}, "recall failed, timestamp invalid"),
        ({"deliver_ms": 1_700_000_000_000 + 259_200_000}, "recall failed, timestamp invalid"),
        ({"deliver_ms": -1}, "recall failed, timestamp invalid"),
    ],
)
async def test_a_handle_of_something_else_is_refused(parts, changes, remark):
    reply = await parts.recall(forged(parts, **changes))
    assert (reply.code, reply.remark) == (604, remark)


@pytest.mark.parametrize(
    "plain", [b"", b"v1 a b", b"v2 orders broker-a 1 k", b"v1 orders broker-a soon k", b"\xff\xfe"]
)
async def test_what_is_no_handle_is_refused(parts, plain):
    for text in (base64.urlsafe_b64encode(plain).decode(), "!" + plain.decode("latin-1")):
        reply = await parts.recall(text)
        assert (reply.code, reply.remark) == (604, "recall handle is invalid")


async def test_a_recall_that_cannot_be_stored_is_an_error(parts):
    parts.store.refusals["disk"] = "the disk is nearly full"
    reply = await parts.recall(forged(parts))
    assert (reply.code, reply.remark) == (1, "recall failed, execute error")
