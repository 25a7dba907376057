# A part of send_run.pyx: puts text and numbers into answers.

cdef inline uint8_t *put_text(uint8_t *at, const char *text, Py_ssize_t size):
    memcpy(at, text, size)
    return at + size


cdef inline uint8_t *put_bytes(uint8_t *at, bytes text):
    memcpy(at, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    return at + PyBytes_GET_SIZE(text)


cdef uint8_t *put_number(uint8_t *at, int64_t number):
    cdef uint8_t digits[24]
    cdef int count = 0
    cdef uint64_t value = <uint64_t>number
    if number < 0:
        at[0] = c"-"
        at += 1
        value = 0 - value
    while True:
        digits[count] = c"0" + value % 10
        count += 1
        value //= 10
        if not value:
            break
    while count:
        count -= 1
        at[0] = digits[count]
        at += 1
    return at


cdef uint8_t *put_hex(uint8_t *at, int64_t number):
    cdef int digit
    for digit in range(16):
        at[digit] = b"0123456789ABCDEF"[(<uint64_t>number >> (60 - 4 * digit)) & 15]
    return at + 16
