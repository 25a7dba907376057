# A part of send_run.pyx: signatures of sends, checked one by one with the SHA-1 of OpenSSL, or many side by side.

cdef extern from "sha1_lanes.h":
    enum:
        SHA1_LANES
    bint sha1_has_lanes()
    void sha1_lanes(uint32_t *state, const uint8_t *const *texts, size_t offset)

cdef enum:
    WORDS = 5                # of the state of SHA-1
    LANE = 8192              # bytes of a text in a lane, with what fills up its last block
    FEW = 5                  # that are faster one by one

cdef const char *BASE_64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


# SHA-1 of OpenSSL, as `use_sha1` found it; NULL without it.
ctypedef int (*Sha1Init)(void *)
ctypedef int (*Sha1Update)(void *, const void *, size_t)
ctypedef int (*Sha1Final)(uint8_t *, void *)
cdef Sha1Init sha1_init = NULL
cdef Sha1Update sha1_update = NULL
cdef Sha1Final sha1_final = NULL


def use_sha1(size_t init, size_t update, size_t final):
    """Sign with these functions of a library that is loaded: SHA1_Init, SHA1_Update and SHA1_Final."""
    global sha1_init, sha1_update, sha1_final
    sha1_init, sha1_update, sha1_final = <Sha1Init>init, <Sha1Update>update, <Sha1Final>final


cdef class Pass:
    """Lets sends of one account to one topic pass that are signed with its secret."""

    cdef uint8_t _inner[CONTEXT]
    cdef uint8_t _outer[CONTEXT]

    def __cinit__(self, bytes secret):
        cdef uint8_t pad[BLOCK]
        cdef uint8_t key[BLOCK]
        cdef int number
        if sha1_init is NULL:
            raise ValueError("there is no SHA-1 to sign with")
        memset(key, 0, BLOCK)
        if PyBytes_GET_SIZE(secret) > BLOCK:
            sha1_init(self._inner)
            sha1_update(self._inner, PyBytes_AS_STRING(secret), PyBytes_GET_SIZE(secret))
            sha1_final(key, self._inner)
        else:
            memcpy(key, PyBytes_AS_STRING(secret), PyBytes_GET_SIZE(secret))
        for number in range(BLOCK):
            pad[number] = key[number] ^ 0x36
        sha1_init(self._inner)
        sha1_update(self._inner, pad, BLOCK)
        for number in range(BLOCK):
            pad[number] = key[number] ^ 0x5C
        sha1_init(self._outer)
        sha1_update(self._outer, pad, BLOCK)

    cdef bint admits(self, Fields *fields, const uint8_t *text, Py_ssize_t text_size, const uint8_t *body,
                     Py_ssize_t body_size):
        """Whether the signature is that of these fields, in the order of their names, and the body."""
        cdef uint8_t context[CONTEXT]
        cdef uint8_t digest[DIGEST]
        cdef uint8_t gathered[GATHERED]  # one call for all the short fields takes half the time
        cdef Py_ssize_t used = 0
        cdef int letter
        cdef Text field
        memcpy(context, self._inner, CONTEXT)
        for letter in range(-1, 26):
            field = signed_field(fields, letter, text, text_size)
            if field.at is NULL:
                continue
            if field.size > GATHERED - used:
                sha1_update(context, gathered, used)
                used = 0
            if field.size > GATHERED:
                sha1_update(context, field.at, field.size)
            else:
                memcpy(gathered + used, field.at, field.size)
                used += field.size
        sha1_update(context, gathered, used)
        sha1_update(context, body, body_size)
        sha1_final(digest, context)
        memcpy(context, self._outer, CONTEXT)
        sha1_update(context, digest, DIGEST)
        sha1_final(digest, context)
        return is_signature(fields.signature.at, digest)


cdef inline Text signed_field(Fields *fields, int letter, const uint8_t *text, Py_ssize_t text_size):
    """What is signed of a field: "AccessKey" is before the letters, and the properties are signed as `text` has them."""
    cdef Text field
    if letter < 0:
        return fields.access_key
    if letter == c"i" - c"a":
        field.at, field.size, field.escaped = text, text_size, False
        return field
    return fields.by_letter[letter]


