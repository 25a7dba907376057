"""Offsets as JSON: those that users write, and those in Spark's checkpoints.

    users         {"orders": {"broker-a": {"0": 23, "1": -1}}}               next offset to read; -1 latest, -2 earliest
    checkpoints   {"v": 1, "offsets": {…}, "from": {…}, "initial": true}     same shape inside

Spark asks for the initial offset twice, before and after it asks for the latest one, and again after a crash; it uses
the later answer. A source that answers "latest" afresh loses what arrived in between. So an end offset carries, in
`from`, the start of every queue whose start is not in the end before it: start and end are written to Spark's log
together, and `ranges` trusts `from` more than the start it is handed. `initial` marks an offset that was made up by
`initialOffset` and was never the end of a batch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyromq.errors import ConfigError
from pyromq.protocol.message_queue import MessageQueue

from ..moments import TIME_FORMS, moment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

LATEST = -1
EARLIEST = -2
VERSION = 1

_MAX_OFFSET = 2**63 - 1
_MAX_QUEUE_ID = 2**31 - 1


def parse_offsets(text: str, option: str) -> dict[MessageQueue, int]:
    """The offsets that a user wrote for `option`. ConfigError says what is wrong and where."""
    offsets = {}
    for queue, value in _entries(_json(text, option), option):
        if type(value) is not int or not EARLIEST <= value <= _MAX_OFFSET:
            raise ConfigError(f"{option}: {place(queue)} has {value!r}; an offset is a number, -1 latest, -2 earliest")
        offsets[queue] = value
    return offsets


def parse_times(text: str, option: str) -> dict[MessageQueue, int]:
    """Times per queue, in the same shape as offsets."""
    times = {}
    for queue, value in _entries(_json(text, option), option):
        try:
            if type(value) not in (int, str):
                raise ValueError(TIME_FORMS)
            times[queue] = moment(str(value))
        except ValueError as exc:
            raise ConfigError(f"{option}: {place(queue)} must be {exc}, not {value!r}") from None
    return times


def parse_assignment(text: str, option: str) -> frozenset[MessageQueue]:
    """Queues as `{"orders": {"broker-a": [0, 1]}}`."""
    queues: set[MessageQueue] = set()
    for topic, brokers in _object(_json(text, option), option).items():
        for broker, ids in _object(brokers, f"{option}: {topic}").items():
            if not isinstance(ids, list):
                raise ConfigError(f"{option}: {topic} on {broker} must be a list of queue ids, not {ids!r}")
            queues.update(MessageQueue(topic=topic, broker_name=broker, queue_id=_queue_id(it, option)) for it in ids)
    if not queues:
        raise ConfigError(f"{option} names no queue")
    return frozenset(queues)


def nested(offsets: Mapping[MessageQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """The offsets in the shape of the JSON, sorted: equal offsets give equal text."""
    tree: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets, key=_order):
        tree.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return tree


def render(offsets: Mapping[MessageQueue, int]) -> str:
    """The text that `parse_offsets` reads, for reports."""
    return json.dumps(nested(offsets), separators=(",", ":"), ensure_ascii=False)


def place(queue: MessageQueue) -> str:
    """How messages to users name a queue."""
    return f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"


def resolve(
    given: Mapping[MessageQueue, int],
    known: Mapping[MessageQueue, tuple[int, int]],
    default: Callable[[MessageQueue], int],
    option: str,
) -> dict[MessageQueue, int]:
    """Where each of the `known` queues, given with minimum and maximum, starts or ends.

    -1 and -2 become numbers; queues left out get the default. A queue that does not exist is an error: it
    would be a typo that silently reads something else.
    """
    unknown = given.keys() - known.keys()
    if unknown:
        raise ConfigError(f"{option}: there is no {', no '.join(sorted(map(place, unknown)))}")
    resolved = {}
    for queue, (minimum, maximum) in known.items():
        offset = given.get(queue)
        if offset is None:
            offset = default(queue)
        resolved[queue] = {LATEST: maximum, EARLIEST: minimum}.get(offset, offset)
    return resolved


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """What a streaming reader exchanges with Spark. The JSON calls `starts` `from`."""

    ends: Mapping[MessageQueue, int]
    starts: Mapping[MessageQueue, int] = field(default_factory=dict)
    initial: bool = False

    @classmethod
    def first(cls, starts: Mapping[MessageQueue, int]) -> StreamOffset:
        """The answer to `initialOffset`."""
        return cls(starts, initial=True)

    def advance(self, ends: Mapping[MessageQueue, int], starts: Mapping[MessageQueue, int]) -> StreamOffset:
        """The end of the next batch. `starts` is where queues new since then begin.

        A queue missing from `ends` keeps its place: its broker is unreachable, or it had no turn.
        """
        known = {} if self.initial else self.ends
        merged = {**self.ends, **ends}
        begins = {queue: self.ends.get(queue, starts.get(queue)) for queue in merged if queue not in known}
        missing = [queue for queue, start in begins.items() if start is None]
        if missing:
            raise ValueError(f"no start for {place(missing[0])}")
        return StreamOffset(merged, {queue: start for queue, start in begins.items() if start is not None})

    def to_json(self) -> dict[str, Any]:
        """A dict that Spark writes as JSON."""
        offset: dict[str, Any] = {"v": VERSION, "offsets": nested(self.ends)}
        if self.starts:
            offset["from"] = nested(self.starts)
        if self.initial:
            offset["initial"] = True
        return offset

    @classmethod
    def from_json(cls, offset: Any) -> StreamOffset:
        """Parse an offset. ConfigError if this version cannot read it: a guess would lose or repeat messages."""
        tree = _object(offset, "offset in the checkpoint")
        if tree.get("v") != VERSION:
            raise ConfigError(
                f"offset in the checkpoint: its version is {tree.get('v')!r}, this PyroMQ reads {VERSION}"
            )
        return cls(_checked(tree.get("offsets")), _checked(tree.get("from", {})), tree.get("initial") is True)


def ranges(start: StreamOffset, end: StreamOffset) -> dict[MessageQueue, tuple[int, int]]:
    """The range of a batch per queue, from (inclusive) and to (exclusive); empty ones are left out."""
    found = {}
    for queue, stop in end.ends.items():
        begin = end.starts.get(queue, start.ends.get(queue))
        if begin is None:
            raise ConfigError(f"offset in the checkpoint: no start for {place(queue)}")
        if begin < stop:
            found[queue] = (begin, stop)
    return found


def without(offset: StreamOffset, gone: Collection[MessageQueue]) -> StreamOffset:
    """`offset` without queues that no longer exist."""
    return StreamOffset(
        {queue: end for queue, end in offset.ends.items() if queue not in gone},
        {queue: start for queue, start in offset.starts.items() if queue not in gone},
        offset.initial,
    )


def _order(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id


def _checked(tree: Any) -> dict[MessageQueue, int]:
    offsets = {}
    for queue, value in _entries(tree, "offset in the checkpoint"):
        if type(value) is not int or not 0 <= value <= _MAX_OFFSET:
            raise ConfigError(f"offset in the checkpoint: {place(queue)} has {value!r}")
        offsets[queue] = value
    return offsets


def _entries(tree: Any, what: str) -> Iterable[tuple[MessageQueue, Any]]:
    for topic, brokers in _object(tree, what).items():
        for broker, queues in _object(brokers, f"{what}: {topic}").items():
            for key, value in _object(queues, f"{what}: {topic} on {broker}").items():
                yield MessageQueue(topic=topic, broker_name=broker, queue_id=_queue_id(key, what)), value


def _queue_id(value: Any, what: str) -> int:
    text = str(value) if type(value) in (int, str) else ""
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= _MAX_QUEUE_ID):
        raise ConfigError(f"{what}: {value!r} is not a queue id")
    return int(text)


def _object(tree: Any, what: str) -> dict[str, Any]:
    if not isinstance(tree, dict):
        raise ConfigError(f'{what} must look like {{"topic": {{"broker": {{"0": 23}}}}}}, not {str(tree)[:80]}')
    return tree


def _json(text: str, option: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ConfigError(f"{option} is not JSON: {exc}") from exc
