"""RocketMQ's request signatures: HMAC-SHA1 over the values of the header and the body.

It covers (docs/spec/remoting.md 7.1) all ext values but the signature itself, ordered by key, then the body, but not
code, number, version and flags: a signature proves who sent these values, not which request they belong to.
"""

from __future__ import annotations

import binascii
import functools
import hashlib
import hmac
import itertools
import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from pyromq.protocol.command import Command

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"

_UNSIGNED = frozenset((SIGNATURE,))
_SOMETIMES_UNSIGNED = (
    ("_UNIQUE_KEY_QUERY",),  # clients up to 4.9.3
    (SECURITY_TOKEN,),  # Go
    ("__ZONE_NAME", "__ZONE_MODE"),  # 5.x adds them after signing
)
_BLOCK = 64  # bytes that SHA-1 takes at a time


def signature(command: Command, secret_key: str, leave_out: Collection[str] = ()) -> str:
    """The signature of `command` with `secret_key`, over everything but `leave_out`."""
    return _signature(command, secret_key, _UNSIGNED.union(leave_out)).decode()


def _signature(command: Command, secret_key: str, leave_out: frozenset[str]) -> bytes:
    ext = command.ext or {}
    inner, outer = _keyed(secret_key)
    inner, outer = inner.copy(), outer.copy()
    # Text that is not Unicode ends here: a header cannot carry it.
    inner.update("".join(_in_order(tuple(ext), leave_out)(ext)).encode("utf-8", "replace"))
    inner.update(command.body_bytes)
    outer.update(inner.digest())
    return binascii.b2a_base64(outer.digest(), newline=False)


@functools.lru_cache(maxsize=1024)
def _keyed(secret_key: str) -> tuple[hashlib._Hash, hashlib._Hash]:
    """The two hashes of HMAC (RFC 2104) with their keys, to be copied; what the inner one gives goes into the outer.

    It takes as long to prepare a key as to sign a kilobyte with it, and a copy of `hmac.HMAC` as long as five of these.
    """
    key = secret_key.encode("utf-8", "replace")
    if len(key) > _BLOCK:
        key = hashlib.sha1(key).digest()
    key = key.ljust(_BLOCK, b"\0")
    return hashlib.sha1(bytes(byte ^ 0x36 for byte in key)), hashlib.sha1(bytes(byte ^ 0x5C for byte in key))


# Few: a client has a dozen of headers, and anybody who knows a name can send very long ones.
@functools.lru_cache(maxsize=64)
def _in_order(keys: tuple[str, ...], leave_out: frozenset[str]) -> Callable[[dict[str, str]], Iterable[str]]:
    """Takes the signed values out of a header with these keys."""
    signed = sorted(key for key in keys if key not in leave_out)
    if len(signed) > 1:
        return operator.itemgetter(*signed)
    return lambda ext: [ext[key] for key in signed]


def is_signed_by(command: Command, secret_key: str) -> bool:
    """Whether `command` carries a signature made with `secret_key`.

    Clients disagree on some fields, so this tries all known variants; each still needs the secret.
    """
    given = (command.ext or {}).get(SIGNATURE, "").encode("utf-8", "replace")
    # Most sign everything, so that is tried apart.
    return hmac.compare_digest(_signature(command, secret_key, _UNSIGNED), given) or any(
        hmac.compare_digest(_signature(command, secret_key, _UNSIGNED | leave_out), given)
        for leave_out in _variants(command)
    )


def _variants(command: Command) -> Iterator[set[str]]:
    """The sets of fields that some client leaves unsigned, smallest first."""
    ext = command.ext or {}
    unsigned = [fields for fields in _SOMETIMES_UNSIGNED if any(field in ext for field in fields)]
    for count in range(len(unsigned) + 1):
        for chosen in itertools.combinations(unsigned, count):
            yield {field for fields in chosen for field in fields}


@dataclass(frozen=True, slots=True)
class SigningHook:
    """Signs every request that a client sends."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def before_request(self, peer: str, request: Command) -> None:
        ext = dict(request.ext or {})
        ext[ACCESS_KEY] = self.access_key
        if self.security_token:
            ext[SECURITY_TOKEN] = self.security_token
        request.ext = ext
        ext[SIGNATURE] = signature(request, self.secret_key)

    def after_response(self, peer: str, request: Command, response: Command | None) -> None:
        pass
