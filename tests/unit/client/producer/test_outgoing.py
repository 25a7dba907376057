"""Messages made ready to be sent."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.client.hooks import MessageType
from pyromq.client.producer import outgoing as outgoings
from pyromq.client.producer.batches import batch, batch_item, batch_item_size
from pyromq.client.producer.outgoing import as_message, compressed, prepare, with_properties
from pyromq.errors import InvalidMessage
from pyromq.protocol import properties as props
from pyromq.protocol import sysflag
from pyromq.protocol.batch import decode_batch
from pyromq.protocol.compression import decompress
from pyromq.protocol.message import Message

MAX = 4 << 20

words = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=20)
visible = words.filter(lambda word: bool(word.strip()))
messages = st.builds(
    Message,
    topic=st.just("T"),
    body=st.binary(min_size=1, max_size=50),
    tags=st.none() | words,
    keys=st.lists(words, max_size=3),
    properties=st.dictionaries(visible.filter(lambda name: name not in props.RESERVED), visible, max_size=4),
    flag=st.integers(0, 100),
    wait_store=st.booleans(),
    delay_level=st.integers(0, 18),
    shard_key=st.none() | words,
)


@given(messages)
def test_the_text_says_what_the_message_says_and_the_message_stays_as_it_is(message):
    before = copy.deepcopy(message)
    made = prepare(message, MAX, shard_key=message.shard_key)
    expected = {**message.wire_properties(), props.UNIQ_KEY: made.message_id}
    assert props.parse(made.properties) == expected
    assert (made.body, made.flag, made.sys_flag) == (message.body, message.flag, 0)
    assert message == before


def test_every_message_gets_an_id_of_its_own():
    message = Message("T", b"x")
    first, second = prepare(message, MAX), prepare(message, MAX)
    assert len(first.message_id) in (32, 56)
    assert first.message_id != second.message_id


def test_the_wait_flag_stands_where_brokers_look_for_it_first():
    """Our broker finds `WAIT` without parsing only behind another property."""
    assert "\x02WAIT\x01true" in prepare(Message("T", b"x"), MAX).properties
    assert "\x02WAIT\x01false" in prepare(Message("T", b"x", wait_store=False), MAX).properties


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"x", delay_level=3),
        Message("T", b"x", delay=timedelta(seconds=3)),
        Message("T", b"x", deliver_at=datetime(2030, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_delayed_message_is_known_as_one(message):
    made = prepare(message, MAX)
    assert made.kind is MessageType.DELAY
    assert set(props.parse(made.properties)) - {"UNIQ_KEY", "WAIT"} <= {"DELAY", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"}


@pytest.mark.scenario("client 17")
@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message("T", b""), "0 bytes"),
        (Message("T", b"x" * (MAX + 1)), "4194305 bytes"),
        (Message("T", "text"), "must be bytes, not str"),  # type: ignore[arg-type]
        (Message("T", b"x", properties={"KEYS": "k"}), "KEYS is reserved"),
        (Message("T", b"x", properties={"UNIQ_KEY": "k"}), "UNIQ_KEY is reserved"),
        (Message("T", b"x", properties={"a": "b\x01c"}), r"U\+0001"),
        (Message("T", b"x", properties={"a\x02": "b"}), r"U\+0001"),
        (Message("T", b"x", properties={" ": "b"}), "not blank"),
        (Message("T", b"x", properties={"a": ""}), "not blank"),
        (Message("T", b"x", properties={"a": 1}), "must be text"),  # type: ignore[dict-item]
        (Message("T", b"x", tags="a\x01b"), r"U\+0001"),
        (Message("T", b"x", keys=["a", "b\x02"]), r"U\+0001"),
        (Message("T", b"x", properties={"a": "b" * 32767}), "at most 32767 are allowed"),
        (Message("T", b"x", properties={"a": "ä" * 16384}), "at most 32767 are allowed"),
        (Message("T", b"x", properties={"a": "\ud800"}), "not Unicode"),
        (Message("T", b"x", flag=2**31), "32-bit"),
        (Message("T", b"x", delay_level=1, delay=timedelta(1)), "only one of"),
        (Message("T", b"x", deliver_at=datetime(2030, 1, 1)), "time zone"),  # noqa: DTZ001  # that is what is wrong
    ],
)
def test_what_no_broker_would_take_is_refused(message, reason):
    with pytest.raises(InvalidMessage, match=reason) as caught:
        prepare(message, MAX)
    assert caught.value.code == 13
    assert caught.value.topic == "T"


def test_the_largest_body_and_the_longest_properties_are_taken():
    assert len(prepare(Message("T", b"x" * MAX), MAX).body) == MAX
    spare = len(prepare(Message("T", b"x", properties={"a": "b"}), MAX).properties) - 1
    assert len(prepare(Message("T", b"x", properties={"a": "b" * (32767 - spare)}), MAX).properties) == 32767


def test_other_kinds_of_bytes_are_bodies_too():
    assert prepare(Message("T", bytearray(b"ab")), MAX).body == b"ab"  # type: ignore[arg-type]
    assert prepare(Message("T", memoryview(b"ab")), MAX).body == b"ab"  # type: ignore[arg-type]


def test_a_message_is_given_whole_or_in_parts():
    whole = Message("T", b"x", tags="a")
    assert as_message(whole, None, {}) is whole
    assert as_message("T", b"x", {"tags": "a"}) == whole
    wrong: list[tuple[Any, ...]] = [(whole, b"x", {}), (whole, None, {"tags": "b"}), ("T", None, {}), (3, b"x", {})]
    for given_parts in wrong:
        with pytest.raises(TypeError):
            as_message(*given_parts)


@pytest.mark.parametrize("name", ["zlib", "lz4", "zstd"])
@pytest.mark.parametrize("size", [4096, 100_000])
async def test_a_compressed_body_opens_up_to_what_it_was(name, size):
    made = prepare(Message("T", b"ab" * (size // 2)), MAX)
    await compressed(made, outgoings.COMPRESSIONS[name])
    assert len(made.body) < size
    assert made.sys_flag == {"zlib": 0x301, "lz4": 0x101, "zstd": 0x201}[name]
    assert decompress(made.body, made.sys_flag) == b"ab" * (size // 2)


def test_a_message_of_the_clients_own_keeps_its_id_and_moves_two_properties_to_the_header():
    properties = {"UNIQ_KEY": "ID", "RECONSUME_TIME": "3", "MAX_RECONSUME_TIMES": "16", "TAGS": "a"}
    made = with_properties(b"x", 7, properties)
    assert (made.message_id, made.flag, made.reconsume_times, made.max_reconsume_times) == ("ID", 7, 3, 16)
    assert props.parse(made.properties) == {"UNIQ_KEY": "ID", "TAGS": "a"}
    assert len(properties) == 4
    assert with_properties(b"x", 0, {}).message_id


def test_a_batch_holds_its_messages_with_their_own_properties():
    parts = [prepare(Message("T", body, tags="ä"), MAX) for body in (b"a", b"bc")]
    items = [batch_item(part) for part in parts]
    whole = batch(parts, items, wait_store=True)
    assert decode_batch(whole.body) == items
    assert whole.message_id == f"{parts[0].message_id},{parts[1].message_id}"
    assert (whole.code, whole.is_batch, whole.properties, whole.sys_flag) == (320, True, "WAIT\x01true", 0)
    assert sysflag.transaction_type(whole.sys_flag) == sysflag.NOT_TRANSACTION
    assert abs(batch_item_size(parts[1]) - items[1].size) <= 1
