"""Where each queue ended when the store was closed, so that the next start notices a missing or shorter queue.

Nothing else shows it: if a queue lost its folder while the store was closed, its messages are still in the log, but
the other queues reach the log's end, so nothing seems to need a replay, and the queue's next message
would get the offset 0.

The file is ours. RocketMQ ignores it; if RocketMQ wrote to the log meanwhile, the log ends elsewhere and the file no
longer counts. It does not exist while a store is open.
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
    """Return once the ends are on disk. OSError if the disk does not take them; then the file does not count."""
    ends = [
        QueueEnd(queue.topic, queue.queue_id, queue.next_offset, queue.max_physical)
        for queue in queues
        if queue.next_offset
    ]
    checked_file.save(path, msgspec.json.encode(QueueEnds(log_end, ends)), disk)


def load(path: Path) -> QueueEnds | None:
    """What `save` wrote; None if there is nothing whole."""
    content = checked_file.load(path)
    try:
        return None if content is None else msgspec.json.decode(content, type=QueueEnds)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
