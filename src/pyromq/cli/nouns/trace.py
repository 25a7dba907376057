"""`pyromq trace`: who sent and consumed a message, as clients traced it."""

from __future__ import annotations

from typing import Annotated

import typer

from pyromq.admin.listing import Listing
from pyromq.admin.messages.traces import TraceEvent, trace_of
from pyromq.errors import NoMessage, TopicNotFound
from pyromq.protocol.names import TRACE_TOPIC

from ..failures import CommandFailed, Exit
from ..session import Session
from ..verbs import new_app, reading, run_app

app = new_app("Show the trace of a message: who sent it, who consumed it, and when.")


def main(arguments: list[str]) -> int:
    return run_app(app, "trace", arguments)


@reading(app, "get", timeout=10.0)
async def get(
    session: Session,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The id of a message, or one of its keys.")],
    trace_topic: Annotated[
        str, typer.Option("-t", "--trace-topic", metavar="TOPIC", help="Topic that clients write traces to.")
    ] = TRACE_TOPIC,
) -> Listing[TraceEvent]:
    """Show who sent a message, who consumed it, when, how long it took, and how it ended.

    Example: pyromq trace get C0A8011500002A9F0000000000003E6A
    """
    try:
        found = await trace_of(session.admin, message_id, trace_topic)
    except TopicNotFound:
        reason = f"no broker has the trace topic {trace_topic}; brokers create it with traceTopicEnable=true"
        raise CommandFailed(reason, Exit.NOT_FOUND) from None
    except NoMessage:
        reason = f"no trace of {message_id}; clients trace with `Client(trace=True)`, in Java enableMsgTrace"
        raise CommandFailed(reason, Exit.NOT_FOUND) from None
    if not found.rows and not found.missing:
        raise CommandFailed(f"no trace of {message_id}", Exit.NOT_FOUND)
    return found
