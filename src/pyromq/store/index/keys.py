"""Extracts the keys of many records at once, and hashes them.

A record is indexed under its UNIQ_KEY and under each blank-separated part of its KEYS. What the index keeps of a key is
Java's hash of `topic#key` (pyromq.protocol.hashing); for one key that takes 2.6 µs, here a tenth of it:

- The properties of all records are laid out in one buffer, every item between two U+0002. Names are compared eight
  bytes at a time, so no string is split.
- hash(`topic#` + key) = hash(`topic#`) * 31^n + hash(key) for a key of n UTF-16 units, modulo 2^32. The first hash is
  kept per topic; the second is the product of a matrix, one key in a row, with the powers of 31.

Where it is compiled, a loop over the bytes does the same in a quarter of that; it leaves keys beyond ASCII to this one.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyromq import _native
from pyromq.protocol.hashing import java_hash
from pyromq.protocol.properties import MAX_LENGTH, decode
from pyromq.protocol.record import HEAD_LAYOUTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_compiled = _native.module("keys")

# Longer keys, and keys with characters beyond ASCII, are hashed one by one.
_LONGEST = 64
# Rows of the matrix at a time: one record may carry sixteen thousand keys.
_ROWS = 4096

# The fields needed from heads with IPv4 hosts.
HEAD = HEAD_LAYOUTS[0].dtype("physical_offset", "store_timestamp")

_SEPARATOR = 2
_BLANK = 32
_FRONT = bytes(_LONGEST)  # so that a row, which ends where its key ends, never begins before the buffer
_BACK = b"\x02" + bytes(8)  # so that eight bytes can be read behind the last separator
_UNIQ_KEY = np.uint64(int.from_bytes(b"UNIQ_KEY", "little"))
_KEYS = np.uint64(int.from_bytes(b"KEYS\x01", "little"))
_KEYS_AT = 6  # from a separator to the value behind it
_UNIQUE_LONGER = 4
_U, _K = b"UK"
_FIVE_BYTES = np.uint64(0xFF_FFFF_FFFF)

_POWERS = np.cumprod(np.concatenate(([1], np.full(MAX_LENGTH, 31))), dtype=np.uint32)  # 31^0, 31^1, …
_FALLING_POWERS = _POWERS[_LONGEST - 1 :: -1].copy()
# Row n keeps the last n bytes of a row of keys.
_MASKS = np.where(np.arange(_LONGEST) >= _LONGEST - np.arange(_LONGEST + 1)[:, None], 0xFF, 0).astype(np.uint8)


def key_hashes(
    topics: Sequence[str | bytes], properties: Sequence[bytes]
) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """The index hash of every key, and which record it belongs to; in the order in which they are to be indexed.

    `topics` are text, or fields as in a record, prefixed with the length. `properties` are the stored strings;
    any bytes are allowed. Of equal names the last one with a value counts, as `properties.parse` has it.
    """
    sizes = np.fromiter(map(len, properties), np.intp, len(properties))
    return joined_key_hashes(topics, b"\x02%b" % b"\x02".join(properties), sizes)


def joined_key_hashes(
    topics: Sequence[str | bytes], properties: bytes | bytearray, sizes: NDArray[np.intp]
) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """As `key_hashes`, for joined properties of these `sizes`, each after a separator."""
    if _compiled is not None:
        found = _compiled.joined_key_hashes(list(topics), properties, sizes, _prefix_hash)
        if found is not None:
            return np.frombuffer(found[0], np.int64), np.frombuffer(found[1], np.int64)
    return plain_key_hashes(topics, properties, sizes)


def plain_key_hashes(
    topics: Sequence[str | bytes], properties: bytes | bytearray, sizes: NDArray[np.intp]
) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    raw = b"".join((_FRONT, properties, _BACK))
    keys = _find_keys(raw, sizes)
    lengths = keys.ends - keys.starts
    hashes = np.empty(len(lengths), np.uint32)
    for at in range(0, len(lengths), _ROWS):
        rows = slice(at, at + _ROWS)
        hashes[rows] = _hash_rows(raw, keys.ends[rows], lengths[rows])
    for odd in _odd_keys(raw, keys):
        units = np.frombuffer(decode(raw[keys.starts[odd] : keys.ends[odd]]).encode("utf-16-le"), "<u2")
        lengths[odd] = len(units)
        hashes[odd] = (units * _POWERS[len(units) - 1 :: -1]).sum(dtype=np.uint32)
    hashes += _prefix_hashes(topics, keys.records) * _POWERS[lengths]
    # -2^31 has no positive twin: its absolute value is itself, and becomes 0.
    return np.maximum(np.abs(hashes.view(np.int32)), 0).astype(np.int64), keys.records


class _Found(NamedTuple):
    """Where keys start and end in the buffer, and which record each belongs to."""

    starts: NDArray[np.intp]
    ends: NDArray[np.intp]
    records: NDArray[np.intp]

    def only(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> _Found:
        return _Found(self.starts[which], self.ends[which], self.records[which])


def _find_keys(raw: bytes, sizes: NDArray[np.intp]) -> _Found:
    """The keys in `raw`, which holds records of these sizes: by record, UNIQ_KEY before KEYS."""
    octets = np.frombuffer(raw, np.uint8)
    separators = (octets == _SEPARATOR).nonzero()[0]
    initials = octets[separators[:-1] + 1]
    items = ((initials == _K) | (initials == _U)).nonzero()[0]
    # The eight bytes behind a separator as a number, wherever they lie.
    words = np.ndarray((len(raw) - 7,), "<u8", raw, 0, (1,))[separators[items] + 1]
    is_unique = words == _UNIQ_KEY
    is_key = is_unique | ((words & _FIVE_BYTES) == _KEYS)
    if not is_key.all():
        items, is_unique = items[is_key], is_unique[is_key]
    starts = separators[items] + (is_unique * _UNIQUE_LONGER + _KEYS_AT)
    record_ends = (sizes + 1).cumsum()
    values = _Found(starts, separators[items + 1], record_ends.searchsorted(starts - len(_FRONT)))

    # Not a longer name, and not an empty value.
    good = (octets[starts - 1] == 1) & (starts < values.ends)
    if not good.all():
        values, is_unique = values.only(good), is_unique[good]
    place = values.records * 2 + ~is_unique
    order = place.argsort(kind="stable")
    place = place[order]
    last = place[1:] != place[:-1]
    if not last.all():  # a name comes twice
        last = np.append(last, True)
        order, place = order[last], place[last]
    values = values.only(order)
    return _split(octets, values, place & 1) if b" " in raw else values


def _split(octets: NDArray[np.uint8], values: _Found, may_split: NDArray[np.intp]) -> _Found:
    """Split the values that allow it at blanks; empty parts are left out."""
    blanks = (octets == _BLANK).nonzero()[0]
    first = blanks.searchsorted(values.starts)
    inside = (blanks.searchsorted(values.ends) - first) * may_split
    if not inside.any():
        return values
    parts = values.only(np.repeat(np.arange(len(inside)), inside + 1))
    # The ends of all parts but the last of each value are blanks, and so are the starts of all but the first.
    is_last = np.zeros(len(parts.starts), np.bool_)
    is_last[(inside + 1).cumsum() - 1] = True
    ranges = np.arange(inside.sum()) - np.repeat(inside.cumsum() - inside, inside) + np.repeat(first, inside)
    parts.ends[~is_last] = blanks[ranges]
    parts.starts[np.append(False, ~is_last[:-1])] = blanks[ranges] + 1
    return parts.only(parts.starts < parts.ends)


def _hash_rows(raw: bytes, ends: NDArray[np.intp], lengths: NDArray[np.intp]) -> NDArray[np.uint32]:
    """The hashes of ASCII keys of at most _LONGEST bytes; arbitrary numbers for other keys."""
    width = min(int(lengths.max()), _LONGEST)
    # One row per position of the buffer, each overlapping the next; only those of the keys are copied.
    rows = np.ndarray((len(raw) - width + 1, width), np.uint8, raw, 0, (1, 1))[ends - width]
    rows &= _MASKS[np.minimum(lengths, _LONGEST), _LONGEST - width :]
    # Not `@` on doubles, which is faster and wakes a thread for each core.
    hashes: NDArray[np.uint32] = np.einsum("ij,j->i", rows, _FALLING_POWERS[_LONGEST - width :], dtype=np.uint32)
    return hashes


def _odd_keys(raw: bytes, keys: _Found) -> list[int]:
    """The keys that `_hash_rows` cannot hash."""
    odd = keys.ends - keys.starts > _LONGEST
    if not raw.isascii():
        # How many bytes beyond ASCII lie before each position.
        beyond = np.append(0, (np.frombuffer(raw, np.int8) < 0).cumsum())
        odd |= beyond[keys.starts] != beyond[keys.ends]
    return odd.nonzero()[0].tolist()


def _prefix_hashes(topics: Sequence[str | bytes], records: NDArray[np.intp]) -> NDArray[np.uint32] | np.uint32:
    """The hash of `topic#` for each record's topic; a single one if all have the same topic."""
    known = {topic: _prefix_hash(topic) for topic in set(topics)}
    if len(known) == 1:
        return known[topics[0]]
    return np.fromiter(map(known.__getitem__, topics), np.uint32, len(topics))[records]


@functools.lru_cache(maxsize=1024)
def _prefix_hash(topic: str | bytes) -> np.uint32:
    if isinstance(topic, bytes):
        # One byte of length, two from 128 on: then the first of them is zero.
        topic = topic[1 if topic[0] else 2 :].decode()
    return np.uint32(java_hash(topic + "#") & 0xFFFFFFFF)
