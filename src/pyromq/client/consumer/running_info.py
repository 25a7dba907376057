"""A consumer's running info (307): settings, subscriptions, queues, rates, stacks."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING

from pyromq.protocol.bodies import ConsumerRunningInfo
from pyromq.protocol.command import PROTOCOL_VERSION
from pyromq.protocol.versions import version_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyromq.protocol.bodies import ConsumeStatus, ConsumeType, SubscriptionData
    from pyromq.protocol.message_queue import MessageQueue

    from .process_queue import ProcessQueue

# Names that mqadmin reads.
NAME_SERVERS = "PROP_NAMESERVER_ADDR"
CONSUME_TYPE = "PROP_CONSUME_TYPE"
CLIENT_VERSION = "PROP_CLIENT_VERSION"
ORDERLY = "PROP_CONSUMEORDERLY"
POOL_SIZE = "PROP_THREADPOOL_CORE_SIZE"
STARTED = "PROP_CONSUMER_START_TIMESTAMP"


def running_info(
    *,
    settings: Mapping[str, object],
    name_servers: Sequence[str],
    consume_type: ConsumeType,
    ordered: bool,
    pool_size: int | None,
    started_ms: int,
    subscriptions: Sequence[SubscriptionData],
    queues: Mapping[MessageQueue, ProcessQueue],
    offsets: Mapping[MessageQueue, int],
    status: Mapping[str, ConsumeStatus],
    stacks: bool,
) -> ConsumerRunningInfo:
    """The running info now. `settings` use the Java client's names."""
    epoch = time.time() - time.monotonic()
    properties = {name: _text(value) for name, value in settings.items()}
    properties |= {
        NAME_SERVERS: ";".join(name_servers),
        CONSUME_TYPE: consume_type.value,
        CLIENT_VERSION: version_name(PROTOCOL_VERSION),
        ORDERLY: _text(ordered),
        STARTED: str(started_ms),
    }
    if pool_size is not None:
        properties[POOL_SIZE] = str(pool_size)
    return ConsumerRunningInfo(
        properties=properties,
        subscription_set=sorted(subscriptions, key=lambda subscription: subscription.topic),
        mq_table={queue: held.info(offsets.get(queue, 0), epoch) for queue, held in sorted(queues.items())},
        status_table=dict(status),
        jstack=all_stacks() if stacks else None,
    )


def all_stacks() -> str:
    """The stacks of all threads and of all tasks of this loop, for people to read."""
    out = io.StringIO()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        out.write(f"thread {names.get(ident, ident)}\n")
        out.writelines(traceback.format_stack(frame))
        out.write("\n")
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        out.write(f"task {task.get_name()}\n")
        task.print_stack(file=out)
        out.write("\n")
    return out.getvalue()


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
