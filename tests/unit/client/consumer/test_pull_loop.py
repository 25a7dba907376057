from __future__ import annotations

import pytest

from pyromq.client.consumer.process_queue import ProcessQueue
from pyromq.client.consumer.pull_loop import Limits
from pyromq.protocol.message import MessageExt, MessageRecord


def holding(*offsets, body=b"x"):
    held = ProcessQueue()
    held.put([MessageExt(MessageRecord("t", body, queue_offset=offset)) for offset in offsets])
    return held


@pytest.mark.scenario("client 32")
def test_a_thousand_messages_are_allowed_and_no_more():
    assert not Limits().exceeded(holding(*range(1000)), ordered=False)
    assert Limits().exceeded(holding(*range(1001)), ordered=False)


@pytest.mark.scenario("client 32")
def test_offsets_may_be_two_thousand_apart_unless_they_are_in_order():
    assert not Limits().exceeded(holding(0, 2000), ordered=False)
    assert Limits().exceeded(holding(0, 2001), ordered=False)
    assert not Limits().exceeded(holding(0, 2001), ordered=True)


def test_whole_mebibytes_of_bodies_count():
    limits = Limits(mib=1)
    mebibyte = bytes(1 << 20)
    assert not limits.exceeded(holding(0, body=mebibyte), ordered=True)
    held = holding(0, 1, body=mebibyte)
    assert limits.exceeded(held, ordered=True)
