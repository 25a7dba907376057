"""Lookup by key: finds messages by hash in the index, and drops those that only share the hash."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyromq.errors import CorruptRecord, OffsetOutOfRange
from pyromq.protocol import properties as props
from pyromq.protocol.record import decode_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from .index import IndexFiles

_ROUNDS = 3


class KeyQuery(NamedTuple):
    """Messages of `topic` with `key`, stored from `begin` to `end` (ms)."""

    topic: str
    key: str
    begin: int
    end: int

    def fits(self, record: memoryview) -> bool:
        """Whether a record found by hash really has the key."""
        try:
            message = decode_record(record, check_crc=False)
        except CorruptRecord:
            return False
        if message.topic != self.topic:
            return False
        keys = (message.find_property(props.KEYS) or "").split(props.KEY_SEPARATOR)
        return self.key in keys or self.key == message.find_property(props.UNIQ_KEY)


def find_by_key(
    index: IndexFiles, message_at: Callable[[int], memoryview], query: KeyQuery, limit: int
) -> list[memoryview]:
    """The newest messages that `query` asks for, `limit` at most, oldest first."""
    seen: set[int] = set()
    found: list[memoryview] = []
    # Other keys may have the same hash; then look at older entries, too.
    for _ in range(_ROUNDS):
        fresh = {*index.find(query.topic, query.key, limit + len(seen), query.begin, query.end)} - seen
        records = []
        for offset in sorted(fresh):
            try:
                record = message_at(offset)
            except OffsetOutOfRange:
                continue  # cleaned up since
            if query.fits(record):
                records.append(record)
        found = records[max(0, len(records) + len(found) - limit) :] + found
        if not fresh or len(found) >= limit:
            break
        seen |= fresh
    return found
