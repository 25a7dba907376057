# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The keys of many records and their hashes, for the index. The twin of `store.index.keys.plain_key_hashes`."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp

cdef enum:
    SEPARATOR = 2
    BLANK = 32
    LEAST = 64


cdef class _Hashes:
    """Hashes, and which record each belongs to."""

    cdef bytearray hashes, records
    cdef Py_ssize_t count, capacity

    def __cinit__(self, Py_ssize_t capacity):
        self.capacity = capacity
        self.hashes, self.records = bytearray(8 * capacity), bytearray(8 * capacity)

    cdef bint add(self, const uint8_t *at, const uint8_t *end, uint32_t value, Py_ssize_t record) except -1:
        """False if the key has characters beyond ASCII."""
        cdef uint8_t beyond = 0
        while at < end:
            beyond |= at[0]
            value = 31 * value + at[0]
            at += 1
        if beyond & 0x80:
            return False
        if self.count == self.capacity:
            self.capacity *= 2
            PyByteArray_Resize(self.hashes, 8 * self.capacity)
            PyByteArray_Resize(self.records, 8 * self.capacity)
        # -2^31 has no positive twin, and becomes 0.
        if <int32_t>value < 0:
            value = 0 - value
        (<int64_t *>PyByteArray_AS_STRING(self.hashes))[self.count] = value if value != 0x80000000 else 0
        (<int64_t *>PyByteArray_AS_STRING(self.records))[self.count] = record
        self.count += 1
        return True


def joined_key_hashes(list topics, const uint8_t[:] properties, const Py_ssize_t[:] sizes, prefix_hash):
    """Hashes and numbers of records as bytes of int64, for joined properties, each after a separator.

    `prefix_hash` gives the hash of a topic with `#` behind it. None if a key is not plain ASCII.
    """
    cdef _Hashes found = _Hashes(max(LEAST, 4 * sizes.shape[0]))
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef const uint8_t *item_end
    cdef const uint8_t *unique
    cdef const uint8_t *unique_end = NULL
    cdef const uint8_t *keys
    cdef const uint8_t *keys_end = NULL
    cdef const uint8_t *part_end
    cdef Py_ssize_t record, position = 0
    cdef uint32_t prefix = 0
    last = None
    for record in range(sizes.shape[0]):
        topic = topics[record]
        if topic is not last:
            prefix = <uint32_t>int(prefix_hash(topic))
            last = topic
        if position + 1 + sizes[record] > properties.shape[0]:
            raise ValueError("the sizes are those of other properties")
        if not sizes[record]:
            position += 1
            continue
        at = &properties[position + 1]
        end = at + sizes[record]
        position += 1 + sizes[record]
        unique = keys = NULL
        while at < end:
            item_end = <const uint8_t *>memchr(at, SEPARATOR, end - at)
            if item_end is NULL:
                item_end = end
            if at[0] == c"U":
                if item_end - at > 9 and memcmp(at, <const char *>b"UNIQ_KEY\x01", 9) == 0:
                    unique, unique_end = at + 9, item_end
            elif at[0] == c"K" and item_end - at > 5 and memcmp(at, <const char *>b"KEYS\x01", 5) == 0:
                keys, keys_end = at + 5, item_end
            at = item_end + 1
        if unique is not NULL and not found.add(unique, unique_end, prefix, record):
            return None
        while keys is not NULL and keys < keys_end:
            part_end = <const uint8_t *>memchr(keys, BLANK, keys_end - keys)
            if part_end is NULL:
                part_end = keys_end
            if part_end > keys and not found.add(keys, part_end, prefix, record):
                return None
            keys = part_end + 1
    PyByteArray_Resize(found.hashes, 8 * found.count)
    PyByteArray_Resize(found.records, 8 * found.count)
    return found.hashes, found.records
