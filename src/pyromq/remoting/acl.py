"""RocketMQ's request signatures: HMAC-SHA1 over the values of the header and the body.

It covers (docs/spec/remoting.md 7.1) all ext values but the signature itself, ordered by key, then the body, but not
code, number, version and flags: a signature proves who sent these values, not which request they belong to.
"""

from __future__ import annotations

import binascii
import functools
import hmac
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pyromq.protocol.command import Command

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"

_SOMETIMES_UNSIGNED = (
    ("_UNIQUE_KEY_QUERY",),  # clients up to 4.9.3
    (SECURITY_TOKEN,),  # Go
    ("__ZONE_NAME", "__ZONE_MODE"),  # 5.x adds them after signing
)


def signature(command: Command, secret_key: str, leave_out: Collection[str] = ()) -> str:
    """The signature of `command` with `secret_key`, over everything but `leave_out`."""
    return _signature(command, secret_key, {SIGNATURE, *leave_out}).decode()


def _signature(command: Command, secret_key: str, leave_out: Collection[str]) -> bytes:
    ext = command.ext or {}
    keys = sorted(ext)
    for key in leave_out:
        if key in ext:
            keys.remove(key)
    mac = _keyed(secret_key).copy()
    # Text that is not Unicode ends here: a header cannot carry it.
    mac.update("".join(map(ext.__getitem__, keys)).encode("utf-8", "replace"))
    mac.update(command.body_bytes)
    return binascii.b2a_base64(mac.digest(), newline=False)


@functools.lru_cache(maxsize=1024)
def _keyed(secret_key: str) -> hmac.HMAC:
    """To be copied. It takes as long to prepare a key as to sign a kilobyte with it."""
    return hmac.new(secret_key.encode("utf-8", "replace"), digestmod="sha1")


def is_signed_by(command: Command, secret_key: str) -> bool:
    """Whether `command` carries a signature made with `secret_key`.

    Clients disagree on some fields, so this tries all known variants; each still needs the secret.
    """
    given = (command.ext or {}).get(SIGNATURE, "").encode("utf-8", "replace")
    # Most sign everything, so that is tried apart.
    return hmac.compare_digest(_signature(command, secret_key, (SIGNATURE,)), given) or any(
        hmac.compare_digest(_signature(command, secret_key, {SIGNATURE, *leave_out}), given)
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
