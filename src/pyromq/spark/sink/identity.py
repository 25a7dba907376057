"""The identity of sent messages: the same in every attempt, so that a copy can be told from a new message.

    SPARK_TXN   query : batch : partition : sequence      a property of its own
    UNIQ_KEY    digest of query:batch:partition, 8 bytes | sequence, 2 bytes | 0, 4 bytes | sequence, 2 bytes

The second is the id that consumers and tools show. It is as long as any other, and zero where others have the time (ms
of the month): tools that look for an id begin at that time, and with 0 they find it all month. With a `dedupKey` its 12
bytes are a digest of that instead, which does not depend on the order of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from pyromq.client.identity import make_uniq_key
from pyromq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

SPARK_TXN = "SPARK_TXN"
MAX_SEQUENCE = 1 << 32

_NO_TIME = "00000000"
_SALT = b"dedupKey"


@dataclass(frozen=True, slots=True)
class Identity:
    """A task's part of a stream's batch, or of a named job, where `query` is the `jobId` and `batch` is 0."""

    query: str
    batch: int
    partition: int

    @property
    def prefix(self) -> str:
        """The beginning of the SPARK_TXN of each of its messages."""
        return f"{self.query}:{self.batch}:{self.partition}:"

    def batch_of(self, txn: str) -> int | None:
        """The batch of a message of the same query and partition, by its SPARK_TXN; None for any other message."""
        # A jobId may have colons.
        query, *rest = txn.rsplit(":", 3)
        if query != self.query or len(rest) != 3 or rest[1] != str(self.partition):
            return None
        return int(rest[0]) if rest[0].isascii() and rest[0].isdecimal() else None

    def uniq_keys(self) -> Callable[[int], str]:
        """The ids of its messages by sequence."""
        digest = blake2b(self.prefix.encode(), digest_size=8).hexdigest().upper()
        return lambda sequence: f"{digest}{sequence >> 16 & 0xFFFF:04X}{_NO_TIME}{sequence & 0xFFFF:04X}"


def key_of(dedup_key: str) -> str:
    """The id of the message with this `dedup_key`, in any query, batch or partition."""
    digest = blake2b(dedup_key.encode("utf-8", "replace"), digest_size=12, person=_SALT).hexdigest().upper()
    return f"{digest[:20]}{_NO_TIME}{digest[20:]}"


def any_key(_sequence: int) -> str:
    """The id of a message of an unnamed job: new in every attempt."""
    return make_uniq_key()


def of_task(job_id: str | None, *, streams: bool) -> Identity | None:
    """The identity of the task running here; None for an unnamed job."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise ConfigError("a sink can write only inside a Spark task")
    if not streams:
        return None if job_id is None else Identity(job_id, 0, context.partitionId())
    query, batch = context.getLocalProperty("sql.streaming.queryId"), context.getLocalProperty("streaming.sql.batchId")
    if query is None or batch is None:
        raise ConfigError("Spark does not say which query and batch this task belongs to")
    return Identity(query, int(batch), context.partitionId())


def refuse_speculation() -> None:
    """Raise ConfigError if a second attempt of this task may run in parallel: each would miss what the other sends.

    Spark passes a session's settings to its tasks, and only there a sink can see them.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is not None and (context.getLocalProperty("spark.speculation") or "").lower() == "true":
        raise ConfigError(
            "guarantee=effectively-once does not work with spark.speculation, which may run a task twice at once; "
            "nothing was sent"
        )
