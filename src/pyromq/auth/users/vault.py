"""Secrets at rest. A signature can only be checked by somebody who has the secret, so it cannot be kept as a hash.

It is kept encrypted, with AES-256 in GCM, by a key in a file of its own: who gets hold of the list of users has no
secrets. A text is bound to its user: put beside another name it does not open.
"""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError
from pyromq.settings.files import replace_file

if TYPE_CHECKING:
    from pathlib import Path

KEY_SIZE = 32
_NONCE_SIZE = 12
_FORMAT = "aes256gcm:"


class Vault:
    """Encrypts and decrypts secrets with the key in a file, which is made when the first secret is sealed.

    Blocking, and its first use imports a library: call it off the event loop.
    """

    def __init__(self, key_file: Path) -> None:
        self._key_file = key_file
        self._key: bytes | None = None

    def seal(self, name: str, secret: str) -> str:
        """The secret of user `name` as text that only this key opens. OSError if a new key cannot be kept."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if self._key is None:
            self._key = _read(self._key_file) or _made(self._key_file)
        nonce = os.urandom(_NONCE_SIZE)
        sealed = AESGCM(self._key).encrypt(nonce, secret.encode(), name.encode())
        return _FORMAT + base64.b64encode(nonce + sealed).decode()

    def open(self, name: str, text: str) -> str:
        """The secret that was sealed for `name`. ConfigError if the key is missing or another one."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if self._key is None:
            self._key = _read(self._key_file)
            if self._key is None:
                raise ConfigError(f"{self._key_file}, the key to the secrets of users, is missing")
        try:
            if not text.startswith(_FORMAT):
                raise ValueError(text)
            data = base64.b64decode(text.removeprefix(_FORMAT), validate=True)
            return AESGCM(self._key).decrypt(data[:_NONCE_SIZE], data[_NONCE_SIZE:], name.encode()).decode()
        except (InvalidTag, ValueError):
            # What was found is not shown: it may be a secret that somebody wrote in by hand.
            raise ConfigError(f"the secret of user {name} does not open with the key in {self._key_file}") from None


def _read(path: Path) -> bytes | None:
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}") from exc
    except ValueError:
        key = b""
    if len(key) != KEY_SIZE:
        raise ConfigError(f"{path} is not a key: {2 * KEY_SIZE} hexadecimal digits are expected")
    return key


def _made(path: Path) -> bytes:
    key = os.urandom(KEY_SIZE)
    replace_file(path, f"{key.hex()}\n".encode(), mode=0o600)
    return key
