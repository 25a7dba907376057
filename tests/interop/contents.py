"""All messages of a store, read in every way: by `MessageStore` from the files, or over the wire from a broker.

Both give `Contents`, the records of each queue. Pulled messages are the bytes of the commit log, so what one side reads
from the files can be compared field by field with what the other side served.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from pyromq.protocol.record import MessageRecord, decode_record, decode_records
from pyromq.store import GetStatus, MessageStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.interop import wire

PULL_MESSAGE = 11
QUERY_MESSAGE = 12
GET_ALL_TOPIC_CONFIG = 21
SEARCH_OFFSET_BY_TIMESTAMP = 29
GET_MAX_OFFSET = 30
GET_MIN_OFFSET = 31
VIEW_MESSAGE_BY_ID = 33

SUBSCRIPTION = 4  # a pull that says itself what it wants, so that no heartbeat has to come before it
FOREVER = 2**62
# Of more messages than this only so many are looked up one by one, all over the log. All of them are pulled.
LOOKED_UP = 300

Queue: TypeAlias = tuple[str, int]
Contents: TypeAlias = Mapping[Queue, Sequence[MessageRecord]]


class Source(Protocol):
    """Something that can be asked for messages."""

    # Whether a time leads to the first message of that time. A 4.9 broker finds any of them, and not even that where a
    # queue has several files: it picks one by the time of its last change, which says little about mapped files.
    knows_times: bool

    def queues(self) -> dict[Queue, tuple[int, int]]:
        """The queues that have messages: the first offset and the one behind the last."""

    def pull(self, queue: Queue, offset: int) -> list[MessageRecord]: ...

    def by_key(self, topic: str, key: str, *, unique: bool) -> list[MessageRecord]: ...

    def at(self, physical_offset: int) -> MessageRecord: ...

    def offset_by_time(self, queue: Queue, timestamp: int) -> int: ...


class Held:
    """What an open store finds in its files."""

    knows_times = True

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def queues(self) -> dict[Queue, tuple[int, int]]:
        return {
            (queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset)
            for queue in self._store.queues
            if queue.max_offset > queue.min_offset
        }

    def pull(self, queue: Queue, offset: int) -> list[MessageRecord]:
        found = self._store.get(self._store.queue(*queue), offset, 32)
        assert found.status is GetStatus.FOUND, (queue, offset, found)
        return [decode_record(view) for view in found.slices]

    def by_key(self, topic: str, key: str, *, unique: bool) -> list[MessageRecord]:
        return [decode_record(view) for view in self._store.query(topic, key, 64, 0, FOREVER)]

    def at(self, physical_offset: int) -> MessageRecord:
        return decode_record(self._store.message_at(physical_offset))

    def offset_by_time(self, queue: Queue, timestamp: int) -> int:
        return self._store.reader.offset_by_time(self._store.queue(*queue), timestamp)


class Served:
    """What a running broker answers, asked as clients ask."""

    def __init__(self, connection: wire.Connection, *, knows_times: bool = True) -> None:
        self._connection = connection
        self.knows_times = knows_times

    def queues(self) -> dict[Queue, tuple[int, int]]:
        topics = self._ask(GET_ALL_TOPIC_CONFIG).json["topicConfigTable"]
        ends = {}
        for topic, config in topics.items():
            for queue_id in range(max(config["readQueueNums"], config["writeQueueNums"])):
                low, high = (self._offset(code, topic, queue_id) for code in (GET_MIN_OFFSET, GET_MAX_OFFSET))
                if high > low:
                    ends[topic, queue_id] = low, high
        return ends

    def pull(self, queue: Queue, offset: int) -> list[MessageRecord]:
        answer = self._ask(
            PULL_MESSAGE,
            consumerGroup="reader",
            topic=queue[0],
            queueId=queue[1],
            queueOffset=offset,
            maxMsgNums=32,
            sysFlag=SUBSCRIPTION,
            commitOffset=0,
            suspendTimeoutMillis=0,
            subscription="*",
            subVersion=0,
            expressionType="TAG",
        )
        return list(decode_records(answer.body))

    def by_key(self, topic: str, key: str, *, unique: bool) -> list[MessageRecord]:
        more = {"_UNIQUE_KEY_QUERY": "true"} if unique else {}
        span = {"beginTimestamp": 0, "endTimestamp": FOREVER}
        return list(decode_records(self._ask(QUERY_MESSAGE, topic=topic, key=key, maxNum=64, **span, **more).body))

    def at(self, physical_offset: int) -> MessageRecord:
        return decode_record(memoryview(self._ask(VIEW_MESSAGE_BY_ID, offset=physical_offset).body))

    def offset_by_time(self, queue: Queue, timestamp: int) -> int:
        return self._offset(SEARCH_OFFSET_BY_TIMESTAMP, *queue, timestamp=timestamp)

    def _offset(self, code: int, topic: str, queue_id: int, **ext: object) -> int:
        return int(self._ask(code, topic=topic, queueId=queue_id, **ext).ext["offset"])

    def _ask(self, code: int, **ext: object) -> wire.Answer:
        answer = self._connection.ask(code, **ext)
        assert answer.code == 0, (code, ext, answer)
        return answer


def read_all(source: Source, *, keys: bool = True) -> Contents:
    """Every message, by its queue; each must be found by its keys, its unique key, its id and its time, too.

    Without `keys` the index is not asked.
    """
    contents: dict[Queue, list[MessageRecord]] = {}
    for queue, (low, high) in source.queues().items():
        records = contents[queue] = []
        while low < high:
            pulled = source.pull(queue, low)
            assert pulled, (queue, low, high)
            for record in pulled:
                assert (record.topic, record.queue_id, record.queue_offset) == (*queue, low)
                low += 1
            records += pulled
    total = count(contents)
    for number, record in enumerate(in_log_order(contents)):
        if number % (total // LOOKED_UP + 1) == 0:
            _look_up(source, contents, record, keys=keys)
    return contents


def _look_up(source: Source, contents: Contents, record: MessageRecord, *, keys: bool) -> None:
    assert source.at(record.physical_offset) == record
    if keys:
        unique = record.find_property("UNIQ_KEY")
        if unique is not None:
            assert record in source.by_key(record.topic, unique, unique=True)
        for key in (record.find_property("KEYS") or "").split():
            assert record in source.by_key(record.topic, key, unique=False), (key, record)
    if source.knows_times:
        queue = record.topic, record.queue_id
        times = [other.store_timestamp for other in contents[queue]]
        first = contents[queue][bisect.bisect_left(times, record.store_timestamp)]
        assert source.offset_by_time(queue, record.store_timestamp) == first.queue_offset


def in_log_order(contents: Contents) -> list[MessageRecord]:
    return sorted(
        (record for records in contents.values() for record in records), key=lambda each: each.physical_offset
    )


def count(contents: Contents) -> int:
    return sum(map(len, contents.values()))


def assert_kept(before: Contents, after: Contents) -> None:
    """All that was there still is, where it was and as it was; queues may have grown."""
    for queue, records in before.items():
        assert list(after.get(queue, ())[: len(records)]) == list(records), queue


def bodies(contents: Contents, topic: str) -> set[bytes]:
    """What the messages of a topic say, in any queue."""
    return {record.body for queue, records in contents.items() for record in records if queue[0] == topic}


def acknowledged_in(contents: Contents, acknowledged: Iterable[tuple[Queue, int, bytes]]) -> bool:
    """Whether each message, given as queue, offset and body, lies where its producer was told that it does."""
    return all(
        contents[queue][offset - contents[queue][0].queue_offset].body == body for queue, offset, body in acknowledged
    )
