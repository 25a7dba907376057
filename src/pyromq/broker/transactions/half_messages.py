"""Half messages: messages of open transactions (docs/spec/broker.md 5).

Each lies in the half topic, where nobody consumes it, and keeps its real topic and queue in its properties. Whenever
its producer is asked about it, it is stored again at the end, as a copy that counts how often it was asked; so the
half queue is read from the front and never twice. A copy names its origin, the offset that the message
got when it was sent, since its sender knows only that.

Only rules: they take the time as an argument and return the record to store.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pyromq.protocol import properties as props
from pyromq.protocol import sysflag
from pyromq.protocol.header import parse_int
from pyromq.protocol.names import CHECKED_TOO_OFTEN_TOPIC, HALF_TOPIC

from ..timers.delay_levels import restored

if TYPE_CHECKING:
    from pyromq.protocol.headers import EndTransaction
    from pyromq.protocol.record import MessageRecord

# Properties that the broker writes into half messages. A sender may have copied them from a consumed message.
_BOOKKEEPING = (props.TRANSACTION_CHECK_TIMES, props.TRAN_PREPARED_QUEUE_OFFSET)
# Raw bytes that every copy contains, and hardly any other message.
COPY_MARK = f"{props.TRAN_PREPARED_QUEUE_OFFSET}{props.NAME_VALUE_SEPARATOR}".encode()


def is_half(properties: dict[str, str], reconsume_times: int) -> bool:
    """Whether a sent message is a half message.

    Not if a consumer sends it back for a retry: then it only still has the properties of the consumed message.
    """
    if properties.get(props.TRAN_MSG, "").lower() != "true":
        return False
    return not (reconsume_times > 0 and _number(properties.get(props.DELAY)) > 0)


def prepared(record: MessageRecord, properties: dict[str, str]) -> MessageRecord:
    """`record`, whose properties are `properties`, as a half message."""
    kept = properties | {props.REAL_TOPIC: record.topic, props.REAL_QID: str(record.queue_id)}
    for name in _BOOKKEEPING:
        kept.pop(name, None)
    return _in_half_topic(record, kept)


def renewed(half: MessageRecord, store_host: bytes, check_times: int) -> MessageRecord:
    """The next copy of a half message, after its producer was asked `check_times` times."""
    kept = _properties(half) | {props.TRAN_PREPARED_QUEUE_OFFSET: str(origin(half))}
    if check_times:
        kept[props.TRANSACTION_CHECK_TIMES] = str(check_times)
    return replace(_in_half_topic(half, kept), store_host=store_host)


def given_up(half: MessageRecord, store_host: bytes) -> MessageRecord:
    """The message as operators find it after the broker gave up asking."""
    return replace(half, topic=CHECKED_TOO_OFTEN_TOPIC, queue_id=0, store_host=store_host)


def resumed(record: MessageRecord, store_host: bytes) -> MessageRecord:
    """A given-up message, or any other, as a new half message."""
    kept = {props.REAL_TOPIC: record.topic, props.REAL_QID: str(record.queue_id)} | _properties(record)
    kept.pop(props.TRAN_PREPARED_QUEUE_OFFSET, None)
    kept[props.TRANSACTION_CHECK_TIMES] = "0"
    return replace(_in_half_topic(record, kept), store_host=store_host, prepared_transaction_offset=0)


def committed(half: MessageRecord, store_host: bytes) -> MessageRecord | None:
    """The message that consumers see; None if the half message names no topic."""
    message = restored(half)
    if message is None:
        return None
    return replace(
        message,
        sys_flag=sysflag.with_transaction_type(half.sys_flag, sysflag.COMMIT),
        store_host=store_host,
        prepared_transaction_offset=half.physical_offset,
    )


def as_sent(half: MessageRecord) -> MessageRecord:
    """The message as its producer knows it, for a check: real topic and queue, place of the half message."""
    return restored(half) or half


def origin(half: MessageRecord) -> int:
    """The offset in the half queue that the message got when it was sent."""
    known = _number(half.find_property(props.TRAN_PREPARED_QUEUE_OFFSET))
    return known if known >= 0 else half.queue_offset


def is_same(one: MessageRecord, other: MessageRecord) -> bool:
    """Whether two half messages are really copies of one message."""
    return (
        origin(one) == origin(other)
        and one.born_timestamp == other.born_timestamp
        and one.find_property(props.UNIQ_KEY) == other.find_property(props.UNIQ_KEY)
        and one.body == other.body
    )


def objection(half: MessageRecord, header: EndTransaction) -> str | None:
    """Why the end of a transaction does not fit the half message it names."""
    if half.find_property(props.PGROUP) != header.producer_group:
        return "The producer group wrong"
    if half.queue_offset != header.tran_state_table_offset:
        return "The transaction state table offset wrong"
    if half.physical_offset != header.commit_log_offset:
        return "The commit log offset wrong"
    return None


def comes_too_late(half: MessageRecord, timeout: int, now: int) -> bool:
    """Whether the producer asked for a quiet period and that is over: then only its answer to a check counts.

    All times are milliseconds.
    """
    text = half.find_property(props.CHECK_IMMUNITY_TIME_IN_SECONDS)
    return text is not None and now - half.born_timestamp > max(_immunity(text, timeout), timeout)


class Verdict(Enum):
    """What to do about an undecided half message."""

    WAIT = "wait"  # too young, and so are all after it
    SPARE = "spare"  # its producer does not want to be asked yet; those after it may
    ASK = "ask"
    GIVE_UP = "give up"


def verdict(half: MessageRecord, now: int, *, timeout: int, check_max: int, kept: int) -> Verdict:
    """What to do about `half`, which is undecided.

    A producer is asked once its message is `timeout` old, or as old as it asked for, and `check_max` times. A message
    older than `kept`, the time after which log files are deleted, is given up before that. All milliseconds.
    """
    age = now - half.born_timestamp
    immunity = half.find_property(props.CHECK_IMMUNITY_TIME_IN_SECONDS)
    if immunity is None and 0 <= age < timeout:
        return Verdict.WAIT
    if check_times(half) >= check_max or age > kept:
        return Verdict.GIVE_UP
    if immunity is not None and age < _immunity(immunity, timeout):
        return Verdict.SPARE
    return Verdict.ASK


def check_times(half: MessageRecord) -> int:
    """How often the producer was asked."""
    return max(0, _number(half.find_property(props.TRANSACTION_CHECK_TIMES), 32))


def _in_half_topic(record: MessageRecord, properties: dict[str, str]) -> MessageRecord:
    return replace(
        record,
        topic=HALF_TOPIC,
        queue_id=0,
        # With these bits set it would get no queue entry, and could not be found.
        sys_flag=sysflag.with_transaction_type(record.sys_flag, sysflag.NOT_TRANSACTION),
        properties=props.encode(props.render(properties)),
    )


def _properties(record: MessageRecord) -> dict[str, str]:
    return props.parse(props.decode(record.properties))


def _immunity(text: str, timeout: int) -> int:
    """Milliseconds during which the producer is not asked, from the message's property in seconds."""
    try:
        seconds = parse_int(64, text)
    except ValueError:
        return timeout
    return timeout if seconds == -1 else seconds * 1000


def _number(text: str | None, bits: int = 64) -> int:
    """The number in `text`, -1 if it is not one."""
    try:
        return -1 if text is None else parse_int(bits, text)
    except ValueError:
        return -1
