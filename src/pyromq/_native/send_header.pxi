# A part of send_run.pyx: reads the headers of usual sends, binary and JSON. In doubt they are not usual.

cdef bint read_binary(const uint8_t *header, Py_ssize_t size, Fields *fields):
    cdef const uint8_t *at = header + BINARY_HEAD
    cdef const uint8_t *end = header + size
    cdef const uint8_t *key
    cdef Py_ssize_t key_size, value_size
    cdef Text *field
    if size < BINARY_HEAD + 4 or get16(header) != SEND or get32(header + 13) != 0:
        return False
    fields.opaque = <int32_t>get32(header + 5)
    fields.flag = <int32_t>get32(header + 9)
    if <int32_t>get32(at) != end - at - 4 or not is_ascii(at + 4, end - at - 4):
        return False
    at += 4
    while at < end:
        if end - at < 6:
            return False
        key_size = <short>get16(at)
        key = at + 2
        if key_size <= 0 or key_size > end - key - 4:
            return False
        value_size = <int32_t>get32(key + key_size)
        at = key + key_size + 4
        if value_size <= 0 or value_size > end - at:
            return False
        if key_size == 1 and c"a" <= key[0] <= c"z":
            field = &fields.by_letter[key[0] - c"a"]
            if field.at is not NULL:
                return False
            field.at, field.size = at, value_size
        else:
            field = named(key, key_size, fields)
            if field is not NULL:
                field.at, field.size = at, value_size
        at += value_size
    return True


cdef Text *named(const uint8_t *name, Py_ssize_t size, Fields *fields):
    """The place of a field with a longer name; NULL if it is not wanted, or there twice."""
    cdef Text *field = NULL
    if size == 9 and memcmp(name, <const char *>b"AccessKey", 9) == 0:
        field = &fields.access_key
    elif size == 9 and memcmp(name, <const char *>b"Signature", 9) == 0:
        field = &fields.signature
    if field is NULL or field.at is not NULL:
        fields.others = True
        return NULL
    return field


cdef bint read_json(const uint8_t *at, Py_ssize_t size, Fields *fields):
    cdef const uint8_t *end = at + size
    cdef Text name, value
    cdef int32_t number
    cdef int seen = 0, bit
    if size < 2 or at[0] != c"{" or not is_ascii(at, size):
        return False
    at += 1
    while True:
        at = read_string(at, end, &name)
        if at is NULL or name.escaped or at >= end or at[0] != c":":
            return False
        at += 1
        if at >= end:
            return False
        if name.size == 9 and memcmp(name.at, <const char *>b"extFields", 9) == 0:
            bit = 1
            at = read_ext(at, end, fields)
            if at is NULL:
                return False
        elif at[0] == c'"':
            bit = 0
            at = read_string(at, end, &value)
            if at is NULL or value.escaped or name.size == 4 or name.size == 6:  # code, flag or opaque as text
                return False
        else:
            at = read_integer(at, end, &number)
            if at is NULL:
                return False
            bit = 0
            if name.size == 4 and memcmp(name.at, <const char *>b"code", 4) == 0:
                bit, fields.code = 2, number
            elif name.size == 4 and memcmp(name.at, <const char *>b"flag", 4) == 0:
                bit, fields.flag = 4, number
            elif name.size == 6 and memcmp(name.at, <const char *>b"opaque", 6) == 0:
                bit, fields.opaque = 8, number
            elif not (name.size == 7 and memcmp(name.at, <const char *>b"version", 7) == 0):
                return False
        if seen & bit:
            return False
        seen |= bit
        if at >= end:
            return False
        if at[0] == c"}":
            return at + 1 == end and seen & 3 == 3 and fields.code == SEND
        if at[0] != c",":
            return False
        at += 1


cdef const uint8_t *read_ext(const uint8_t *at, const uint8_t *end, Fields *fields):
    cdef Text name, value
    cdef Text *field
    if end - at < 2 or at[0] != c"{":
        return NULL
    at += 1
    while True:
        at = read_string(at, end, &name)
        if at is NULL or name.escaped or end - at < 2 or at[0] != c":":
            return NULL
        at = read_string(at + 1, end, &value)
        if at is NULL or at >= end:
            return NULL
        if value.escaped and not (name.size == 1 and name.at[0] == c"i"):
            return NULL  # nobody looks whether it is well escaped
        if name.size == 1 and c"a" <= name.at[0] <= c"z":
            field = &fields.by_letter[name.at[0] - c"a"]
            if field.at is not NULL:
                return NULL
            field[0] = value
        else:
            field = named(name.at, name.size, fields)
            if field is not NULL:
                field[0] = value
        if at[0] == c"}":
            return at + 1
        if at[0] != c",":
            return NULL
        at += 1


cdef const uint8_t *read_string(const uint8_t *at, const uint8_t *end, Text *text):
    """The text between two quotes, and what follows; NULL if there is none."""
    if at >= end or at[0] != c'"':
        return NULL
    at += 1
    text.at, text.escaped = at, False
    while at < end:
        if at[0] == c'"':
            text.size = at - text.at
            return at + 1
        if at[0] == c"\\":
            text.escaped = True
            at += 1
        elif at[0] < 32:
            return NULL
        at += 1
    return NULL


cdef const uint8_t *read_integer(const uint8_t *at, const uint8_t *end, int32_t *number):
    cdef bint negative = at < end and at[0] == c"-"
    cdef const uint8_t *first
    cdef int64_t value = 0
    if negative:
        at += 1
    first = at
    while at < end and c"0" <= at[0] <= c"9" and at - first < 11:
        value = 10 * value + at[0] - c"0"
        at += 1
    if at == first or at - first > 1 and first[0] == c"0" or negative and value == 0:
        return NULL
    if negative:
        value = -value
    if value != <int32_t>value:
        return NULL
    number[0] = <int32_t>value
    return at


cdef Py_ssize_t unescape(uint8_t *into, const uint8_t *at, Py_ssize_t size):
    """Undo the escapes of a JSON string; -1 if one is not usual."""
    cdef const uint8_t *end = at + size
    cdef uint8_t *begin = into
    cdef const uint8_t *next
    cdef int digit, value, number
    while at < end:
        next = <const uint8_t *>memchr(at, c"\\", end - at)
        if next is NULL:
            next = end
        memcpy(into, at, next - at)
        into += next - at
        if next == end:
            break
        at = next + 2
        if at > end:
            return -1
        if next[1] == c"u":
            if end - at < 4:
                return -1
            value = 0
            for number in range(4):
                digit = at[number]
                if c"0" <= digit <= c"9":
                    digit -= c"0"
                elif c"a" <= digit <= c"f":
                    digit -= c"a" - 10
                elif c"A" <= digit <= c"F":
                    digit -= c"A" - 10
                else:
                    return -1
                value = value << 4 | digit
            if value >= 128:
                return -1
            into[0] = value
            at += 4
        elif next[1] == c'"' or next[1] == c"\\" or next[1] == c"/":
            into[0] = next[1]
        elif next[1] == c"n":
            into[0] = 10
        elif next[1] == c"t":
            into[0] = 9
        else:
            return -1
        into += 1
    return into - begin
