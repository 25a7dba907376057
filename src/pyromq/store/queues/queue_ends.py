"""Where each queue ended when the store was closed, so that the next start notices a queue that has gone or shrunk.

Nothing else would tell: when a queue lost its folder while the store was closed, its messages are still in the log, but
the other queues reach to the log's end, so nothing looks as if it had to be read again, and the queue's next message
would get the offset 0.

The file is ours. RocketMQ passes it over; if it wrote to the log meanwhile, the log ends elsewhere and the file says
nothing any more. While a store is open there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..format import QueueOffset  # noqa: TC001  # msgspec reads the annotations
from ..metadata import checked_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ..disk import Disk
    from .consume_queue import ConsumeQueue

QUEUE_ENDS = "queueends.json"


class QueueEnd(msgspec.Struct, frozen=True, array_like=True):
    topic: str
    queue_id: int
    max_offset: QueueOffset
    max_physical: int


class QueueEnds(msgspec.Struct, frozen=True):
    """The end of the log, and of every queue that ever had a message."""

    log_end: int
    queues: list[QueueEnd]


def save(path: Path, log_end: int, queues: Iterable[ConsumeQueue], disk: Disk) -> None:
    """Return once the ends are on disk. OSError if the disk does not take them; what is there then is not used."""
    ends = [
        QueueEnd(queue.topic, queue.queue_id, queue.max_offset, queue.max_physical)
        for queue in queues
        if queue.max_offset
    ]
    checked_file.save(path, msgspec.json.encode(QueueEnds(log_end, ends)), disk)


def load(path: Path) -> QueueEnds | None:
    """What `save` wrote; None if there is nothing, or nothing whole."""
    content = checked_file.load(path)
    try:
        return None if content is None else msgspec.json.decode(content, type=QueueEnds)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
