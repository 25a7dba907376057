# A part of send_run.pyx: the fields of a send, and what is looked for in its properties.

cdef bint is_ascii(const uint8_t *at, Py_ssize_t size):
    cdef uint64_t bits = 0, word
    cdef Py_ssize_t number = 0
    while number + 8 <= size:
        memcpy(&word, at + number, 8)
        bits |= word
        number += 8
    while number < size:
        bits |= at[number]
        number += 1
    return not bits & 0x8080808080808080


cdef int32_t small(Text text, int32_t most):
    """A number without a sign or zeros before it; -1 if it is none, or too large."""
    cdef Py_ssize_t number
    cdef int32_t value = 0
    if text.at is NULL or not 0 < text.size < 10 or text.size > 1 and text.at[0] == c"0":
        return -1
    for number in range(text.size):
        if not c"0" <= text.at[number] <= c"9":
            return -1
        value = 10 * value + text.at[number] - c"0"
    return value if value <= most else -1


cdef int64_t time_of(Text text):
    cdef Py_ssize_t number
    cdef int64_t value = 0
    if text.at is NULL or not 0 < text.size < 19:
        return -1
    for number in range(text.size):
        if not c"0" <= text.at[number] <= c"9":
            return -1
        value = 10 * value + text.at[number] - c"0"
    return value


cdef Py_ssize_t without_wait(uint8_t *text, Py_ssize_t size):
    """Take out a WAIT that is true, and a separator at the end; -1 if there is another WAIT."""
    cdef uint8_t *at = <uint8_t *>find(text, size, b"WAIT\x01", 5)
    cdef uint8_t *end = text + size
    cdef uint8_t *behind
    if at is not NULL:
        behind = at + 9
        if behind > end or memcmp(at + 5, <const char *>b"true", 4) != 0 or behind < end and behind[0] != 2:
            return -1
        if find(behind, end - behind, b"WAIT\x01", 5) is not NULL:
            return -1
        if at == text:
            if behind < end:
                behind += 1
        elif (at - 1)[0] == 2:
            at -= 1
        else:
            return -1
        memmove(at, behind, end - behind)
        size = at - text + (end - behind)
    if size and text[size - 1] == 2:
        size -= 1
    return size


cdef bint find_key(const uint8_t *text, Py_ssize_t size, Py_ssize_t *key, int32_t *key_size, bint for_json):
    """Where the unique key lies; -1 without one. False if an answer in JSON would have to escape it."""
    cdef const uint8_t *at = NULL
    cdef const uint8_t *end
    cdef Py_ssize_t number
    key[0], key_size[0] = -1, 0
    if size >= 9 and memcmp(text, <const char *>b"UNIQ_KEY\x01", 9) == 0:
        at = text + 9
    else:
        at = find(text, size, b"\x02UNIQ_KEY\x01", 10)
        if at is NULL:
            return True
        at += 10
    end = <const uint8_t *>memchr(at, 2, text + size - at)
    if end is NULL:
        end = text + size
    key[0], key_size[0] = at - text, <int32_t>(end - at)
    if for_json:
        for number in range(end - at):
            if at[number] < 32 or at[number] == c'"' or at[number] == c"\\" or at[number] == 127:
                return False
    return True


cdef bint find_tag(const uint8_t *text, Py_ssize_t size, int32_t *code):
    """The hash of the tag, 0 without one. False if there are several."""
    cdef const uint8_t *at = text
    cdef const uint8_t *end = text + size
    cdef uint32_t value = 0
    cdef bint found = False
    while True:
        at = find(at, end - at, b"TAGS\x01", 5)
        if at is NULL:
            break
        at += 5
        if at - 5 != text and (at - 6)[0] != 2:
            continue
        if found:
            return False
        found = True
        while at < end and at[0] != 2:
            value = 31 * value + at[0]
            at += 1
    code[0] = <int32_t>value
    return True
