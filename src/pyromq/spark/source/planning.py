"""Planning rules without IO: which task reads what, and how much one micro-batch takes.

Every task of a Python source costs some 25 ms of a slot, however little it reads, so small ranges are packed together;
a long range is cut, so that a backlog in one queue keeps more than one slot busy.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyromq.protocol.message_queue import MessageQueue

PARTITION_BYTES = 64 << 20
FIRST_GUESS = 1024  # assumed bytes per message before any was seen
# Worth its own task: about what is read in the time that a task costs.
_WORTH_A_TASK = 4 << 20


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Messages of one queue, `end` exclusive."""

    queue: MessageQueue
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


def plan(
    ranges: Iterable[QueueRange],
    mean_size: Callable[[MessageQueue], float],
    *,
    partition_bytes: int = PARTITION_BYTES,
    max_records: int | None = None,
    min_partitions: int | None = None,
    parallelism: int = 8,
) -> list[tuple[QueueRange, ...]]:
    """The tasks of a batch, each a list of ranges; together they cover `ranges`, each message once.

    No task is estimated at more than `partition_bytes` or `max_records`, except for a single message. Small ranges are
    packed into at most `parallelism` tasks, fewer if there is little to do, more if `min_partitions` says so.
    """
    pieces = []
    for each in ranges:
        size = max(mean_size(each.queue), 1.0)
        limit = max(1, int(partition_bytes / size))
        pieces += _cut(each, -(-len(each) // min(limit, max_records or limit)), size)
    wanted = min_partitions or 0
    _split_largest(pieces, wanted)
    total = sum(piece.size for piece in pieces)
    bins = max(wanted, min(parallelism, -(-int(total) // _WORTH_A_TASK)), 1)
    return _pack(pieces, bins, partition_bytes, max_records)


@dataclass(frozen=True, slots=True)
class _Piece:
    range: QueueRange
    mean: float

    @property
    def size(self) -> float:
        return len(self.range) * self.mean

    @property
    def order(self) -> tuple[str, str, int, int]:
        queue = self.range.queue
        return queue.topic, queue.broker_name, queue.queue_id, self.range.start


def _cut(each: QueueRange, parts: int, mean: float) -> list[_Piece]:
    """Split `each` into this many parts of almost equal length, none empty."""
    parts = min(parts, len(each))
    bounds = [each.start + len(each) * number // parts for number in range(parts + 1)] if parts > 0 else []
    return [_Piece(QueueRange(each.queue, start, end), mean) for start, end in pairwise(bounds)]


def _split_largest(pieces: list[_Piece], wanted: int) -> None:
    heap = [(-piece.size, piece.order, piece) for piece in pieces]
    heapq.heapify(heap)
    whole: list[_Piece] = []
    while heap and len(heap) + len(whole) < wanted:
        _, _, largest = heapq.heappop(heap)
        if len(largest.range) == 1:
            whole.append(largest)
            continue
        for half in _cut(largest.range, 2, largest.mean):
            heapq.heappush(heap, (-half.size, half.order, half))
    pieces[:] = whole + [piece for _, _, piece in heap]


def _pack(
    pieces: Sequence[_Piece], bins: int, partition_bytes: int, max_records: int | None
) -> list[tuple[QueueRange, ...]]:
    """Put each into the emptiest task if it has room, largest first; a new task beyond `bins` only if none has."""
    heap: list[tuple[float, int, int, list[_Piece]]] = []
    for piece in sorted(pieces, key=lambda piece: (-piece.size, piece.order)):
        if len(heap) >= bins:
            size, number, records, task = heap[0]
            fits = size + piece.size <= partition_bytes
            if fits and (max_records is None or records + len(piece.range) <= max_records):
                task.append(piece)
                heapq.heapreplace(heap, (size + piece.size, number, records + len(piece.range), task))
                continue
        heapq.heappush(heap, (piece.size, len(heap), len(piece.range), [piece]))
    tasks = [sorted(task, key=lambda piece: piece.order) for *_, task in heap]
    return [tuple(piece.range for piece in task) for task in sorted(tasks, key=lambda task: task[0].order)]


def admit(
    starts: Mapping[MessageQueue, int],
    ends: Mapping[MessageQueue, int],
    limit: float,
    cost: Callable[[MessageQueue], float] = lambda queue: 1.0,
) -> dict[MessageQueue, int]:
    """How far a micro-batch goes in each queue if its total cost, messages or bytes, is limited to `limit`.

    One half is shared in proportion to the backlogs, so that all queues would be done at the same time; the other
    equally, so that a small queue does not wait for a large one to shrink. When there is less than one message for
    each queue, they take turns by offset. At least one message, or a stream would stand still.
    """
    backlog = {queue: end - starts[queue] for queue, end in ends.items() if end > starts[queue]}
    price = {queue: max(cost(queue), 1e-9) for queue in backlog}
    total = sum(backlog[queue] * price[queue] for queue in backlog)
    if total <= limit:
        return dict(ends)
    share = _level({queue: backlog[queue] * price[queue] for queue in backlog}, limit / 2)
    unshared = max(total - sum(share.values()), 1e-9)
    granted = {}
    left = limit
    for queue in backlog:
        rest = backlog[queue] * price[queue] - share[queue]
        proportional = rest / unshared * (limit / 2)
        granted[queue] = min(backlog[queue], int((share[queue] + proportional) / price[queue]))
        left -= granted[queue] * price[queue]
    # Distribute what rounding left over, beginning at another queue each time.
    queues = sorted(backlog)
    turn = sum(starts[queue] for queue in queues) % len(queues)
    for queue in queues[turn:] + queues[:turn]:
        is_first = not any(granted.values())
        if granted[queue] < backlog[queue] and (price[queue] <= left or is_first):
            granted[queue] += 1
            left -= price[queue]
    return {queue: starts[queue] + granted.get(queue, 0) for queue in ends}


def _level(wants: Mapping[MessageQueue, float], limit: float) -> dict[MessageQueue, float]:
    """Share `limit` equally; what one does not need goes to the others."""
    shares = {}
    left = limit
    waiting = sorted(wants, key=lambda queue: (wants[queue], queue))
    for number, queue in enumerate(waiting):
        shares[queue] = min(wants[queue], left / (len(waiting) - number))
        left -= shares[queue]
    return shares
