"""The bits of sysFlag: in messages, in pulls and in topics, which each have their own.

Plain integers, because the append path tests them for every message. In a message:

    0x001   body compressed
    0x002   topic of several tags per message
    0x00C   transaction type: 0 none, 4 prepared, 8 committed, 12 rolled back
    0x010   born host is IPv6 (20 bytes instead of 8)
    0x020   store host is IPv6
    0x040   inner batch that a consumer unwraps (5.x)
    0x080   inner batch: one record holds many messages (5.x)
    0x700   compression type << 8: 0 or 3 zlib, 1 LZ4 frame, 2 zstd

Bits without a meaning here are user data of some peer and are passed on. In a pull:

    1    the header has an offset to commit
    2    hold the pull until a message comes
    4    the header has the subscription
    8    the subscription is a class filter (4.x)
    16   a lite pull: a PullConsumer's, which brokers count apart

In a topic: 1 is a unit's, 2 has subscribers in a unit.
"""

from __future__ import annotations

COMPRESSED = 0x001
MULTI_TAGS = 0x002

TRANSACTION_MASK = 0x00C
NOT_TRANSACTION = 0x000
PREPARED = 0x004
COMMIT = 0x008
ROLLBACK = 0x00C

BORN_HOST_V6 = 0x010
STORE_HOST_V6 = 0x020
HOSTS_MASK = BORN_HOST_V6 | STORE_HOST_V6
HOSTS_SHIFT = 4

NEED_UNWRAP = 0x040
INNER_BATCH = 0x080

COMPRESSION_MASK = 0x700
COMPRESSION_SHIFT = 8
LZ4 = 1
ZSTD = 2
ZLIB = 3

PULL_COMMIT_OFFSET = 1
PULL_SUSPEND = 2
PULL_SUBSCRIPTION = 4
PULL_CLASS_FILTER = 8
PULL_LITE = 16

TOPIC_UNIT = 1
TOPIC_UNIT_SUBSCRIBED = 2

# A host is its address (4 or 16 bytes) and an i32 port.
HOST_V4_LENGTH = 8
HOST_V6_LENGTH = 20


def compression_type(sys_flag: int) -> int:
    """How the body is compressed, if it is. Writers before 4.9.7 left the type 0 and meant zlib."""
    return (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT or ZLIB


def with_compression(sys_flag: int, kind: int) -> int:
    """`sys_flag` of a body compressed as `kind`; zlib is spelt 0x301, as by 4.9.7 and later."""
    return sys_flag & ~COMPRESSION_MASK | COMPRESSED | kind << COMPRESSION_SHIFT


def without_compression(sys_flag: int) -> int:
    """`sys_flag` of the same message with a plain body."""
    return sys_flag & ~(COMPRESSED | COMPRESSION_MASK)


def transaction_type(sys_flag: int) -> int:
    """NOT_TRANSACTION, PREPARED, COMMIT or ROLLBACK."""
    return sys_flag & TRANSACTION_MASK


def with_transaction_type(sys_flag: int, kind: int) -> int:
    return sys_flag & ~TRANSACTION_MASK | kind


def born_host_length(sys_flag: int) -> int:
    return HOST_V6_LENGTH if sys_flag & BORN_HOST_V6 else HOST_V4_LENGTH


def store_host_length(sys_flag: int) -> int:
    return HOST_V6_LENGTH if sys_flag & STORE_HOST_V6 else HOST_V4_LENGTH


def with_hosts(sys_flag: int, born_host: bytes, store_host: bytes) -> int:
    """`sys_flag` whose host bits tell the truth about these two hosts.

    A sender's own bits are dropped: a record whose bits and host lengths disagree cannot be read back, and ends
    the commit log for the next start.
    """
    sys_flag &= ~HOSTS_MASK
    if len(born_host) == HOST_V6_LENGTH:
        sys_flag |= BORN_HOST_V6
    if len(store_host) == HOST_V6_LENGTH:
        sys_flag |= STORE_HOST_V6
    return sys_flag
