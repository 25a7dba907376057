# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A run of sends: frames in; records, queue entries, keys to index and answers out, in one call each.

    take      whole frames at the front of what a connection read, as far as they are usual sends
    place     their records, one after the other, for a place in the commit log; with it their offsets and answers
    answers   the frames of the answers, by connection

A usual send is a SEND_MESSAGE_V2 (310) to a topic that is ready, whose header is ASCII and regular and whose properties
ask for nothing special. Everything else is left alone, and whoever called hands it to the general path. So this is no
second implementation of the protocol: in doubt it takes nothing. The twin is `SendProcessor._fast` with
`Appender._put` and `SendReplies`, which store the same bytes and give the same answers.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_READ
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memmove, memset

from pyromq.protocol import sysflag
from pyromq.protocol.crc import crc32

# Upper bounds of the sizes that metrics tell apart (rocketmq_message_size); a test compares them.
SIZE_BOUNDS = (1024, 4096, 512 * 1024, 1024**2, 2 * 1024**2, 4 * 1024**2)

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
    static inline void pyromq_put16(unsigned char *at, unsigned int v) { at[0] = v >> 8; at[1] = v; }
    static inline void pyromq_put32(unsigned char *at, unsigned int v) {
        v = __builtin_bswap32(v); memcpy(at, &v, 4);
    }
    static inline void pyromq_put64(unsigned char *at, unsigned long long v) {
        v = __builtin_bswap64(v); memcpy(at, &v, 8);
    }
    static inline unsigned int pyromq_get32(const unsigned char *at) {
        unsigned int v; memcpy(&v, at, 4); return __builtin_bswap32(v);
    }
    static inline unsigned int pyromq_get16(const unsigned char *at) { return at[0] << 8 | at[1]; }
    """
    const uint8_t *find "pyromq_find"(const uint8_t *text, size_t size, const char *what, size_t length)
    void put16 "pyromq_put16"(uint8_t *at, uint32_t value)
    void put32 "pyromq_put32"(uint8_t *at, uint32_t value)
    void put64 "pyromq_put64"(uint8_t *at, uint64_t value)
    uint32_t get32 "pyromq_get32"(const uint8_t *at)
    uint32_t get16 "pyromq_get16"(const uint8_t *at)

cdef enum:
    SEND = 310
    JSON = 0
    BINARY = 1
    ONEWAY = 2
    HEAD = 88                # a record's head with IPv4 hosts
    HOST = 8
    ENTRY = 20
    MAX_FRAME_TAKEN = 65536  # larger ones may be refused for their size
    BINARY_HEAD = 17         # of a binary header, up to and with the length of the remark
    MAX_SMALL = 1023         # as SendProcessor looks numbers up
    BLOCK = 64               # of SHA-1
    DIGEST = 20
    CONTEXT = 128            # bytes for the state of a hash; OpenSSL's has 96
    GATHERED = 1024
    SIGNATURE = 28           # characters of a digest in base 64

cdef uint32_t MAGIC = 0xDAA320A7
# Bits of the system flag: messages of transactions get no entries, and long hosts change the layout.
cdef int32_t SPECIAL_FLAGS = sysflag.HOSTS_MASK | sysflag.TRANSACTION_MASK

cdef struct Text:
    const uint8_t *at
    Py_ssize_t size
    bint escaped

cdef struct Fields:
    Text by_letter[26]       # the ext fields of one letter; NULL where there is none
    Text access_key, signature
    bint others              # whether there are any besides
    int32_t code, flag, opaque

cdef struct Message:
    Py_ssize_t frame         # where its frame begins in what was read
    Py_ssize_t body
    Py_ssize_t properties    # as stored, in the arena
    Py_ssize_t key           # its unique key, in the arena; -1 without one
    int64_t born
    int64_t physical         # known once it is placed
    int64_t queue_offset
    int32_t body_size, properties_size, key_size, size
    int32_t source, slot, queue_id, flag, sys_flag, times, opaque, tags_code
    uint8_t kind, oneway, fifo

cdef struct Slot:            # a queue with messages of this run
    int64_t next_offset
    int64_t end
    Py_ssize_t entries       # where its next entry goes
    int32_t count
    int64_t size
    bint is_unusual          # whether there is more to count than that:
    int32_t fifo             # messages that have an order,
    int64_t fifo_size
    int32_t large[2][6]      # and those above the first bound of SIZE_BOUNDS, without and with an order


cdef class Target:
    """A topic that is ready for sends. `owner` counts what was stored."""

    cdef bytes _topic, _field, _stamp
    cdef list _queues
    cdef int _multi_tag, _fixed_size
    cdef object _owner
    cdef int *_slots         # of each queue, in the run that `_run` counts
    cdef int64_t *_run

    def __cinit__(self, bytes topic, bytes topic_field, bytes stamp, list queues, int multi_tag, int fixed_size, owner):
        cdef Py_ssize_t count = len(queues)
        self._topic, self._field, self._stamp, self._queues = topic, topic_field, stamp, queues
        self._multi_tag, self._fixed_size, self._owner = multi_tag, fixed_size, owner
        self._slots = <int *>PyMem_Malloc(max(count, 1) * sizeof(int))
        self._run = <int64_t *>PyMem_Malloc(max(count, 1) * sizeof(int64_t))
        if self._slots is NULL or self._run is NULL:
            raise MemoryError
        memset(self._run, 0, max(count, 1) * sizeof(int64_t))

    def __dealloc__(self):
        PyMem_Free(self._slots)
        PyMem_Free(self._run)


cdef class Replies:
    """What all answers have in common, see `SendReplies`."""

    cdef bytes _json_before, _json_behind, _json_end, _binary_head, _binary_before

    def __cinit__(self, bytes json_before, bytes json_behind, bytes json_end, bytes binary_head, bytes binary_before):
        self._json_before, self._json_behind, self._json_end = json_before, json_behind, json_end
        self._binary_head, self._binary_before = binary_head, binary_before


include "send_signature.pxi"
include "send_header.pxi"
include "send_fields.pxi"
include "send_answer.pxi"


cdef int32_t SMALL_SIZE = SIZE_BOUNDS[0]
cdef int32_t[6] LARGER
LARGER[0], LARGER[1], LARGER[2], LARGER[3], LARGER[4] = SIZE_BOUNDS[1:]
LARGER[5] = 0x7FFFFFFF


cdef bint has_order(const uint8_t *at, Py_ssize_t size) noexcept:
    """Whether properties have a key that messages are ordered by. Few have two underscores in a row."""
    cdef const uint8_t *end = at + size
    while True:
        at = <const uint8_t *>memchr(at, c"_", end - at)
        if at is NULL or end - at <= 14:
            return False
        if at[1] == c"_" and memcmp(at, <const char *>b"__SHARDINGKEY\x01", 14) == 0:
            return True
        at += 1


cdef void count_unusual(Slot *slot, Message *message, int32_t count) noexcept:
    cdef int bucket = 0
    slot.is_unusual = True
    if message.fifo:
        slot.fifo += count
        slot.fifo_size += count * message.size
    if message.size > SMALL_SIZE:
        while message.size > LARGER[bucket]:
            bucket += 1
        slot.large[message.fifo][bucket] += count


cdef tuple unusual_of(Slot *slot):
    return ([slot.large[0][bucket] for bucket in range(6)], slot.fifo, slot.fifo_size,
            [slot.large[1][bucket] for bucket in range(6)])


cdef int64_t _runs = 0


cdef class SendRun:
    """Messages that arrived one after the other, from any number of connections. Stored as a whole or not at all."""

    cdef Message *_messages
    cdef Py_ssize_t _capacity
    cdef uint8_t *_arena
    cdef Py_ssize_t _arena_size, _arena_used
    cdef Slot *_slots
    cdef Py_ssize_t _slots_capacity
    cdef list _sources       # (connection, what it read, its host)
    cdef list _slot_queues, _slot_targets
    cdef int64_t _number
    cdef Target _last
    cdef Pass _pass          # that of the message before
    cdef Target _pass_target
    cdef bytes _pass_key
    cdef int _pass_source
    cdef bint _is_claimed    # whether the signature of the next message can wait for others
    cdef Replies _replies
    cdef bytes _store_host
    cdef bytes _answers
    cdef list _answer_ends
    cdef readonly Py_ssize_t count
    cdef readonly int64_t size
    cdef readonly int64_t largest
    cdef readonly bint is_placed
    cdef readonly Py_ssize_t taken  # by the last call of `take`
    cdef readonly int kind          # of the header that came last

    def __cinit__(self, Replies replies, bytes store_host):
        global _runs
        _runs += 1
        self._number = _runs
        self._replies, self._store_host = replies, store_host
        if PyBytes_GET_SIZE(store_host) != HOST:
            raise ValueError("the host of a run has eight bytes")
        self._sources, self._slot_queues, self._slot_targets = [], [], []
        self._answer_ends = []

    def __dealloc__(self):
        PyMem_Free(self._messages)
        PyMem_Free(self._arena)
        PyMem_Free(self._slots)

    # Taking

    def take(self, connection, bytes host, bytes data, Py_ssize_t pos, Py_ssize_t most, Py_ssize_t max_header,
             dict targets, ready, admit=None):
        """Take the usual sends at the front of `data` from `pos` on, at most so many; gives where the rest begins.

        A topic that is not in `targets` is asked from `ready`, which gives its target or None. With `admit` sends have
        to be signed: it is told the connection, the account and the topic, and gives a `Pass` or None.
        """
        cdef const uint8_t *begin = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef Py_ssize_t available = PyBytes_GET_SIZE(data)
        cdef Py_ssize_t size, header_size
        cdef uint32_t word
        cdef int source = len(self._sources)
        cdef const uint8_t *frame
        cdef Fields fields
        cdef bint is_ours
        cdef Py_ssize_t first = self.count, wrong
        self.taken = 0
        unclaim(0)  # an exception may have left some
        if PyBytes_GET_SIZE(host) != HOST:
            return pos
        while self.taken < most and available - pos >= 8:
            frame = begin + pos
            size = <int32_t>get32(frame)
            if size > MAX_FRAME_TAKEN or size < 4 or available - pos < size + 4:
                break
            word = get32(frame + 4)
            header_size = word & 0xFFFFFF
            if header_size > size - 4 or header_size > max_header or header_size == 0:
                break
            memset(&fields, 0, sizeof(Fields))
            if word >> 24 == BINARY:
                is_ours = read_binary(frame + 8, header_size, &fields)
            elif word >> 24 == JSON:
                is_ours = read_json(frame + 8, header_size, &fields)
            else:
                break
            if not is_ours or fields.flag & ~ONEWAY:
                break
            # Where more come, their signatures are checked together.
            self._is_claimed = has_lanes and (claimed > 0 or available - pos >= FEW * (size + 4))
            if not self._add(&fields, begin, pos, header_size, size, source, word >> 24, targets, ready,
                             connection, admit):
                unclaim(self.count)
                break
            pos += size + 4
            self.taken += 1
            if claimed == SHA1_LANES:
                wrong = settle()
                if wrong >= 0:
                    return self._cut(wrong, first, connection, data, host)
        if claimed:
            wrong = settle()
            if wrong >= 0:
                return self._cut(wrong, first, connection, data, host)
        self._took(connection, data, host)
        return pos

    cdef int _took(self, connection, bytes data, bytes host) except -1:
        if self.taken:
            self._sources.append((connection, data, host))
            self.kind = self._messages[self.count - 1].kind
        return 0

    cdef Py_ssize_t _cut(self, Py_ssize_t wrong, Py_ssize_t first, connection, bytes data, bytes host) except -1:
        """Forget the messages from this one on, as if they had not been taken; gives where its frame begins."""
        cdef Message *message
        cdef Target target
        cdef Py_ssize_t number
        while self.count > wrong:
            self.count -= 1
            message = &self._messages[self.count]
            self.size -= message.size
            self._slots[message.slot].count -= 1
            self._slots[message.slot].size -= message.size
            if message.fifo or message.size > SMALL_SIZE:
                count_unusual(&self._slots[message.slot], message, -1)
            if not self._slots[message.slot].count:  # it was the first of its queue, and no slot after that is left
                target = <Target>self._slot_targets.pop()
                self._slot_queues.pop()
                target._run[message.queue_id] = 0
        self._arena_used = message.properties
        self.largest = 0
        for number in range(self.count):
            self.largest = max(self.largest, self._messages[number].size)
        self.taken = wrong - first
        self._took(connection, data, host)
        return message.frame

    cdef bint _add(self, Fields *fields, const uint8_t *begin, Py_ssize_t pos, Py_ssize_t header_size, Py_ssize_t size,
                   int source, uint8_t kind, dict targets, ready,
                   connection, admit) except -1:
        cdef Text topic = fields.by_letter[c"b" - c"a"]
        cdef Text text = fields.by_letter[c"i" - c"a"]
        cdef Text batch = fields.by_letter[c"m" - c"a"]
        cdef int32_t queue_id = small(fields.by_letter[c"e" - c"a"], 0x7FFFFFF)
        cdef int32_t sys_flag = small(fields.by_letter[c"f" - c"a"], MAX_SMALL)
        cdef int32_t flag = small(fields.by_letter[c"h" - c"a"], MAX_SMALL)
        cdef int32_t times = 0
        cdef int64_t born = time_of(fields.by_letter[c"g" - c"a"])
        cdef Target target = self._last
        cdef Message *message
        cdef Py_ssize_t stored
        cdef bytes name
        if topic.at is NULL or topic.escaped or queue_id < 0 or sys_flag < 0 or flag < 0 or born < 0:
            return False
        if fields.by_letter[c"j" - c"a"].at is not NULL:
            times = small(fields.by_letter[c"j" - c"a"], MAX_SMALL)
            if times < 0:
                return False
        if batch.at is not NULL and (batch.size != 5 or memcmp(batch.at, <const char *>b"false", 5) != 0):
            return False
        if sys_flag & SPECIAL_FLAGS:
            return False
        if (target is None or topic.size != PyBytes_GET_SIZE(target._topic)
                or memcmp(topic.at, PyBytes_AS_STRING(target._topic), topic.size) != 0):
            name = topic.at[:topic.size]
            found = targets.get(name)
            if found is None:
                found = ready(name)
            if found is None:
                return False
            target = self._last = <Target>found
        if queue_id >= len(target._queues):
            return False
        if self.count == self._capacity:
            self._grow_messages()
        message = &self._messages[self.count]
        stored = self._unescaped(text, PyBytes_GET_SIZE(target._stamp))
        if stored < 0:
            return False
        if admit is not None and not self._admits(
                fields, stored, begin + pos + 8 + header_size, size - 4 - header_size, source, target, connection, admit):
            return False
        stored = self._keep_properties(message, stored, target._stamp, kind)
        if stored < 0:
            return False
        message.frame = pos
        message.body = pos + 8 + header_size
        message.body_size = <int32_t>(size - 4 - header_size)
        message.size = <int32_t>(target._fixed_size + message.body_size + stored)
        message.born, message.flag, message.times, message.opaque = born, flag, times, fields.opaque
        message.sys_flag = sys_flag | target._multi_tag
        message.kind, message.oneway, message.source = kind, fields.flag & ONEWAY, source
        message.queue_id = queue_id
        message.slot = self._slot(target, queue_id)
        self._slots[message.slot].count += 1
        self._slots[message.slot].size += message.size
        message.fifo = has_order(self._arena + message.properties, message.properties_size)
        if message.fifo or message.size > SMALL_SIZE:
            count_unusual(&self._slots[message.slot], message, 1)
        self.count += 1
        self.size += message.size
        if message.size > self.largest:
            self.largest = message.size
        return True

    cdef int _slot(self, Target target, int32_t queue_id) except -1:
        cdef int slot
        cdef Slot *slots
        if target._run[queue_id] == self._number:
            return target._slots[queue_id]
        slot = len(self._slot_queues)
        if slot == self._slots_capacity:
            self._slots_capacity = max(16, 2 * slot)
            slots = <Slot *>PyMem_Realloc(self._slots, self._slots_capacity * sizeof(Slot))
            if slots is NULL:
                raise MemoryError
            self._slots = slots
        memset(&self._slots[slot], 0, sizeof(Slot))
        self._slot_queues.append(target._queues[queue_id])
        self._slot_targets.append(target)
        target._run[queue_id] = self._number
        target._slots[queue_id] = slot
        return slot

    cdef int _grow_messages(self) except -1:
        cdef Py_ssize_t capacity = max(8, 2 * self._capacity)
        cdef Message *messages = <Message *>PyMem_Realloc(self._messages, capacity * sizeof(Message))
        if messages is NULL:
            raise MemoryError
        self._messages, self._capacity = messages, capacity
        return 0

    cdef int _reserve(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t size = self._arena_used + more
        cdef uint8_t *arena
        if size > self._arena_size:
            size = max(2 * size, 1024)
            arena = <uint8_t *>PyMem_Realloc(self._arena, size)
            if arena is NULL:
                raise MemoryError
            self._arena, self._arena_size = arena, size
        return 0

    cdef Py_ssize_t _unescaped(self, Text text, Py_ssize_t stamp_size) except -2:
        """Put the properties into the arena as they were sent, with room for a stamp; gives their length.

        -1 if they are not usual.
        """
        cdef uint8_t *at
        self._reserve(text.size + 1 + stamp_size)
        at = self._arena + self._arena_used
        if text.at is NULL:
            return 0
        if text.escaped:
            return unescape(at, text.at, text.size)
        memcpy(at, text.at, text.size)
        return text.size

    cdef bint _admits(self, Fields *fields, Py_ssize_t text_size, const uint8_t *body, Py_ssize_t body_size,
                      int source, Target target, connection, admit) except -1:
        """Whether a send is signed as it has to be, by somebody who may send there. May leave a claim to be settled."""
        cdef bytes key
        cdef const uint8_t *text
        if (fields.others or fields.access_key.at is NULL or fields.access_key.escaped
                or fields.signature.size != SIGNATURE or fields.signature.escaped):
            return False
        if (self._pass is None or self._pass_source != source or self._pass_target is not target
                or fields.access_key.size != PyBytes_GET_SIZE(self._pass_key)
                or memcmp(fields.access_key.at, PyBytes_AS_STRING(self._pass_key), fields.access_key.size) != 0):
            key = fields.access_key.at[:fields.access_key.size]
            self._pass = admit(connection, key, target._topic)
            if self._pass is None:
                return False
            self._pass_key, self._pass_target, self._pass_source = key, target, source
        text = self._arena + self._arena_used
        if self._is_claimed and claim(self._pass, self.count, fields, text, text_size, body, body_size):
            return True
        return self._pass.admits(fields, text, text_size, body, body_size)

    cdef Py_ssize_t _keep_properties(self, Message *message, Py_ssize_t size, bytes stamp, uint8_t kind) except -2:
        """Make of the properties in the arena what is stored; gives their length, -1 if they are not usual."""
        cdef Py_ssize_t stamp_size = PyBytes_GET_SIZE(stamp)
        cdef uint8_t *at = self._arena + self._arena_used
        if (memchr(at, 0, size) is not NULL or find(at, size, b"CLUSTER", 7) is not NULL
                or find(at, size, b"DELAY", 5) is not NULL or find(at, size, b"T", 1) is not NULL
                and (find(at, size, b"TRAN_MSG", 8) is not NULL or find(at, size, b"TIMER_", 6) is not NULL)):
            return -1
        size = without_wait(at, size)
        if size < 0:
            return -1
        message.properties = self._arena_used
        if not find_key(at, size, &message.key, &message.key_size, kind == JSON):
            return -1
        if message.key >= 0:
            message.key += self._arena_used
        if not find_tag(at, size, &message.tags_code):
            return -1
        if size:
            at[size] = 2
            size += 1
        memcpy(at + size, PyBytes_AS_STRING(stamp), stamp_size)
        size += stamp_size
        if size > 32767:
            return -1
        message.properties_size = <int32_t>size
        self._arena_used += size
        return size

    # Placing

    def place(self, int64_t position, int64_t now, dict marks, bint for_index):
        """The records of all messages, for this place in the log; their entries go to the queues.

        A queue that is not in `marks` yet is entered there as it was before. With it comes what the index needs of
        them, see `IndexFiles.add_joined`.
        """
        cdef bytes records = PyBytes_FromStringAndSize(NULL, self.size)
        cdef uint8_t *at = <uint8_t *>PyBytes_AS_STRING(records)
        cdef bytearray entries = bytearray(self.count * ENTRY)
        cdef uint8_t *entry_at = <uint8_t *>PyByteArray_AS_STRING(entries)
        cdef uint8_t *entry
        cdef const uint8_t *body
        cdef const uint8_t *host = NULL
        cdef const uint8_t *store_host = <const uint8_t *>PyBytes_AS_STRING(self._store_host)
        cdef Py_ssize_t slot, number, answered = 0, begin
        cdef Py_ssize_t queues = len(self._slot_queues)
        cdef Py_ssize_t source = -1, next_source = 0
        cdef Message *message
        cdef Slot *queue
        cdef Target target
        cdef Py_ssize_t field_size
        cdef uint32_t crc
        cdef const uint8_t *data = NULL
        begin = 0
        for slot in range(queues):
            each = self._slot_queues[slot]
            if each not in marks:
                marks[each] = each.mark()
            self._slots[slot].next_offset = each.next_offset
            self._slots[slot].entries = begin
            begin += self._slots[slot].count * ENTRY
        for number in range(self.count):
            message = &self._messages[number]
            if message.source != source:
                source = message.source
                data = <const uint8_t *>PyBytes_AS_STRING(<bytes>(<tuple>self._sources[source])[1])
                host = <const uint8_t *>PyBytes_AS_STRING(<bytes>(<tuple>self._sources[source])[2])
            queue = &self._slots[message.slot]
            target = <Target>self._slot_targets[message.slot]
            body = data + message.body
            message.physical, message.queue_offset = position, queue.next_offset
            queue.next_offset += 1
            queue.end = position + message.size
            entry = entry_at + queue.entries
            queue.entries += ENTRY
            put64(entry, position)
            put32(entry + 8, message.size)
            put64(entry + 12, <uint64_t><int64_t>message.tags_code)

            crc = <uint32_t>crc32(PyMemoryView_FromMemory(<char *>body, message.body_size, PyBUF_READ))
            put32(at, message.size)
            put32(at + 4, MAGIC)
            put32(at + 8, crc & 0x7FFFFFFF)
            put32(at + 12, message.queue_id)
            put32(at + 16, message.flag)
            put64(at + 20, message.queue_offset)
            put64(at + 28, position)
            put32(at + 36, message.sys_flag)
            put64(at + 40, message.born)
            memcpy(at + 48, host, HOST)
            put64(at + 56, now)
            memcpy(at + 64, store_host, HOST)
            put32(at + 72, message.times)
            put64(at + 76, 0)
            put32(at + 84, message.body_size)
            memcpy(at + HEAD, body, message.body_size)
            at += HEAD + message.body_size
            field_size = PyBytes_GET_SIZE(target._field)
            memcpy(at, PyBytes_AS_STRING(target._field), field_size)
            at += field_size
            put16(at, message.properties_size)
            memcpy(at + 2, self._arena + message.properties, message.properties_size)
            at += 2 + message.properties_size
            position += message.size
        begin = 0
        for slot in range(queues):
            queue = &self._slots[slot]
            each = self._slot_queues[slot]
            each.add_all(entries if queues == 1 else entries[begin:queue.entries], queue.end)
            begin = queue.entries
        self._make_answers()
        self.is_placed = True
        return records, self._index_parts(records) if for_index else None

    cdef tuple _index_parts(self, bytes records):
        """Heads, topics with their lengths, lengths of properties, and the properties, each after a separator."""
        cdef bytes heads = PyBytes_FromStringAndSize(NULL, self.count * HEAD)
        cdef bytes sizes = PyBytes_FromStringAndSize(NULL, self.count * 2)
        cdef bytes properties
        cdef uint8_t *head_at = <uint8_t *>PyBytes_AS_STRING(heads)
        cdef uint8_t *size_at = <uint8_t *>PyBytes_AS_STRING(sizes)
        cdef uint8_t *at
        cdef const uint8_t *record = <const uint8_t *>PyBytes_AS_STRING(records)
        cdef list topics = []
        cdef Py_ssize_t number, total = 0
        cdef Message *message
        for number in range(self.count):
            total += 1 + self._messages[number].properties_size
        properties = PyBytes_FromStringAndSize(NULL, total)
        at = <uint8_t *>PyBytes_AS_STRING(properties)
        for number in range(self.count):
            message = &self._messages[number]
            memcpy(head_at, record, HEAD)
            put16(size_at, message.properties_size)
            at[0] = 2
            memcpy(at + 1, self._arena + message.properties, message.properties_size)
            topics.append((<Target>self._slot_targets[message.slot])._field)
            head_at += HEAD
            size_at += 2
            at += 1 + message.properties_size
            record += message.size
        return heads, topics, sizes, properties

    cdef int _make_answers(self) except -1:
        cdef Replies replies = self._replies
        cdef Py_ssize_t most = 0, number
        cdef Py_ssize_t json_size = 8 + len(replies._json_before) + len(replies._json_behind) + len(replies._json_end) + 160
        cdef Py_ssize_t binary_size = 8 + len(replies._binary_head) + len(replies._binary_before) + 160
        cdef Message *message
        cdef uint8_t *at
        cdef uint8_t *begin
        cdef int32_t source = 0
        cdef bytes buffer
        for number in range(self.count):
            message = &self._messages[number]
            most += (json_size if message.kind == JSON else binary_size) + message.key_size
        buffer = PyBytes_FromStringAndSize(NULL, most)
        begin = at = <uint8_t *>PyBytes_AS_STRING(buffer)
        for number in range(self.count):
            message = &self._messages[number]
            if message.source != source:
                self._answer_ends.append(at - begin)
                source = message.source
            if message.oneway:
                continue
            at = self._json_answer(at, message) if message.kind == JSON else self._binary_answer(at, message)
        self._answer_ends.append(at - begin)
        self._answers = buffer
        return 0

    cdef uint8_t *_json_answer(self, uint8_t *frame, Message *message):
        cdef uint8_t *at = frame + 8
        at = put_bytes(at, self._replies._json_before)
        at = put_hex(at, message.physical)
        at = put_text(at, b'","queueId":"', 13)
        at = put_number(at, message.queue_id)
        at = put_text(at, b'","queueOffset":"', 17)
        at = put_number(at, message.queue_offset)
        at = put_text(at, b'"', 1)
        if message.key >= 0:
            at = put_text(at, b',"transactionId":"', 18)
            memcpy(at, self._arena + message.key, message.key_size)
            at = put_text(at + message.key_size, b'"', 1)
        at = put_bytes(at, self._replies._json_behind)
        at = put_number(at, message.opaque)
        at = put_bytes(at, self._replies._json_end)
        put32(frame, <uint32_t>(at - frame - 4))
        put32(frame + 4, <uint32_t>(at - frame - 8))
        return at

    cdef uint8_t *_binary_answer(self, uint8_t *frame, Message *message):
        cdef uint8_t *head = frame + 8
        cdef uint8_t *ext
        cdef uint8_t *at
        cdef uint8_t *digits
        at = put_bytes(head, self._replies._binary_head)
        put32(head + 5, message.opaque)
        ext = at
        at = put_bytes(at, self._replies._binary_before)
        at = put_hex(at, message.physical)
        at = put_text(at, b"\0\x07queueId", 9)
        digits = at + 4
        at = put_number(digits, message.queue_id)
        put32(digits - 4, <uint32_t>(at - digits))
        at = put_text(at, b"\0\x0bqueueOffset", 13)
        digits = at + 4
        at = put_number(digits, message.queue_offset)
        put32(digits - 4, <uint32_t>(at - digits))
        if message.key >= 0:
            at = put_text(at, b"\0\x0dtransactionId", 15)
            put32(at, message.key_size)
            memcpy(at + 4, self._arena + message.key, message.key_size)
            at += 4 + message.key_size
        put32(ext - 4, <uint32_t>(at - ext))
        put32(frame, <uint32_t>(at - frame - 4))
        put32(frame + 4, <uint32_t>(1 << 24 | (at - head)))
        return at

    # Afterwards

    @property
    def queues(self):
        """The queues with messages of this run."""
        return self._slot_queues

    def answers(self):
        """Each connection with the frames of its answers, joined. Known once the messages are placed."""
        cdef list answers = []
        cdef Py_ssize_t begin = 0, end, number
        for number in range(len(self._answer_ends)):
            end = self._answer_ends[number]
            if end > begin:
                answers.append(((<tuple>self._sources[number])[0], self._answers[begin:end]))
            begin = end
        return answers

    def stored(self):
        """For each queue: the owner of its topic, how many messages it got, their bytes in the log, and the unusual.

        Of those that are large or have an order: how many are large, by size, of the others; how many have an order,
        their bytes, and how many of them are large. None if there is nothing to tell.
        """
        cdef Py_ssize_t slot
        return [((<Target>self._slot_targets[slot])._owner, self._slots[slot].count, self._slots[slot].size,
                 unusual_of(&self._slots[slot]) if self._slots[slot].is_unusual else None)
                for slot in range(len(self._slot_queues))]

    def frames(self):
        """Each message's connection, frame, owner, offset in the log, offset in its queue, queue and size, in order."""
        cdef Py_ssize_t number
        cdef Message *message
        cdef list frames = []
        cdef bytes data
        for number in range(self.count):
            message = &self._messages[number]
            connection, data, _ = self._sources[message.source]
            frame = data[message.frame : message.body + message.body_size]
            owner = (<Target>self._slot_targets[message.slot])._owner
            frames.append(
                (connection, frame, owner, message.physical, message.queue_offset, message.queue_id, message.size)
            )
        return frames

    def units(self, record):
        """The messages as queues with a `record` each, as the general path of the store takes them."""
        cdef Py_ssize_t number
        cdef Message *message
        cdef Target target
        cdef bytes data, body, properties
        cdef list units = []
        self.is_placed = False
        self._answer_ends.clear()
        for number in range(self.count):
            message = &self._messages[number]
            target = <Target>self._slot_targets[message.slot]
            _, data, host = self._sources[message.source]
            queue = self._slot_queues[message.slot]
            body = data[message.body : message.body + message.body_size]
            properties = (self._arena + message.properties)[:message.properties_size]
            units.append((queue, (record(
                queue.topic, body, properties, message.queue_id, message.flag, 0, 0, message.sys_flag, message.born,
                host, 0, self._store_host, message.times,
            ),)))
        return units
