"""Turns Arrow batches into messages: one per row, or the reason why a row cannot be sent.

Values are taken from the columns as whole lists, and a message's properties are made as one text, as the client does:
the only object per row is the one that is sent.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from pyromq.client.names import check_topic_for_send
from pyromq.errors import InvalidMessage
from pyromq.protocol import properties as props

from .identity import MAX_SEQUENCE, SPARK_TXN, Identity, any_key, key_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..options import SinkOptions
    from .columns import SinkColumns

BAD_ROW = "SPARK_BAD_ROW"  # in a dead letter: why
BAD_ROW_TOPIC = "SPARK_BAD_ROW_TOPIC"  # its intended topic

# Names that a user may not set; dropped from rows that were read from a topic.
RESERVED = props.RESERVED | {SPARK_TXN}
# Also dropped from such rows: what brokers and the APIs of clients set for one delivery.
NOT_COPIED = RESERVED | {
    props.TRANSACTION_ID,
    props.TRANSACTION_CHECK_TIMES,
    props.CHECK_IMMUNITY_TIME_IN_SECONDS,
    props.START_DELIVER_TIME,
    props.ORIGIN_GROUP,
    props.INNER_MULTI_DISPATCH,
    props.INNER_NUM,
    props.INNER_BASE,
}

_MILLISECONDS = pa.timestamp("ms", tz="UTC")
_LEAST, _MOST = -(2**31), 2**31 - 1
_SHOWN = 80  # characters of a value that an error quotes
_DEAD_LETTER_BODY = 64 << 10  # bytes kept of a body that is too large


class OutRow(msgspec.Struct, gc=False):
    """A message to send. `properties` is the text of all of them; `number` counts the rows of a task."""

    number: int
    topic: str
    body: bytes
    properties: str
    key: str
    flag: int = 0
    shard: str | None = None
    queue: tuple[str | None, int] | None = None  # required queue: broker, if given, and number
    is_delayed: bool = False

    def label(self) -> str:
        """How an error names it."""
        parsed = props.parse(self.properties)
        return _label(self.number, parsed.get(props.KEYS) or parsed.get(props.SHARDING_KEY))


class BadRow(msgspec.Struct):
    """A row that cannot become a message or that brokers refuse, with what is needed to keep it elsewhere."""

    number: int
    reason: str
    topic: str | None
    body: bytes | None
    keys: str | None = None
    tags: str | None = None
    properties: dict[str, str] = {}
    other_key: str | None = None  # names it if it has no keys
    is_refused: bool = False  # by a broker

    @classmethod
    def refused(cls, row: OutRow, reason: str) -> BadRow:
        """A message that a broker refused."""
        parsed = props.parse(row.properties)
        users = {name: value for name, value in parsed.items() if name not in RESERVED}
        keys, tags, shard = (parsed.get(name) for name in (props.KEYS, props.TAGS, props.SHARDING_KEY))
        return cls(row.number, reason, row.topic, row.body, keys, tags, users, shard, is_refused=True)

    def label(self) -> str:
        return _label(self.number, self.keys or self.other_key)

    def error(self) -> InvalidMessage:
        """What a task fails with."""
        where = f" to {self.topic}" if self.topic else ""
        error = InvalidMessage(
            f"{self.label()}{where}: {self.reason}; onBadRow=skip or dlq:<topic> continues without it"
        )
        error.topic = self.topic or ""
        return error


class RowsOut:
    """The messages of one task. Counts the rows: their numbers are part of their identity."""

    def __init__(
        self, columns: SinkColumns, options: SinkOptions, identity: Identity | None, namespace: str | None = None
    ) -> None:
        self._columns = columns
        self._options = options
        self._number = 0
        self._key_of = any_key if identity is None else identity.uniq_keys()
        wait = f"\x02{props.WAIT}\x01{'true' if options.wait_store else 'false'}"
        # What all messages have in common, before and after the row number.
        self._head = wait if identity is None else f"{wait}\x02{SPARK_TXN}\x01{identity.prefix}"
        self._is_numbered = identity is not None
        self._tail = f"\x02{props.INSTANCE_ID}\x01{namespace}" if namespace else ""
        self._good_topics: set[str] = set()

    def of(self, batch: pa.RecordBatch) -> Iterator[OutRow | BadRow]:
        """The messages of a batch, in the order of its rows."""
        if self._number + batch.num_rows > MAX_SEQUENCE:
            raise InvalidMessage(f"a task cannot send more than {MAX_SEQUENCE} rows: their ids would repeat")
        for values in zip(*self._values(batch), strict=False):
            number = self._number
            self._number = number + 1
            try:
                yield self._row(number, *values)
            except _Unfit as exc:
                topic, body, tags, keys, own, _flag, shard, _level, _time, dedup_key = values[:10]
                yield BadRow(number, str(exc), topic, body, keys, tags, _fit(own), dedup_key or shard)

    def dead_letter(self, bad: BadRow, topic: str) -> OutRow:
        """The dead letter of a bad row: as much of it as can be sent, and the reason."""
        most = self._options.max_message_bytes
        body = bad.body or bad.reason.encode()
        if bad.is_refused or len(body) > most:
            body = body[: min(_DEAD_LETTER_BODY, most)]
        own = {BAD_ROW: bad.reason, **({BAD_ROW_TOPIC: bad.topic} if bad.topic else {}), **_fit(bad.properties.items())}
        text = _users_text(own, _fit_text(bad.tags), _fit_text(bad.keys), None)
        key, properties = self._properties(bad.number, text, None)
        if _utf8_length(properties) > props.MAX_LENGTH:
            key, properties = self._properties(bad.number, _users_text({BAD_ROW: bad.reason}, None, None, None), None)
        return OutRow(bad.number, topic, body, properties, key)

    # Columns

    def _values(self, batch: pa.RecordBatch) -> Iterator[Any]:
        """Lists of values, in the order of the parameters of `_row`; the first ends with the batch."""
        count = batch.num_rows
        topic = self._options.topic
        yield [topic] * count if topic is not None else self._list(batch, "topic", pa.string())
        yield self._list(batch, "body", pa.binary())
        yield self._list(batch, "tags", pa.string())
        yield self._keys(batch)
        yield self._maps(batch)
        yield self._list(batch, "flag", pa.int64())
        yield self._list(batch, "shardingKey", pa.string())
        yield self._list(batch, "delayLevel", pa.int64())
        yield self._times(batch)
        yield self._list(batch, "dedupKey", pa.string())
        yield self._list(batch, "queueId", pa.int64())
        yield self._list(batch, "brokerName", pa.string())
        yield self._copied(batch)

    def _list(self, batch: pa.RecordBatch, name: str, kind: pa.DataType) -> Any:
        place = self._columns.places.get(name)
        return repeat(None) if place is None else batch.column(place).cast(kind).to_pylist()

    def _keys(self, batch: pa.RecordBatch) -> Any:
        place = self._columns.places.get("keys")
        if place is None or not pa.types.is_nested(batch.column(place).type):
            return self._list(batch, "keys", pa.string())
        lists = batch.column(place).to_pylist()
        return [each and props.KEY_SEPARATOR.join([key for key in each if key]) for each in lists]

    def _maps(self, batch: pa.RecordBatch) -> Any:
        """The properties of each row as pairs, or None."""
        place = self._columns.places.get("properties")
        if place is None:
            return repeat(None)
        column = batch.column(place)
        names, values = column.keys.to_pylist(), column.items.to_pylist()
        ends = column.offsets.to_pylist()
        pairs = list(zip(names, values, strict=True))
        found: list[Any] = [pairs[ends[row] : ends[row + 1]] for row in range(batch.num_rows)]
        if column.null_count:
            found = [each if valid else None for each, valid in zip(found, column.is_valid().to_pylist(), strict=True)]
        return found

    def _times(self, batch: pa.RecordBatch) -> Any:
        """ms since 1970."""
        place = self._columns.places.get("deliverTimestamp")
        if place is None:
            return repeat(None)
        column = batch.column(place)
        if pa.types.is_timestamp(column.type):
            column = column.cast(_MILLISECONDS, safe=False)
        return column.cast(pa.int64()).to_pylist()

    def _copied(self, batch: pa.RecordBatch) -> Any:
        """Whether rows were read from a topic: then they carry what clients and brokers had set."""
        known = [batch.column(place) for place in self._columns.stored]
        if not known:
            return repeat(False)
        found = known[0].is_valid()
        for column in known[1:]:
            found = pc.or_(found, column.is_valid())
        return found.to_pylist()

    # Rows

    def _row(
        self,
        number: int,
        topic: str | None,
        body: bytes | None,
        tags: str | None,
        keys: str | None,
        own: list[tuple[str, str | None]] | None,
        flag: int | None,
        shard: str | None,
        delay_level: int | None,
        deliver_ms: int | None,
        dedup_key: str | None,
        queue_id: int | None,
        broker_name: str | None,
        is_copy: bool,
    ) -> OutRow:
        if topic not in self._good_topics:
            self._check_topic(topic)
        if not body:
            raise _Unfit("its body is null" if body is None else "its body is empty")
        if len(body) > self._options.max_message_bytes:
            raise _Unfit(f"its body has {len(body)} bytes; at most {self._options.max_message_bytes} can be sent")
        if flag is not None and not _LEAST <= flag <= _MOST:
            raise _Unfit(f"its flag {flag} is not a 32-bit integer")
        mine = _own_properties(own, is_copy) if own else None
        if mine and not shard:
            # From a copy, or set by the user: it means the same.
            shard = mine.get(props.SHARDING_KEY)
        text = _users_text(mine, tags, keys, shard) if mine or tags or keys or shard else ""
        is_delayed = False
        if delay_level or deliver_ms is not None:
            text += _when(delay_level, deliver_ms)
            is_delayed = True
        key, properties = self._properties(number, text, dedup_key)
        if len(properties) > props.MAX_LENGTH or not properties.isascii():
            size = _utf8_length(properties)
            if size > props.MAX_LENGTH:
                raise _Unfit(f"its properties take {size} bytes; at most {props.MAX_LENGTH} can be sent")
        queue = None
        if queue_id is not None:
            if queue_id < 0:
                raise _Unfit(f"its queueId is {queue_id}")
            queue = (broker_name, queue_id)
        return OutRow(number, topic or "", body, properties, key, flag or 0, shard, queue, is_delayed)

    def _properties(self, number: int, users: str, dedup_key: str | None) -> tuple[str, str]:
        key = self._key_of(number) if not dedup_key else key_of(dedup_key)
        if self._is_numbered:
            return key, f"{props.UNIQ_KEY}\x01{key}{self._head}{number}{users}{self._tail}"
        return key, f"{props.UNIQ_KEY}\x01{key}{self._head}{users}{self._tail}"

    def _check_topic(self, topic: str | None) -> None:
        if topic is None:
            raise _Unfit("its topic is null")
        try:
            check_topic_for_send(topic)
        except InvalidMessage as exc:
            raise _Unfit(str(exc)) from None
        self._good_topics.add(topic)


class _Unfit(Exception):
    """Why a row cannot become a message."""


def _own_properties(own: list[tuple[str, str | None]], is_copy: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in own:
        if name in RESERVED or is_copy:
            if is_copy and name in NOT_COPIED:
                continue
            if name in RESERVED:
                raise _Unfit(f"property {name} is reserved and cannot be set")
        if not name.strip() or not value or not value.strip():
            raise _Unfit(f"property {name[:_SHOWN]!r} has no name, or no value")
        found[name] = value
    return found


def _users_text(own: dict[str, str] | None, tags: str | None, keys: str | None, shard: str | None) -> str:
    """The user's properties as text, with a separator before every item."""
    items = {**own} if own else {}
    if tags:
        items[props.TAGS] = tags
    if keys:
        items[props.KEYS] = keys
    if shard:
        items[props.SHARDING_KEY] = shard
    text = "".join([f"\x02{name}\x01{value}" for name, value in items.items()])
    if text.count("\x01") != len(items) or text.count("\x02") != len(items):
        raise _Unfit("its properties, tags or keys contain U+0001 or U+0002")
    return text


def _when(delay_level: int | None, deliver_ms: int | None) -> str:
    if delay_level and deliver_ms is not None:
        raise _Unfit("it has both a delayLevel and a deliverTimestamp; only one is allowed")
    if deliver_ms is not None:
        if deliver_ms < 0:
            raise _Unfit("its deliverTimestamp is before 1970")
        return f"\x02{props.TIMER_DELIVER_MS}\x01{deliver_ms}"
    if delay_level is None or delay_level < 0:
        raise _Unfit(f"its delayLevel is {delay_level}")
    return f"\x02{props.DELAY}\x01{delay_level}"


def _fit(own: Any) -> dict[str, str]:
    """The valid properties of a bad row."""
    return {
        name: value
        for name, value in own or ()
        if name.strip() and value and value.strip() and name not in RESERVED and _fit_text(name + value) is not None
    }


def _fit_text(text: str | None) -> str | None:
    return None if text is None or "\x01" in text or "\x02" in text else text


def _utf8_length(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _label(number: int, keys: str | None) -> str:
    return f"row {number} of the task, keys {keys[:_SHOWN]!r}" if keys else f"row {number} of the task, without keys"
