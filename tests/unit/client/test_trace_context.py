"""The property `traceparent`: read as the standard says, made and continued by the client."""

from __future__ import annotations

import contextvars

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from pyromq.client import trace_context
from pyromq.client.hooks import ConsumeContext
from pyromq.client.trace_context import TraceContext, TraceContextHook, of_properties, text_for
from pyromq.protocol.message_queue import MessageQueue

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def properties(text: str) -> dict[str, str]:
    return dict(item.split("\x01") for item in text.split("\x02") if item)


class Consumed:
    def __init__(self, **properties: str) -> None:
        self.properties = properties


def consume(*messages: Consumed) -> None:
    queue = MessageQueue(topic="t", broker_name="b", queue_id=0)
    TraceContextHook().before_consume(ConsumeContext(group="g", queue=queue, messages=messages))  # type: ignore[arg-type]


def test_a_context_is_read():
    assert of_properties({"traceparent": PARENT, "tracestate": "a=b"}) == TraceContext(TRACE, SPAN, "01", "a=b")
    # A later version may have more.
    assert of_properties({"traceparent": f"cc-{TRACE}-{SPAN}-01-what"}) == TraceContext(TRACE, SPAN, "01")


@pytest.mark.parametrize(
    "text",
    ["", "x", PARENT.upper(), f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01",
     f"{PARENT}-more", f" {PARENT}", f"{PARENT}\n"],
)  # fmt: skip
def test_a_malformed_context_is_none(text):
    assert of_properties({"traceparent": text}) is None


def test_a_message_begins_a_trace():
    first, second = (properties(text_for(None))["traceparent"] for _ in range(2))
    assert of_properties({"traceparent": first}) is not None
    assert first.split("-")[1] != second.split("-")[1]


def test_a_message_keeps_the_context_that_it_has():
    assert text_for({"traceparent": PARENT}) == ""


def test_what_is_sent_while_a_message_is_consumed_continues_its_trace():
    def run() -> None:
        consume(Consumed(), Consumed(traceparent=PARENT, tracestate="a=b"))
        sent = properties(text_for({"own": "x"}))
        _, trace_id, span_id, flags = sent["traceparent"].split("-")
        assert (trace_id, flags, sent["tracestate"]) == (TRACE, "01", "a=b")
        assert span_id != SPAN
        consume(Consumed())  # the next message has no trace
        assert trace_context.current() is None

    contextvars.copy_context().run(run)


def test_an_active_span_of_opentelemetry_counts_first():
    def run() -> None:
        consume(Consumed(traceparent=PARENT))
        tracer = TracerProvider().get_tracer("test")
        with trace.use_span(tracer.start_span("work")) as span:
            sent = properties(text_for(None))["traceparent"]
            context = span.get_span_context()
            assert sent == f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    contextvars.copy_context().run(run)
