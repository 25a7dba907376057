# A part of send_run.pyx: signatures of sends, checked with the SHA-1 of OpenSSL.

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
        cdef uint8_t digest[DIGEST + 1]
        cdef uint8_t gathered[GATHERED]  # one call for all the short fields takes half the time
        cdef Py_ssize_t used = 0, size
        cdef const uint8_t *at
        cdef uint8_t differs = 0
        cdef int letter, number
        cdef uint32_t three
        memcpy(context, self._inner, CONTEXT)
        for letter in range(-1, 26):  # "AccessKey" comes before the letters
            if letter < 0:
                at, size = fields.access_key.at, fields.access_key.size
            elif letter == c"i" - c"a":
                at, size = text, text_size
            else:
                at, size = fields.by_letter[letter].at, fields.by_letter[letter].size
            if at is NULL:
                continue
            if size > GATHERED - used:
                sha1_update(context, gathered, used)
                used = 0
            if size > GATHERED:
                sha1_update(context, at, size)
            else:
                memcpy(gathered + used, at, size)
                used += size
        sha1_update(context, gathered, used)
        sha1_update(context, body, body_size)
        sha1_final(digest, context)
        memcpy(context, self._outer, CONTEXT)
        sha1_update(context, digest, DIGEST)
        sha1_final(digest, context)
        digest[DIGEST] = 0
        for number in range(7):  # 20 bytes are 27 characters in base 64, and one to fill up
            three = digest[3 * number] << 16 | digest[3 * number + 1] << 8 | digest[3 * number + 2]
            for letter in range(4):
                differs |= fields.signature.at[4 * number + letter] ^ (
                    c"=" if number == 6 and letter == 3 else BASE_64[three >> (18 - 6 * letter) & 63]
                )
        return differs == 0
