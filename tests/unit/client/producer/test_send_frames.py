"""The form of a send request gives the bytes that the general way gives."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.client.producer.outgoing import Outgoing
from pyromq.client.producer.send_frames import Form
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.frame import encode
from pyromq.protocol.message_queue import MessageQueue

text = st.text(st.characters(codec="utf-8"), max_size=30)
outgoing = st.fixed_dictionaries(
    {
        "body": st.binary(max_size=20),
        "properties": text,
        "message_id": st.just("id"),
        "flag": st.integers(-(2**31), 2**31 - 1),
        "sys_flag": st.sampled_from([0, 4, 0x301]),
        "code": st.sampled_from([RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, 325]),
        "reconsume_times": st.integers(0, 20),
        "max_reconsume_times": st.none() | st.integers(0, 2**31 - 1),
    }
).map(lambda fields: Outgoing(**cast("Any", fields)))


@given(outgoing, text, text, text, st.integers(-(2**31), 2**31 - 1), st.booleans())
def test_the_bytes_are_those_of_the_command(outgoing, group, topic, broker, opaque, oneway):
    queue = MessageQueue(broker_name=broker, queue_id=3, topic=topic)
    form = Form(group, queue, queue, 4)
    command = form.command(outgoing, 1_700_000_000_123, oneway)
    command.opaque = opaque
    frame = form.frame(outgoing, opaque, 1_700_000_000_123, oneway)
    assert frame is not None
    assert b"".join(frame) == encode(command)


@pytest.mark.parametrize(("size", "fits"), [(16 * 1024 * 1024, False), (16 * 1024 * 1024 - 1000, True)])
def test_a_frame_that_no_peer_would_take_is_not_made(size, fits):
    queue = MessageQueue(broker_name="b", queue_id=3, topic="T")
    frame = Form("g", queue, queue, 4).frame(Outgoing(bytes(size), "", ""), 1, 1)
    assert (frame is not None) == fits