cdef bint is_signature(const uint8_t *given, const uint8_t *digest):
    """Whether `given` is the digest in base 64: 27 characters, and one to fill up. Takes the same time for any."""
    cdef uint8_t differs = given[SIGNATURE - 1] ^ c"="
    cdef uint32_t three
    cdef int number, letter
    for number in range(7):
        three = digest[3 * number] << 16 | digest[3 * number + 1] << 8
        if number < 6:
            three |= digest[3 * number + 2]
        for letter in range(4 if number < 6 else 3):
            differs |= given[4 * number + letter] ^ BASE_64[three >> (18 - 6 * letter) & 63]
    return differs == 0


cdef struct Claim:           # of a send that was taken before its signature is checked
    Py_ssize_t message       # its number in the run
    Py_ssize_t blocks
    const uint8_t *signature


# The claims of a call of `take`, and what is signed of each; none is left when it returns.
cdef bint has_lanes = sha1_has_lanes()
cdef Claim claims[SHA1_LANES]
cdef int claimed = 0
cdef uint8_t lanes[SHA1_LANES][LANE]
cdef uint32_t inner_lanes[WORDS * SHA1_LANES]
cdef uint32_t outer_lanes[WORDS * SHA1_LANES]


cdef bint claim(Pass by, Py_ssize_t message, Fields *fields, const uint8_t *text, Py_ssize_t text_size,
                const uint8_t *body, Py_ssize_t body_size):
    """Note what has to be checked of a message; False if it is too long."""
    global claimed
    cdef uint8_t *lane = lanes[claimed]
    cdef Py_ssize_t used = 0, size
    cdef int letter, word
    cdef Text field
    for letter in range(-1, 26):
        field = signed_field(fields, letter, text, text_size)
        if field.at is NULL:
            continue
        if field.size > LANE - BLOCK - used:
            return False
        memcpy(lane + used, field.at, field.size)
        used += field.size
    if body_size > LANE - BLOCK - used:
        return False
    memcpy(lane + used, body, body_size)
    used += body_size
    size = fill_up(lane, used)
    for word in range(WORDS):  # the first words of OpenSSL's context are the state
        inner_lanes[word * SHA1_LANES + claimed] = (<uint32_t *>by._inner)[word]
        outer_lanes[word * SHA1_LANES + claimed] = (<uint32_t *>by._outer)[word]
    claims[claimed].message, claims[claimed].blocks = message, size // BLOCK
    claims[claimed].signature = fields.signature.at
    claimed += 1
    return True


cdef void unclaim(Py_ssize_t message):
    """Forget the claims of the messages from this number on."""
    global claimed
    while claimed and claims[claimed - 1].message >= message:
        claimed -= 1


cdef Py_ssize_t fill_up(uint8_t *text, Py_ssize_t size):
    """End a text that comes after one block as SHA-1 wants it; gives the size with that."""
    cdef Py_ssize_t filled = (size + 9 + BLOCK - 1) // BLOCK * BLOCK
    text[size] = 0x80
    memset(text + size + 1, 0, filled - size - 1)
    put64(text + filled - 8, 8 * (BLOCK + size))
    return filled


cdef Py_ssize_t settle():
    """Check all claims; gives the number of the first message whose signature is wrong, -1 if there is none."""
    global claimed
    cdef const uint8_t *texts[SHA1_LANES]
    cdef uint8_t digests[SHA1_LANES][BLOCK]
    cdef uint8_t digest[DIGEST]
    cdef Py_ssize_t block, most = 0, wrong = -1
    cdef int lane, word, count = claimed
    claimed = 0
    for lane in range(SHA1_LANES):
        texts[lane] = lanes[lane if lane < count else 0]
    for lane in range(count):
        most = max(most, claims[lane].blocks)
    for block in range(most):
        sha1_lanes(inner_lanes, texts, block * BLOCK)
        for lane in range(count):
            if claims[lane].blocks == block + 1:
                lane_digest(digests[lane], inner_lanes, lane)
                fill_up(digests[lane], DIGEST)
    for lane in range(SHA1_LANES):
        texts[lane] = digests[lane if lane < count else 0]
    sha1_lanes(outer_lanes, texts, 0)
    for lane in range(count):
        lane_digest(digest, outer_lanes, lane)
        if wrong < 0 and not is_signature(claims[lane].signature, digest):
            wrong = claims[lane].message
    return wrong


cdef inline void lane_digest(uint8_t *digest, const uint32_t *state, int lane):
    cdef int word
    for word in range(WORDS):
        put32(digest + 4 * word, state[word * SHA1_LANES + lane])
