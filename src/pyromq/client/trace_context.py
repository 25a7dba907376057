"""Trace context: which trace a message belongs to, in the property `traceparent` (W3C Trace Context).

    00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
    version, trace id, id of the span that made this message, flags

Brokers keep the property like any other. With `Client(trace_context=True)` a producer gives it to messages that lack
it: that of the OpenTelemetry span that is active, if the program uses OpenTelemetry; otherwise one that continues the
message being consumed, or begins a trace. So a chain of services that send while they consume is one trace.
"""

from __future__ import annotations

import re
import secrets
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from pyromq.protocol import properties as props

from .hooks import Hook

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .hooks import ConsumeContext

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"

_SHAPE = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = "01"
_MAX_STATE = 512  # characters; the standard allows to drop longer ones


class TraceContext(NamedTuple):
    """A place in a trace: the span that something is done for."""

    trace_id: str
    span_id: str
    flags: str = _SAMPLED
    state: str = ""

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"

    def child(self) -> TraceContext:
        """A new span in the same trace."""
        return self._replace(span_id=secrets.token_hex(8))


_current: ContextVar[TraceContext | None] = ContextVar("pyromq trace context", default=None)


def current() -> TraceContext | None:
    """Where we are: in the active span of OpenTelemetry, or in the trace of the message being consumed."""
    return _active_span() or _current.get()


def of_properties(properties: Mapping[str, str]) -> TraceContext | None:
    """The context that a message carries; None if it has none, or a malformed one."""
    found = _SHAPE.fullmatch(properties.get(TRACEPARENT, ""))
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    if not int(found[2], 16) or not int(found[3], 16):
        return None
    state = properties.get(TRACESTATE, "")
    return TraceContext(found[2], found[3], found[4], state if len(state) <= _MAX_STATE else "")


def text_for(properties: Mapping[str, str] | None) -> str:
    """The properties to add to a message with these, as text after a separator; empty if it has a context."""
    if properties and TRACEPARENT in properties:
        return ""
    context = _active_span()
    if context is None:
        consumed = _current.get()
        context = TraceContext(secrets.token_hex(16), secrets.token_hex(8)) if consumed is None else consumed.child()
    text = f"{props.ITEM_SEPARATOR}{TRACEPARENT}{props.NAME_VALUE_SEPARATOR}{context.traceparent}"
    if context.state and not (properties and TRACESTATE in properties):
        text += f"{props.ITEM_SEPARATOR}{TRACESTATE}{props.NAME_VALUE_SEPARATOR}{context.state}"
    return text


def _active_span() -> TraceContext | None:
    # A program that has not imported it has no active span, and need not have it installed.
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    state = context.trace_state.to_header()
    return TraceContext(f"{context.trace_id:032x}", f"{context.span_id:016x}", f"{context.trace_flags:02x}", state)


class TraceContextHook(Hook):
    """While a message is consumed, what is sent belongs to its trace. Of a batch the first one with a trace counts."""

    def before_consume(self, context: ConsumeContext) -> None:
        found = (of_properties(message.properties) for message in context.messages)
        _current.set(next(filter(None, found), None))
