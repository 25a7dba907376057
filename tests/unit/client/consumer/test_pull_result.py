from __future__ import annotations

import contextlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.client.consumer.pull_result import PullStatus, decode_pull
from pyromq.client.consumer.subscriptions import Sql, subscription_data
from pyromq.errors import CorruptRecord, MissingField, ProtocolError, RemoteProtocolError, StoreError
from pyromq.protocol import sysflag
from pyromq.protocol.batch import BatchItem, encode_batch
from pyromq.protocol.command import Command
from pyromq.protocol.message_queue import MessageQueue
from pyromq.protocol.record import MessageRecord, encode_record

QUEUE = MessageQueue(broker_name="broker-a", queue_id=1, topic="orders")
EXT = {"suggestWhichBrokerId": "1", "nextBeginOffset": "12", "minOffset": "3", "maxOffset": "40"}


def reply(*records, code=0, ext=EXT, body=None):
    return Command(code, ext=ext, body=b"".join(map(encode_record, records)) if body is None else body)


def record(offset=0, body=b"hello", properties=b"", **more):
    return MessageRecord(topic="orders", body=body, properties=properties, queue_id=1, queue_offset=offset, **more)


def everything(tags="*"):
    return subscription_data("orders", tags, 1)


def test_what_was_found_comes_with_where_to_go_on():
    result = decode_pull(reply(record(10), record(11)), QUEUE, everything())
    assert result.status is PullStatus.FOUND
    assert (result.next_offset, result.min_offset, result.max_offset, result.suggested_broker_id) == (12, 3, 40, 1)
    assert [message.queue_offset for message in result.messages] == [10, 11]
    assert result.messages[0].queue == QUEUE


@pytest.mark.parametrize(
    ("code", "status"),
    [(19, PullStatus.NO_NEW_MSG), (20, PullStatus.NO_MATCHED_MSG), (21, PullStatus.OFFSET_ILLEGAL)],
)
def test_nothing_found_is_an_answer_too(code, status):
    result = decode_pull(reply(code=code), QUEUE, everything())
    assert (result.status, result.messages, result.next_offset) == (status, [], 12)


def test_other_codes_are_no_answer():
    with pytest.raises(RemoteProtocolError):
        decode_pull(reply(code=1), QUEUE, everything())


@pytest.mark.scenario("client 36")
def test_tags_of_equal_hash_are_told_apart_after_the_pull():
    found = [record(0, properties=b"TAGS\x01Aa"), record(1, properties=b"TAGS\x01BB"), record(2)]
    result = decode_pull(reply(*found), QUEUE, everything("Aa"))
    assert [message.queue_offset for message in result.messages] == [0]
    assert len(decode_pull(reply(*found), QUEUE, subscription_data("orders", Sql("a = 1"), 1)).messages) == 3


def test_the_bounds_of_the_queue_are_properties_of_its_messages():
    (message,) = decode_pull(reply(record(properties=b"a\x01b")), QUEUE, None).messages
    assert message.properties == {"a": "b", "MIN_OFFSET": "3", "MAX_OFFSET": "40"}
    message.properties["mine"] = "kept"
    assert message.properties["mine"] == "kept"


def test_a_message_is_known_by_its_senders_id_or_else_by_its_place():
    with_id, without = decode_pull(
        reply(record(properties=b"UNIQ_KEY\x01ABC\x02TRAN_MSG\x01true"), record()), QUEUE, None
    ).messages
    assert (with_id.msg_id, with_id.transaction_id) == ("ABC", "ABC")
    assert without.msg_id == without.offset_msg_id
    assert without.transaction_id is None


def test_a_compressed_body_opens_when_it_is_asked_for():
    packed = record(body=zlib.compress(b"text" * 99), sys_flag=sysflag.with_compression(0, sysflag.ZLIB))
    (message,) = decode_pull(reply(packed), QUEUE, None).messages
    assert message.body == b"text" * 99


def test_inner_batches_of_5x_brokers_are_unwrapped_before_tags_are_looked_at():
    flag = sysflag.INNER_BATCH | sysflag.NEED_UNWRAP
    items = [BatchItem(b"one", properties=b"TAGS\x01A"), BatchItem(b"two", properties=b"TAGS\x01B")]
    whole = record(10, body=encode_batch(items), sys_flag=flag)
    result = decode_pull(reply(whole, record(12, properties=b"TAGS\x01B")), QUEUE, everything("B"))
    assert [(message.queue_offset, message.body) for message in result.messages] == [(11, b"two"), (12, b"hello")]


def test_a_damaged_body_is_delivered_as_it_is():
    """As the Java client does: a consumer that refused it could never get past it."""
    damaged = encode_record(record(body=b"hello")).replace(b"hello", b"hallo")
    (message,) = decode_pull(reply(body=damaged), QUEUE, None).messages
    assert message.body == b"hallo"


def test_records_that_are_cut_off_are_an_error():
    with pytest.raises(CorruptRecord):
        decode_pull(reply(body=encode_record(record())[:-1]), QUEUE, None)


@pytest.mark.parametrize("missing", EXT)
def test_an_answer_that_does_not_say_where_to_go_on_is_an_error(missing):
    with pytest.raises(MissingField, match=missing):
        decode_pull(reply(ext={name: text for name, text in EXT.items() if name != missing}), QUEUE, None)


@given(st.integers(0, 22), st.dictionaries(st.sampled_from(list(EXT)), st.text(max_size=9)), st.binary(max_size=200))
def test_any_answer_ends_in_a_result_or_in_an_error_of_ours(code, ext, body):
    with contextlib.suppress(ProtocolError, StoreError):
        decode_pull(Command(code, ext=EXT | ext, body=body), QUEUE, everything("A"))
