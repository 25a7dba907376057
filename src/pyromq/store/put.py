"""Appending: turns messages into records in the commit log, many by one write. The hot path of every send.

`Appender.put` takes all new messages, gives each its offsets and time, joins the records and writes them; then,
in the same turn, it adds the queue entries. Its cost dominates the broker's, so there are two paths. The fast one is
a loop without calls for short messages with IPv4 hosts that belong to no transaction. The general one, `_measure` and
`_place`, takes any message, reports what is wrong with it and rolls to the next file. Both write the same bytes.
Messages may also come as a `Run`, whose records compiled code makes; where it cannot, the run is taken apart.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

import msgspec

from pyromq.errors import MessageRefused
from pyromq.protocol import properties as props
from pyromq.protocol import sysflag
from pyromq.protocol.crc import crc32
from pyromq.protocol.names import MAX_RETRY_TOPIC_LENGTH, MAX_TOPIC_LENGTH, is_retry_topic
from pyromq.protocol.record import HEADS, MAGIC_V1, MAGIC_V2, PROPERTIES_LENGTH, TOPIC_LENGTH, MessageRecord

from .commit_log import BLANK_SIZE
from .format import ENTRY
from .index.index import PIECES
from .index.index import head as index_head
from .tags import TAG_START

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .commit_log import CommitLog
    from .index.index import IndexFiles
    from .queues.consume_queue import ConsumeQueue
    from .tags import TagsCodes

    # Messages for one queue. Several are a batch: they lie side by side in one file, or are not stored at all.
    Unit: TypeAlias = tuple[ConsumeQueue, Sequence[MessageRecord]]

_OVERHEAD = 64 * 1024  # room beyond the largest body
_V4 = sysflag.HOST_V4_LENGTH
_HOST_LENGTHS = (sysflag.HOST_V4_LENGTH, sysflag.HOST_V6_LENGTH)
_NO_HOSTS = ~sysflag.HOSTS_MASK
_HOSTLESS_SIZE = HEADS[0].size - 2 * _V4 + PROPERTIES_LENGTH.size  # size of a record without topic and hosts
_MAX_FIXED_SIZE = HEADS[3].size + PROPERTIES_LENGTH.size

_LENGTHS = tuple(map(PROPERTIES_LENGTH.pack, range(props.MAX_LENGTH + 1)))  # of any properties
_NO_END = bytes(props.MAX_LENGTH + 1)  # no properties end with it
# Transactions get no entries, and long hosts change the layout of the head.
_GENERAL_ONLY = sysflag.HOSTS_MASK | sysflag.TRANSACTION_MASK


class Run(Protocol):
    """Messages for which compiled code makes records and entries, as the fast path here does. A unit of many queues."""

    count: int
    size: int  # bytes of all records
    largest: int  # bytes of the largest
    is_placed: bool
    queues: list[ConsumeQueue]

    def place(
        self, position: int, now: int, marks: dict[ConsumeQueue, tuple[int, int, int]], for_index: bool
    ) -> tuple[bytes, tuple[bytes, list[bytes], bytes, bytes] | None]:
        """The records, for this place in the log; the queues get their entries and a mark. And what the index needs."""
        ...

    def units(self, record: type[MessageRecord]) -> list[Unit]:
        """The same messages one by one; forgets that they were placed."""
        ...


def results_of(unit: Unit | Run) -> int:
    """How many results `Appender.put` gave for this unit: one for each message, or one for a run that was placed."""
    if isinstance(unit, tuple):
        return len(unit[1])
    return 1 if unit.is_placed else unit.count


class PutStatus(Enum):
    """The outcome of storing a message, by RocketMQ's names. With the first four it is stored."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"


_OK = PutStatus.PUT_OK
_NOT_WRITTEN = (PutStatus.UNKNOWN_ERROR, PutStatus.CREATE_MAPPED_FILE_FAILED)


class PutResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message lies if it was stored; `error` says why not, or what is uncertain."""

    status: PutStatus
    physical_offset: int = -1
    queue_offset: int = -1
    store_timestamp: int = 0
    size: int = 0
    error: str = ""

    def with_status(self, status: PutStatus, reason: str) -> PutResult:
        """The same place with another status."""
        return msgspec.structs.replace(self, status=status, error=reason)


class Appender:
    """Puts messages into the commit log, their entries into the queues and their keys into the index."""

    def __init__(
        self,
        log: CommitLog,
        tags: TagsCodes,
        index: IndexFiles | None,
        clock: Callable[[], float],
        *,
        max_message_size: int,
        compatible_49: bool = False,
    ) -> None:
        self._log = log
        self._tags = tags
        self.general_puts = 0  # messages that took the general path
        self._index = index
        self._clock = clock
        self._compatible_49 = compatible_49
        self.max_message_size = max_message_size
        self._batch = _Batch(0, 0)
        # The store time of the newest message.
        self.last_timestamp = 0
        # Queues that got entries since the table was last taken, in the order of their first entry.
        self.touched: dict[ConsumeQueue, object] = {}

    @property
    def max_message_size(self) -> int:
        """The largest body accepted."""
        return self._max_message_size

    @max_message_size.setter
    def max_message_size(self, size: int) -> None:
        self._max_message_size = size
        # Body, properties and topic this small together break no limit.
        self._max_fast = min(size, props.MAX_LENGTH, self._log.file_size - BLANK_SIZE - _MAX_FIXED_SIZE)

    def put(self, units: Sequence[Unit | Run]) -> list[PutResult]:
        """Store messages in this order; the results of each unit, see `results_of`, in the same order.

        Offsets and store times are assigned here, whatever the records say. Readers of a queue find its messages
        as soon as this returns. A unit is stored as a whole or not at all, as its results say. When a write fails,
        nothing after it is stored either: a message put after another that `fits` is never there without it.
        """
        runs = [unit for unit in units if not isinstance(unit, tuple)]
        if runs and not self._fit(units, runs):
            units, runs = _taken_apart(units), []
        results: list[PutResult] = []
        try:
            return self._put(units, results)
        except (struct.error, MessageRefused) as exc:
            # Some value does not fit its field. Storing unit by unit finds out which.
            for queue, mark in self._batch.queues.items():
                queue.reset(mark)
            if runs:
                return self.put(_taken_apart(units))
            del results[self._batch.first_result :]
            return self._put_singly(cast("Sequence[Unit]", units), results, str(exc))

    def put_again(self, unit: Unit) -> list[PutResult]:
        """As `put`, for messages that were accepted before and may be longer than allowed now."""
        limit = self.max_message_size
        self.max_message_size = max(limit, self._log.file_size)
        try:
            return self.put([unit])
        finally:
            self.max_message_size = limit

    def fits(self, queue: ConsumeQueue, record: MessageRecord) -> bool:
        """Whether a message is within the current limits."""
        try:
            self._measure(queue, (record,))
        except MessageRefused:
            return False
        return True

    def _put_singly(self, units: Sequence[Unit], results: list[PutResult], error: str) -> list[PutResult]:
        """Store the units without results one by one; a single one must be the one with the `error`."""
        if len(units) == 1:
            illegal = PutResult(PutStatus.MESSAGE_ILLEGAL, error=f"a field does not fit into a record: {error}")
            return [illegal] * len(units[0][1])
        done = len(results)
        for unit in units:
            if done >= len(unit[1]) > 0:
                done -= len(unit[1])
                continue
            results += self.put([unit])
            if results[-1].status in _NOT_WRITTEN:
                return results + [results[-1]] * (sum(len(each[1]) for each in units) - len(results))
        return results

    def _fit(self, units: Sequence[Unit | Run], runs: Sequence[Run]) -> bool:
        """Whether all of this, with some runs in it, fits into the current file, and no message is too large."""
        size = sum([run.size for run in runs])
        if len(runs) < len(units):
            try:
                size += sum([self._measure(*unit)[0] for unit in units if isinstance(unit, tuple)])
            except MessageRefused:
                return False
        return size <= self._log.room() - BLANK_SIZE and max([run.largest for run in runs]) < self._max_fast

    def _put(self, units: Sequence[Unit | Run], results: list[PutResult]) -> list[PutResult]:
        log, tags_of, known_tags = self._log, self._tags.of_tag, self._tags.known
        pack_head, pack_entry = HEADS[0].pack, ENTRY.pack
        max_fast = self._max_fast
        # Along the log, store times never go back, whatever the clock does.
        now = max(int(self._clock() * 1000), self.last_timestamp)
        batch = self._batch = _Batch(len(results), now)
        pieces, queues = batch.pieces, batch.queues
        position = int(log.end)
        limit = position + log.room() - BLANK_SIZE
        good_born_host = good_store_host = b""
        last_tag, last_code = _NO_END, 0
        for unit in units:
            if not isinstance(unit, tuple):
                written, for_index = unit.place(position, now, queues, self._index is not None)
                batch.runs.append((len(pieces), for_index))
                pieces.append(written)
                results.append(PutResult(_OK, position, 0, now, unit.size))
                position += unit.size
                continue
            queue, records = unit
            # The fast path: `_measure` and `_place` for nearly every message, with the least possible work.
            if queue.has_fast_path and (len(records) == 1 or self._are_fast(queue, records, limit - position)):
                for record in records:
                    body, properties, sys_flag = record.body, record.properties, record.sys_flag
                    born_host, store_host = record.born_host, record.store_host
                    body_size, properties_size = len(body), len(properties)
                    size = queue.fixed_size + body_size + properties_size
                    end = position + size
                    if (
                        size >= max_fast
                        or end > limit
                        or sys_flag & _GENERAL_ONLY
                        # Mostly those of the previous message; comparing identity is cheaper than lengths.
                        or (born_host is not good_born_host and len(born_host) != _V4)
                        or (store_host is not good_store_host and len(store_host) != _V4)
                    ):
                        break
                    good_born_host, good_store_host = born_host, store_host
                    # tags.of_tag, without the call, and without the search if all is as in the previous message
                    if properties.endswith(last_tag):
                        tags_code: int | None = last_code
                    else:
                        at = properties.rfind(TAG_START)
                        if at < 0 or (tags_code := known_tags.get(properties[at:])) is None:
                            tags_code = tags_of(properties)
                        else:
                            last_tag, last_code = properties[at:], tags_code
                    if queue not in queues:
                        queues[queue] = queue.mark()
                    # queue.add, without the call
                    queue_offset = queue.next_offset
                    queue.tail += pack_entry(position, size, tags_code)
                    queue.next_offset = queue_offset + 1  # type: ignore[assignment]  # still a queue offset
                    queue.max_physical = end
                    pieces += (
                        pack_head(
                            size,
                            MAGIC_V1,
                            crc32(body) & 0x7FFFFFFF,
                            queue.queue_id,
                            record.flag,
                            queue_offset,
                            position,
                            sys_flag,
                            record.born_timestamp,
                            born_host,
                            now,
                            store_host,
                            record.reconsume_times,
                            record.prepared_transaction_offset,
                            body_size,
                        ),
                        body,
                        queue.topic_field,
                        _LENGTHS[properties_size],
                        properties,
                    )
                    results.append(PutResult(_OK, position, queue_offset, now, size))
                    position = end
                else:
                    continue
            # The general path.
            self.general_puts += len(records)
            try:
                size, topic_field = self._measure(queue, records)
            except MessageRefused as exc:
                results += [PutResult(PutStatus.MESSAGE_ILLEGAL, error=str(exc))] * len(records)
                continue
            if position + size > limit:
                # What is placed so far goes into this file, the rest into the next.
                failed = self._write(batch, results)
                if failed is not None:
                    return results + [failed] * (sum(map(results_of, units)) - len(results))
                batch = self._batch = _Batch(len(results), now)
                pieces, queues = batch.pieces, batch.queues
                try:
                    log.roll()
                except OSError as exc:
                    failed = PutResult(
                        PutStatus.CREATE_MAPPED_FILE_FAILED, error=f"cannot create a commit log file: {exc}"
                    )
                    return results + [failed] * (sum(map(results_of, units)) - len(results))
                position = int(log.end)
                limit = position + log.room() - BLANK_SIZE
            for record in records:
                placed = self._place(batch, queue, topic_field, record, position)
                results.append(placed)
                position += placed.size
        self._write(batch, results)
        return results

    def _are_fast(self, queue: ConsumeQueue, records: Sequence[MessageRecord], room: int) -> bool:
        """Whether all records of a batch can take the fast path: a batch is never stored in part."""
        total = queue.fixed_size * len(records)
        for record in records:
            size = len(record.body) + len(record.properties)
            if (
                queue.fixed_size + size >= self._max_fast
                or record.sys_flag & _GENERAL_ONLY
                or len(record.born_host) != _V4
                or len(record.store_host) != _V4
            ):
                return False
            total += size
        return total <= min(room, self._max_message_size)

    def _place(
        self, batch: _Batch, queue: ConsumeQueue, topic_field: bytes, record: MessageRecord, position: int
    ) -> PutResult:
        """Make the record and queue entry of a message at `position` in the log."""
        body, properties = record.body, record.properties
        # Ignore the sender's host bits: a record that lies about them would end the log at the next start.
        sys_flag = _with_hosts(record.sys_flag & _NO_HOSTS, record.born_host, record.store_host)
        head = HEADS[sys_flag >> sysflag.HOSTS_SHIFT & 3]
        size = head.size + len(body) + len(topic_field) + PROPERTIES_LENGTH.size + len(properties)
        queue_offset = 0
        if not sys_flag & sysflag.PREPARED:  # neither prepared nor rolled back: it has a queue entry
            queue_offset = int(queue.next_offset)
            if queue not in batch.queues:
                batch.queues[queue] = queue.mark()
            queue.add(position, size, self._tags.of(queue.topic, properties, batch.store_time))
        batch.pieces += (
            head.pack(
                size,
                MAGIC_V1 if queue.topic_field else MAGIC_V2,
                crc32(body) & 0x7FFFFFFF,
                queue.queue_id,
                record.flag,
                queue_offset,
                position,
                sys_flag,
                record.born_timestamp,
                record.born_host,
                batch.store_time,
                record.store_host,
                record.reconsume_times,
                record.prepared_transaction_offset,
                len(body),
            ),
            body,
            topic_field,
            _LENGTHS[len(properties)],
            properties,
        )
        if sys_flag & sysflag.ROLLBACK == sysflag.ROLLBACK:
            batch.odd.append((len(batch.pieces) - PIECES, None))
        elif head is not HEADS[0]:
            batch.odd.append((len(batch.pieces) - PIECES, index_head(position, batch.store_time)))
        return PutResult(_OK, position, queue_offset, batch.store_time, size)

    def _write(self, batch: _Batch, results: list[PutResult]) -> PutResult | None:
        """Write what was placed, by one write. If the disk does not take it, all of it is undone.

        Returns the common result in that case.
        """
        if not batch.pieces:
            return None
        try:
            self._log.write(b"".join(batch.pieces))
        except OSError as exc:
            # No reader has run in between, so nobody has seen these entries.
            for queue, mark in batch.queues.items():
                queue.reset(mark)
            failed = PutResult(PutStatus.UNKNOWN_ERROR, error=f"cannot write the commit log: {exc}")
            for number in range(batch.first_result, len(results)):
                if results[number].status is _OK:
                    results[number] = failed
            return failed
        self.last_timestamp = batch.store_time
        self.touched |= batch.queues
        if self._index is not None:
            batch.index_in(self._index)
        return None

    def _measure(self, queue: ConsumeQueue, records: Sequence[MessageRecord]) -> tuple[int, bytes]:
        """The bytes that `records` take in the log, and the topic field of each. MessageRefused beyond a limit."""
        topic_field = queue.topic_field or self._long_topic(queue.topic)
        total = 0
        for record in records:
            body, properties = len(record.body), len(record.properties)
            if body > self.max_message_size:
                raise MessageRefused(f"the body has {body} bytes, at most {self.max_message_size} are allowed")
            if properties > props.MAX_LENGTH:
                raise MessageRefused(f"the properties have {properties} bytes, at most {props.MAX_LENGTH} are allowed")
            hosts = len(record.born_host) + len(record.store_host)
            total += _HOSTLESS_SIZE + hosts + body + len(topic_field) + properties
        if total > self.max_message_size + _OVERHEAD or total + BLANK_SIZE > self._log.file_size:
            raise MessageRefused(f"{total} bytes are too much for one write to this store")
        return total, topic_field

    def _long_topic(self, topic: str) -> bytes:
        """The topic field of a version 2 record, for topics too long for version 1."""
        size = len(topic.encode())
        limit = MAX_RETRY_TOPIC_LENGTH if is_retry_topic(topic) else MAX_TOPIC_LENGTH
        if size > limit:
            raise MessageRefused(f"the topic has {size} bytes, at most {limit} are allowed")
        if self._compatible_49:
            raise MessageRefused(
                f"a topic of {size} bytes would end the log of RocketMQ 4.9 (storeCompatible49 is set)"
            )
        return TOPIC_LENGTH[MAGIC_V2].pack(size) + topic.encode()


def _with_hosts(sys_flag: int, born_host: bytes, store_host: bytes) -> int:
    """`sys_flag` with the bits of these hosts. MessageRefused if one is not a host."""
    for host in (born_host, store_host):
        if len(host) not in _HOST_LENGTHS:
            raise MessageRefused(f"a host of {len(host)} bytes")
    return sysflag.with_hosts(sys_flag, born_host, store_host)


class _Batch:
    """One write: its bytes, and the queues as they were before it."""

    __slots__ = ("first_result", "odd", "pieces", "queues", "runs", "store_time")

    def __init__(self, first_result: int, store_time: int) -> None:
        self.first_result = first_result
        self.store_time = store_time
        self.pieces: list[bytes] = []
        self.queues: dict[ConsumeQueue, tuple[int, int, int]] = {}
        # Where records begin whose head is replaced for the index; None leaves the record out.
        self.odd: list[tuple[int, bytes | None]] = []
        # Which pieces are the records of a run, and what the index needs of them.
        self.runs: list[tuple[int, tuple[bytes, list[bytes], bytes, bytes] | None]] = []

    def index_in(self, index: IndexFiles) -> None:
        """Pass the records on to the index."""
        pieces, runs = self.pieces, self.runs
        for at, head in reversed(self.odd):
            if head is None:
                del pieces[at : at + PIECES]
                runs = [(place - PIECES if place > at else place, parts) for place, parts in runs]
            else:
                pieces[at] = head
        begin = 0
        for at, parts in runs:
            index.add_written(pieces[begin:at])
            if parts is not None:
                index.add_joined(*parts)
            begin = at + 1
        index.add_written(pieces[begin:] if runs else pieces)


def _taken_apart(units: Sequence[Unit | Run]) -> list[Unit]:
    apart: list[Unit] = []
    for unit in units:
        apart += [unit] if isinstance(unit, tuple) else unit.units(MessageRecord)
    return apart
