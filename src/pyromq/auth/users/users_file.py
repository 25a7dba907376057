"""The file of users and policies, users.json: secrets are encrypted, and only its owner may read it."""

from __future__ import annotations

import logging
import stat
from typing import TYPE_CHECKING

import msgspec

from pyromq.errors import ConfigError, RemoteProtocolError
from pyromq.protocol.bodies import AclInfo, Body, UserInfo
from pyromq.protocol.bodies.base import written
from pyromq.settings.files import replace_file

from ..authority import Refused
from .conversion import acl_info, policies_of, user_of
from .model import Accounts, User, UserStatus, UserType, by_name

if TYPE_CHECKING:
    from pathlib import Path

    from .vault import Vault

logger = logging.getLogger(__name__)

_PRIVATE = 0o600
# Far above what a broker with a hundred thousand users needs.
MAX_SIZE = 64 * 1024 * 1024

# Tells one state of a file from another; None while there is no file.
Stamp = tuple[int, int, int] | None


class _Saved(Body, frozen=True, kw_only=True):
    """What the file holds. Passwords are texts of the vault."""

    acls: list[AclInfo] = written([])
    users: list[UserInfo] = written([])


class UsersFile:
    """Blocking: call it off the event loop, one call at a time."""

    def __init__(self, path: Path, vault: Vault) -> None:
        self.path = path
        self._vault = vault
        # Secrets that are encrypted already, by user: what does not change is not encrypted again.
        self._sealed: dict[str, tuple[str, str]] = {}

    def stamp(self) -> Stamp:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def load(self) -> Accounts:
        """What the file holds; nobody if there is none. ConfigError if it cannot be used.

        Its .bak is not tried instead: somebody who was deleted or disabled would be back.
        """
        try:
            found = self.path.stat()
            if found.st_size > MAX_SIZE:
                raise ConfigError(f"{self.path} has {found.st_size} bytes; at most {MAX_SIZE} are read")
            data = self.path.read_bytes()
        except FileNotFoundError:
            return Accounts()
        except OSError as exc:
            raise ConfigError(f"{self.path} cannot be read: {exc.strerror}") from exc
        if stat.S_IMODE(found.st_mode) & 0o077:
            logger.warning("%s can be read by others than its owner; chmod 600 %s prevents that", self.path, self.path)
        return self.read(data)

    def read(self, data: bytes) -> Accounts:
        """The accounts in the content of a file. ConfigError if it is not one."""
        try:
            saved = _Saved.decode(data)
            users = {info.username: self._user(info) for info in saved.users}
            policies = {user_of(info.subject): policies_of(info.policies) for info in saved.acls}
        except (RemoteProtocolError, Refused) as exc:
            raise ConfigError(f"{self.path} cannot be used: {exc}") from exc
        return Accounts(users, policies)

    def save(self, accounts: Accounts) -> None:
        """Return once the accounts survive a power failure. OSError leaves the file as it was."""
        saved = _Saved(
            users=[self._info(user) for user in accounts.users.values()],
            acls=[acl_info(name, policies) for name, policies in accounts.policies.items()],
        )
        self._sealed = {name: sealed for name, sealed in self._sealed.items() if name in accounts.users}
        replace_file(self.path, msgspec.json.format(saved.encode(), indent=1) + b"\n", mode=_PRIVATE)

    def _user(self, info: UserInfo) -> User:
        kind, status = by_name(UserType, info.user_type), by_name(UserStatus, info.user_status)
        if not info.username or kind is None or status is None:
            raise ConfigError(f"{self.path} cannot be used: user {info.username!r} has no type or status")
        secret = self._vault.open(info.username, info.password or "")
        self._sealed[info.username] = (secret, info.password or "")
        return User(info.username, secret, kind, status)

    def _info(self, user: User) -> UserInfo:
        secret, sealed = self._sealed.get(user.name, ("", ""))
        if not sealed or secret != user.secret:
            sealed = self._vault.seal(user.name, user.secret)
            self._sealed[user.name] = (user.secret, sealed)
        return UserInfo(username=user.name, password=sealed, user_type=user.type.value, user_status=user.status.value)
