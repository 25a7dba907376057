"""Proof that both ends of a line of replication know `haSecret`, before anything else is said. Bytes to values, no IO.

    slave -> master    MAGIC | nonce                who am I talking to?
    master -> slave    CHALLENGE | nonce            or REFUSAL | length | why
    slave -> master    proof
    master -> slave    PROOF | proof                or REFUSAL | length | why

A proof is the HMAC-SHA256 of the role, both nonces and the fingerprint of the certificate that the master shows, under
the secret. The slave goes first: it is easier to call a master than to pass for one. Because of the fingerprint nobody
can stand in between, even with a certificate that no authority has signed; without TLS the bytes that follow are
neither hidden nor protected. This is ours: brokers of RocketMQ's know nothing of it.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from hashlib import sha256

from pyromq.errors import RemoteProtocolError

# The first byte is that of no report (0), no handshake of controller mode (0) and no TLS (0x16).
MAGIC = b"PyroMQ-1"
NONCE = 32
PROOF_SIZE = 32
HELLO_SIZE = len(MAGIC) + NONCE

_CHALLENGE, _PROOF, _REFUSAL = b"?", b"=", b"!"
_LENGTH = struct.Struct(">H")
_LONGEST = 500

WRONG_SECRET = "the haSecret of the slave is not that of the master"


class NotProven(RemoteProtocolError):
    """The other end does not know the secret, or says that this one does not."""


class MasterProof:
    """The master's side, for one connection. `fingerprint` is that of its certificate, empty without TLS."""

    def __init__(self, secret: str, fingerprint: bytes = b"") -> None:
        self._secret = secret
        self._fingerprint = fingerprint
        self._nonces = b""

    def challenge(self, hello: bytes) -> bytes:
        """Answer the first HELLO_SIZE bytes of a slave. NotProven if it says something else."""
        if not hello.startswith(MAGIC):
            raise NotProven("the slave does not prove that it knows haSecret; set the same haSecret there")
        own = secrets.token_bytes(NONCE)
        self._nonces = hello[len(MAGIC) :] + own
        return _CHALLENGE + own

    def checked(self, proof: bytes) -> bytes:
        """Answer the proof of a slave. NotProven if it is wrong."""
        if not hmac.compare_digest(proof, _proof(self._secret, b"slave", self._nonces, self._fingerprint)):
            raise NotProven(WRONG_SECRET)
        return _PROOF + _proof(self._secret, b"master", self._nonces, self._fingerprint)


def refusal(reason: str) -> bytes:
    """What a slave is told that is sent away."""
    text = reason.encode()[:_LONGEST]
    return _REFUSAL + _LENGTH.pack(len(text)) + text


class SlaveProof:
    """The slave's side, for one connection. `fingerprint` is that of the certificate that the master showed."""

    def __init__(self, secret: str, fingerprint: bytes = b"") -> None:
        self._secret = secret
        self._fingerprint = fingerprint
        self._nonce = secrets.token_bytes(NONCE)
        self._nonces = b""
        self._came = b""
        self.is_done = False

    def hello(self) -> bytes:
        return MAGIC + self._nonce

    def feed(self, data: bytes) -> bytes:
        """Take what the master says, in any pieces. Gives what to answer. NotProven says why there is no way on."""
        self._came += data
        kind = self._came[:1]
        if kind == _REFUSAL:
            self._refused()
        elif kind == _CHALLENGE and not self._nonces:
            if len(self._came) > 1 + NONCE:
                raise NotProven("it sent more than a challenge")
            if len(self._came) == 1 + NONCE:
                self._nonces, self._came = self._nonce + self._came[1:], b""
                return _proof(self._secret, b"slave", self._nonces, self._fingerprint)
        elif kind == _PROOF and self._nonces:
            if len(self._came) > 1 + PROOF_SIZE:
                raise NotProven("it sent more than its proof")
            if len(self._came) == 1 + PROOF_SIZE:
                wanted = _proof(self._secret, b"master", self._nonces, self._fingerprint)
                if not hmac.compare_digest(self._came[1:], wanted):
                    raise NotProven("it does not know the haSecret of this slave")
                self.is_done = True
        else:
            raise NotProven("it does not prove that it knows haSecret; set the same haSecret there")
        return b""

    def _refused(self) -> None:
        head = 1 + _LENGTH.size
        if len(self._came) < head:
            return
        (size,) = _LENGTH.unpack_from(self._came, 1)
        if size > _LONGEST or len(self._came) >= head + size:
            text = self._came[head : head + min(size, _LONGEST)].decode("utf-8", "replace")
            raise NotProven("it refuses this slave: " + "".join(each if each.isprintable() else "?" for each in text))


def _proof(secret: str, role: bytes, nonces: bytes, fingerprint: bytes) -> bytes:
    return hmac.digest(secret.encode(), role + nonces + fingerprint, sha256)
