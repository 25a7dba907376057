"""The properties of a message: a small text map, kept and sent as one string.

    name U+0001 value U+0002 name U+0001 value …

A reader splits at U+0002 and each item at its first U+0001, drops items with an empty name or value, and lets the last
of equal names win. Whether a U+0002 ends the string depends on the writer (5.x does so, 4.9 and we do not) and means
nothing. On disk and inside batches the string is UTF-8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME_VALUE_SEPARATOR = "\x01"
ITEM_SEPARATOR = "\x02"
MAX_LENGTH = 32767  # bytes of UTF-8: the length field on disk is an i16

# Set through the API of a producer.
KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"  # "false": the sender does not wait for flush and replica
DELAY = "DELAY"  # delay level, 1 is the shortest
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
SHARDING_KEY = "__SHARDINGKEY"
START_DELIVER_TIME = "__STARTDELIVERTIME"
CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"

# Set by clients.
UNIQ_KEY = "UNIQ_KEY"
INSTANCE_ID = "INSTANCE_ID"
TRAN_MSG = "TRAN_MSG"  # "true": a half message
PGROUP = "PGROUP"  # the producer group to ask about a half message
TRANSACTION_ID = "__transactionId__"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
MSG_TYPE = "MSG_TYPE"  # "reply"
ARRIVE_TIME = "ARRIVE_TIME"
CONSUME_START_TIME = "CONSUME_START_TIME"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
REPLAY_OF = "REPLAY_OF"  # ours: the id of the message that was replayed

# Set by brokers.
CLUSTER = "CLUSTER"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
REAL_TOPIC = "REAL_TOPIC"  # where a delayed or half message goes in the end
REAL_QID = "REAL_QID"
RETRY_TOPIC = "RETRY_TOPIC"  # where a message in a retry or dead-letter topic came from
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
ORIGIN_GROUP = "ORIGIN_GROUP"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"
POP_CK = "POP_CK"
POP_CK_OFFSET = "POP_CK_OFFSET"
FIRST_POP_TIME = "1ST_POP_TIME"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
CRC32 = "__CRC32#"

# Passed through: of older or newer peers, without a meaning for us.
BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
BUYER_ID = "BUYER_ID"
CORRECTION_FLAG = "CORRECTION_FLAG"
DUP_INFO = "DUP_INFO"
EXTEND_UNIQ_INFO = "EXTEND_UNIQ_INFO"
MQ2_FLAG = "MQ2_FLAG"
TRANSFER_FLAG = "TRANSFER_FLAG"

# Names a user may not set by hand: the client or the broker would read a meaning into them.
RESERVED = frozenset({
    KEYS, TAGS, WAIT, DELAY, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS, UNIQ_KEY, INSTANCE_ID, TRAN_MSG,
    PGROUP, CORRELATION_ID, REPLY_TO_CLIENT, TTL, MSG_TYPE, CLUSTER, ARRIVE_TIME, PUSH_REPLY_TIME, RETRY_TOPIC,
    REAL_TOPIC, REAL_QID, ORIGIN_MESSAGE_ID, RECONSUME_TIME, MAX_RECONSUME_TIMES, CONSUME_START_TIME, MIN_OFFSET,
    MAX_OFFSET, MSG_REGION, TRACE_ON, BUYER_ID, TRANSFER_FLAG, CORRECTION_FLAG, MQ2_FLAG, POP_CK, POP_CK_OFFSET,
    FIRST_POP_TIME, TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS, TIMER_ROLL_TIMES, TIMER_OUT_MS, TIMER_DEL_UNIQKEY,
    TIMER_DELAY_LEVEL, DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID, BORN_HOST, BORN_TIMESTAMP, DUP_INFO,
    EXTEND_UNIQ_INFO, CRC32, TRAN_PREPARED_QUEUE_OFFSET, INNER_MULTI_QUEUE_OFFSET,
})  # fmt: skip

KEY_SEPARATOR = " "  # KEYS holds several keys in one value


def parse(text: str) -> dict[str, str]:
    """The map a properties string stands for. Any text has one."""
    parsed = {}
    for item in text.split("\x02"):
        name, _, value = item.partition("\x01")
        if name and value:
            parsed[name] = value
    return parsed


def render(properties: Mapping[str, str]) -> str:
    """The string for `properties`, without a U+0002 at its end.

    Raises LocalProtocolError when a separator inside a name or value would make it read as something else.
    An empty value is written although no reader will see it, as RocketMQ does.
    """
    text = "\x02".join([f"{name}\x01{value}" for name, value in properties.items()])
    # One count each instead of looking into every name and value; a value may hold U+0001, a name may not.
    if text.count("\x01") != len(properties) or text.count("\x02") >= (len(properties) or 1):
        for name, value in properties.items():
            if "\x01" in name or "\x02" in name or "\x02" in value:
                raise LocalProtocolError(f"property {name!r} contains U+0001 or U+0002")
    return text


def encode(text: str) -> bytes:
    """A properties string as it lies on disk. Half a surrogate pair, which JSON can carry, becomes `?` as in Java."""
    return text.encode("utf-8", "replace")


def decode(raw: bytes) -> str:
    """The text of a stored properties string. Bytes that are no UTF-8 become U+FFFD as in Java, and lose no item."""
    return raw.decode("utf-8", "replace")


def find(raw: bytes, name: bytes) -> bytes | None:
    """The value of one property in a stored string, as `parse` would give it, without parsing the rest.

    For TAGS among five properties 0.4 µs, `parse(decode(raw))` 1.0 µs (CPython 3.11).
    """
    needle = name + b"\x01"
    end = len(raw)
    # From the back, because the last of equal names wins.
    while (at := raw.rfind(needle, 0, end)) >= 0:
        if at == 0 or raw[at - 1] == 2:
            start = at + len(needle)
            stop = raw.find(b"\x02", start)
            if value := raw[start:stop] if stop >= 0 else raw[start:]:
                return value
        end = at
    return None
