"""Handles of popped messages, and the names of the topics that they are tried again in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.pop_handle import (
    PopHandle,
    decode_handle,
    marked_topic,
    message_offset_info,
    normal_topic,
    order_count_info,
    pop_retry_topic,
    retry_mark,
    start_offset_info,
)

# As the Java client 5.5.0 makes it of the answer to a pop.
TEXT = "17 1700000000000 60000 3 0 broker-a 2 19"
HANDLE = PopHandle(17, 1_700_000_000_000, 60_000, 3, "0", "broker-a", 2, 19)


def test_a_handle_is_read_and_written_as_rocketmq_does():
    assert decode_handle(TEXT) == HANDLE
    assert HANDLE.encode() == TEXT
    assert HANDLE.revive_time == 1_700_000_060_000
    assert not HANDLE.is_ordered
    assert decode_handle("0 1 2 999 0 b 0 0").is_ordered


def test_a_handle_without_the_offset_of_the_message_is_one_too():
    short = TEXT.rpartition(" ")[0]
    assert decode_handle(short) == HANDLE._replace(queue_offset=None)
    assert decode_handle(short).encode() == short


@pytest.mark.parametrize("text", ["", " ", "1 2 3", "a 2 3 4 0 b 6 7", f"{2**63} 2 3 4 0 b 6 7", "1 2 3 4 0 b x 7"])
def test_what_is_no_handle_is_refused(text):
    with pytest.raises(RemoteProtocolError):
        decode_handle(text)


@given(st.text(alphabet="0123456789 -+abc\x00é", max_size=60))
def test_any_text_is_a_handle_or_is_refused(text):
    try:
        handle = decode_handle(text)
    except RemoteProtocolError:
        return
    assert decode_handle(handle.encode()) == handle


def test_retry_topics_have_two_names_and_lead_back():
    old, new = pop_retry_topic("T", "g"), pop_retry_topic("T", "g", v2=True)
    assert (old, new) == ("%RETRY%g_T", "%RETRY%g+T")
    assert [normal_topic(topic, "g") for topic in (old, new, "T", "%RETRY%other_T")] == [
        "T",
        "T",
        "T",
        "%RETRY%other_T",
    ]
    assert [retry_mark(topic) for topic in ("T", old, new)] == ["0", "1", "2"]
    assert [marked_topic("T", "g", mark) for mark in "012"] == ["T", old, new]
    with pytest.raises(RemoteProtocolError):
        marked_topic("T", "g", "3")


def test_the_parts_of_an_answer_are_written_as_rocketmq_does():
    assert start_offset_info("T", 2, 17) == "0 2 17"
    assert message_offset_info("%RETRY%g_T", 0, [17, 19]) == "1 0 17,19"
    assert order_count_info("T", 2, [(17, 1), (19, 3)], 1) == "0 qo2%17 1;0 qo2%19 3;0 2 1"
