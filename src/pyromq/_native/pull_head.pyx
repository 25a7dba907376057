# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The head of a pull, without making a command of it: what changes from one pull of a consumer to the next, and the rest.

A consumer asks again and again for the same but for three numbers: that of the request, the offset to read from and the
offset to commit. What is left of the header without them is the same byte for byte, and so whoever has judged one such
pull has judged them all.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp, memcpy

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <string.h>
    #if defined(__GLIBC__) || defined(__APPLE__) || defined(__FreeBSD__) || defined(__linux__)
    #define pyromq_find memmem
    void *memmem(const void *, size_t, const void *, size_t);
    #else
    static void *pyromq_find(const void *in, size_t size, const void *what, size_t length) {
        const char *at = in, *end = at + size;
        for (; length <= (size_t)(end - at); at++) {
            at = memchr(at, *(const char *)what, end - at - length + 1);
            if (at == NULL) return NULL;
            if (!memcmp(at, what, length)) return (void *)at;
        }
        return NULL;
    }
    #endif
    static inline unsigned int pyromq_get32(const unsigned char *at) {
        unsigned int v; memcpy(&v, at, 4); return __builtin_bswap32(v);
    }
    static inline unsigned int pyromq_get16(const unsigned char *at) { return at[0] << 8 | at[1]; }
    """
    const uint8_t *find "pyromq_find"(const uint8_t *text, size_t size, const char *what, size_t length)
    uint32_t get32 "pyromq_get32"(const uint8_t *at)
    uint32_t get16 "pyromq_get16"(const uint8_t *at)

cdef enum:
    JSON = 0
    BINARY = 1
    PULL = 11
    LITE_PULL = 361
    BINARY_HEAD = 17     # up to and with the length of the remark
    OPAQUE = 5           # where the number of the request stands in a binary header
    LONGEST = 4096       # header that is looked at
    DIGITS = 18          # of a number that fits
    HOLES = 4

cdef struct Hole:        # a number that the key leaves out; the last one has a length that follows from the others
    Py_ssize_t start, end
    int64_t value


def split(bytes data, Py_ssize_t at, Py_ssize_t max_header):
    """The pull whose frame begins at `at`, as (where it ends, key, request number, offset, offset to commit).

    None if it is not whole, no pull, or has anything unusual about it: a body, numbers with signs, a field twice.
    """
    cdef const uint8_t *frame = <const uint8_t *>PyBytes_AS_STRING(data) + at
    cdef Py_ssize_t available = PyBytes_GET_SIZE(data) - at
    cdef Py_ssize_t size
    cdef uint32_t word
    cdef Hole holes[HOLES]
    if available < 8:
        return None
    word = get32(frame + 4)
    size = word & 0xFFFFFF
    if (<int32_t>get32(frame) != size + 4 or available < size + 8 or size > max_header or size > LONGEST
            or size < BINARY_HEAD):
        return None
    if word >> 24 == BINARY:
        if not binary_holes(frame + 8, size, holes):
            return None
    elif word >> 24 != JSON or not json_holes(frame + 8, size, holes):
        return None
    return at + size + 8, key_of(frame + 4, size + 4, holes), holes[0].value, holes[1].value, holes[2].value


cdef bytes key_of(const uint8_t *text, Py_ssize_t size, Hole *holes):
    """Kind and header without the holes, which are counted from the beginning of the header. The length is not in it."""
    cdef int order[HOLES]
    cdef int one, other, swapped
    cdef Py_ssize_t done = 4, length = size - 4
    cdef bytes key
    cdef uint8_t *to
    for one in range(HOLES):
        order[one] = one
    for one in range(HOLES - 1):
        for other in range(HOLES - 1 - one):
            if holes[order[other]].start > holes[order[other + 1]].start:
                swapped = order[other]
                order[other] = order[other + 1]
                order[other + 1] = swapped
    for one in range(HOLES):
        length -= holes[one].end - holes[one].start
    key = PyBytes_FromStringAndSize(NULL, length + 4)
    to = <uint8_t *>PyBytes_AS_STRING(key)
    to[0] = text[0]
    for one in range(HOLES - 1):
        to[1 + one] = order[one]  # which hole is which
    to += 4
    for one in range(HOLES):
        length = holes[order[one]].start + 4 - done
        memcpy(to, text + done, length)
        to += length
        done = holes[order[one]].end + 4
    memcpy(to, text + done, size - done)
    return key


cdef bint json_holes(const uint8_t *text, Py_ssize_t size, Hole *holes):
    holes[HOLES - 1].start = holes[HOLES - 1].end = 0
    # Within a JSON text quotes have a backslash before them, so these are members wherever they stand. A member of an
    # object within the fields would be found too: then the general path says what is wrong, as the key is that request.
    return (json_number(text, size, b'"opaque":', 9, False, &holes[0])
            and json_number(text, size, b'"queueOffset":"', 15, True, &holes[1])
            and json_number(text, size, b'"commitOffset":"', 16, True, &holes[2]))


cdef bint json_number(const uint8_t *text, Py_ssize_t size, const char *name, size_t length, bint quoted, Hole *hole):
    cdef const uint8_t *found = find(text, size, name, length)
    cdef Py_ssize_t end
    if found is NULL:
        return False
    hole.start = found - text + length
    if find(text + hole.start, size - hole.start, name, length) is not NULL:
        return False
    end = digits(text, hole.start, size, &hole.value)
    hole.end = end
    if end < 0 or end >= size:
        return False
    return text[end] == c'"' if quoted else text[end] == c"," or text[end] == c"}"


cdef Py_ssize_t digits(const uint8_t *text, Py_ssize_t at, Py_ssize_t size, int64_t *value):
    """Where a number without a sign or leading zeros ends; -1 if there is none, or a longer one."""
    cdef Py_ssize_t start = at
    value[0] = 0
    while at < size and c"0" <= text[at] <= c"9":
        if at - start == DIGITS:
            return -1
        value[0] = 10 * value[0] + text[at] - c"0"
        at += 1
    return -1 if at == start or (text[start] == c"0" and at > start + 1) else at


cdef bint binary_holes(const uint8_t *text, Py_ssize_t size, Hole *holes):
    cdef uint32_t code = get16(text)
    cdef Py_ssize_t at = BINARY_HEAD + 4, name, length
    cdef int which
    if code != PULL and code != LITE_PULL or size < at:
        return False
    if get32(text + BINARY_HEAD - 4) != 0 or get32(text + BINARY_HEAD) != <uint32_t>(size - at):
        return False
    holes[0].start, holes[0].end = OPAQUE, OPAQUE + 4
    holes[0].value = <int32_t>get32(text + OPAQUE)
    holes[1].start = holes[2].start = -1
    holes[HOLES - 1].start, holes[HOLES - 1].end = BINARY_HEAD, BINARY_HEAD + 4
    while at < size:
        if size - at < 2:
            return False
        name, at = get16(text + at), at + 2
        if size - at < name + 4:
            return False
        which = (1 if name == 11 and memcmp(text + at, <const char *>b"queueOffset", 11) == 0
                 else 2 if name == 12 and memcmp(text + at, <const char *>b"commitOffset", 12) == 0 else 0)
        at += name
        length = <int32_t>get32(text + at)
        if length < 0 or size - at - 4 < length:
            return False
        if which:
            if holes[which].start >= 0:
                return False
            holes[which].start, holes[which].end = at, at + 4 + length
            if digits(text, at + 4, at + 4 + length, &holes[which].value) != at + 4 + length:
                return False
        at += 4 + length
    return holes[1].start >= 0 and holes[2].start >= 0
