"""The reply to a send is the same by the fast path, filled into a form, and by the general one, encoded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.broker.send_replies import SendReplies
from pyromq.protocol import frame
from pyromq.protocol.command import Command, SerializeType
from pyromq.protocol.ids import encode_offset_message_id

V4 = bytes((10, 0, 0, 1, 0, 0, 42, 159))
V6 = bytes(range(16)) + bytes((0, 0, 42, 159))


@pytest.mark.parametrize("host", [V4, V6])
@given(
    region=st.text(min_size=1, max_size=8),
    trace_on=st.booleans(),
    physical=st.integers(0, 2**63 - 1),
    queue_id=st.integers(0, 2**31 - 1),
    queue_offset=st.integers(0, 2**63 - 1),
    opaque=st.integers(-(2**31), 2**31 - 1),
    serialize=st.sampled_from(SerializeType),
    unique_key=st.none() | st.text(max_size=40),
    handle=st.none() | st.text(max_size=20),
)
def test_a_form_filled_in_is_the_reply_encoded(
    host, region, trace_on, physical, queue_id, queue_offset, opaque, serialize, unique_key, handle
):
    request = Command(310, opaque=opaque, serialize=serialize)
    response = request.reply()
    response.ext = {
        "MSG_REGION": region,
        "TRACE_ON": "true" if trace_on else "false",
        "msgId": encode_offset_message_id(host, physical),
        "queueId": str(queue_id),
        "queueOffset": str(queue_offset),
    }
    if handle is not None:
        response.ext["recallHandle"] = handle
    if unique_key is not None:
        response.ext["transactionId"] = unique_key
    replies = SendReplies(host, region, trace_on)
    place = physical, str(queue_id).encode(), queue_offset
    assert replies.frame(request, *place, unique_key, handle) == frame.encode(response)
