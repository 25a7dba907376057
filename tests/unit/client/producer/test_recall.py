"""The handle of a delayed message."""

from __future__ import annotations

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.client.producer.recall import checked_handle
from pyromq.errors import InvalidMessage
from pyromq.protocol.recall_handle import RecallHandle


def test_a_handle_names_topic_broker_time_and_message():
    handle = base64.urlsafe_b64encode(b"v1 orders broker-a 1700000000000 C0A8010A303918B4AAC24A59D0BB0007").decode()
    decoded = checked_handle(handle)
    assert decoded == RecallHandle("orders", "broker-a", 1700000000000, "C0A8010A303918B4AAC24A59D0BB0007")
    assert decoded.encode() == handle


@pytest.mark.parametrize("plain", [b"", b"v1 a b c d", b"v2 t b 1 id", b"v1 t b 1", b"v1 t b 1 id more", b"\xff"])
def test_anything_else_is_refused(plain):
    with pytest.raises(InvalidMessage):
        checked_handle(base64.urlsafe_b64encode(plain).decode())


@given(st.text())
def test_any_text_is_a_handle_or_refused(text):
    with contextlib.suppress(InvalidMessage):
        checked_handle(text)
