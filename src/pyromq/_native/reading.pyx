# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The walk of a pull: from queue entries to slices of the mapped log. The twin of `store.fast_read.plain_few`."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <string.h>
    static inline unsigned int pyromq_get32(const unsigned char *at) {
        unsigned int v; memcpy(&v, at, 4); return __builtin_bswap32(v);
    }
    static inline unsigned long long pyromq_get64(const unsigned char *at) {
        unsigned long long v; memcpy(&v, at, 8); return __builtin_bswap64(v);
    }
    """
    uint32_t get32 "pyromq_get32"(const uint8_t *at)
    uint64_t get64 "pyromq_get64"(const uint8_t *at)

cdef enum:
    ENTRY = 20
    HEAD = 88            # of a record with IPv4 hosts: none is shorter
    OFFSET = 28          # where its place in the log stands
    PRE_BLANK = 0x7FFFFFFF

cdef uint32_t MAGIC = 0xDAA320A7


def few(bytes entries, segment, int64_t file_end, Py_ssize_t wanted, int64_t max_bytes, bint joined):
    """Slices, number of messages, number of bytes, and the place of the last message looked at; None if unusual."""
    cdef Py_buffer buffer
    view = segment.view
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        return _walk(entries, view, <const uint8_t *>buffer.buf, buffer.len, segment.start, file_end, wanted, max_bytes,
                     joined)
    finally:
        PyBuffer_Release(&buffer)


cdef _walk(bytes entries, view, const uint8_t *log, Py_ssize_t log_size, int64_t start, int64_t file_end,
           Py_ssize_t wanted, int64_t max_bytes, bint joined):
    cdef const uint8_t *entry = <const uint8_t *>PyBytes_AS_STRING(entries)
    cdef const uint8_t *last_entry = entry + PyBytes_GET_SIZE(entries) - ENTRY
    cdef int64_t physical, end, size = 0, run_start, run_end, last
    cdef int32_t record_size
    cdef Py_ssize_t count = 0
    cdef const uint8_t *record
    cdef list slices = []
    run_start = run_end = last = <int64_t>get64(entry)
    while entry <= last_entry:
        physical, record_size = <int64_t>get64(entry), <int32_t>get32(entry + 8)
        entry += ENTRY
        if record_size == PRE_BLANK or physical < run_end:
            return None
        last = physical
        if count == wanted or (size + record_size > max_bytes and count):
            break
        end = physical + record_size
        if record_size < HEAD or end > file_end or physical < start or end - start > log_size:
            return None
        record = log + (physical - start)
        if (<int32_t>get32(record) != record_size or get32(record + 4) != MAGIC
                or <int64_t>get64(record + OFFSET) != physical):
            return None
        if not joined:
            slices.append(view[physical - start : end - start])
        elif physical != run_end:
            slices.append(view[run_start - start : run_end - start])
            run_start = physical
        run_end = end
        count += 1
        size += record_size
    if joined:
        slices.append(view[run_start - start : run_end - start])
    return slices, count, size, last
