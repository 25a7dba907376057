"""The access control of one server, made from its settings."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pyromq.errors import ConfigError
from pyromq.remoting import RateLimits, ServerConfig

from .acl import PlainAcl
from .acl.folder import AccountFiles
from .authority import Anyone
from .config import AccessConfig, account_file, inner_credentials, signing_hooks
from .guard import RequestGuard
from .refusals import Refusals
from .users import UserAuthority, UsersConfig, check_users

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from pyromq.remoting import Rule
    from pyromq.settings import Settings

    from .acl.folder import Rules
    from .authority import Authority
    from .users.model import Accounts

logger = logging.getLogger("pyromq.security")


@runtime_checkable
class Kept(Protocol):
    """An authority whose accounts are kept in files."""

    def load(self) -> None:
        """Read all files. Blocking. ConfigError for what cannot be used."""

    async def run(self) -> None:
        """Follow changes of the files until cancelled."""

    def look_now(self) -> None:
        """Somebody says that the files have changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What access control depends on, of a server.

    Its own files are in `home`. A name server has `only_changes`: the rest of its requests are open to everybody.
    `asks` names those that this server asks for what not everybody gets.
    """

    rules: Mapping[int, Rule]
    home: Path
    only_changes: bool = False
    asks: str = ""


class AccessControl:
    """Made once for a server, whatever role it has: who decides, who guards, and how the server signs requests.

        await asyncio.to_thread(access.load)
        async with access.followed():
            serve(access.guard.over(processors))

    `hooks` belong to the client by which the server asks others. Without access control, `otherwise` decides.
    """

    def __init__(self, settings: Settings, server: Server, otherwise: Authority | None = None) -> None:
        """ConfigError for settings that cannot work."""
        self._settings = settings
        self._server = server
        self.authority = make_authority(settings, server) or otherwise or Anyone()
        self.refusals = Refusals()
        self._rates = RateLimits.of(settings.kind_of(ServerConfig))
        self.guard = RequestGuard(server.rules, self.authority, self.refusals, self._rates)
        # Called when what `guard.over` gave is old.
        self.guard_changed: Callable[[], None] = lambda: None
        self.hooks = signing_hooks(settings)

    def load(self) -> None:
        """Read the accounts. Blocking. ConfigError if that fails, since nobody could be let in."""
        if isinstance(self.authority, Kept):
            self.authority.load()
        if isinstance(self.authority, PlainAcl):
            check_own_account(self._settings, self._server, self.authority.files.rules)
        if isinstance(self.authority, UserAuthority):
            check_own_user(self._settings, self._server, self.authority.directory.accounts)

    @property
    def plain_acl(self) -> PlainAcl | None:
        """The accounts of 4.x, if it is they who decide."""
        return self.authority if isinstance(self.authority, PlainAcl) else None

    @property
    def users(self) -> UserAuthority | None:
        """The users of 5.x, if it is they who decide."""
        return self.authority if isinstance(self.authority, UserAuthority) else None

    def reload(self) -> None:
        """Look now for changes of the files."""
        if isinstance(self.authority, Kept):
            self.authority.look_now()

    def reconfigure(self, settings: Settings) -> None:
        """Settings were changed at run time: take over the limits among them."""
        was_on = self._rates.is_on
        self._rates.change(settings.kind_of(ServerConfig))
        if self._rates.is_on != was_on:
            self.guard_changed()

    @contextlib.asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Meanwhile, changes of the files take effect by themselves."""
        if not isinstance(self.authority, Kept):
            yield
            return
        following = asyncio.create_task(self.authority.run(), name="follow accounts")
        try:
            yield
        finally:
            following.cancel()
            await asyncio.wait([following])


def check_access(settings: Settings) -> None:
    """ConfigError for settings that no server can have."""
    inner_credentials(settings)
    check_users(settings)
    if settings[AccessConfig].acl_enable and settings[UsersConfig].authentication:
        raise ConfigError(
            "aclEnable and authenticationEnabled exclude each other; migrateAuthFromV1Enabled makes users of accounts",
            settings.origin("aclEnable"),
        )


def wants_accounts(settings: Settings) -> bool:
    """Whether access control of either generation is on."""
    return settings[AccessConfig].acl_enable or settings[UsersConfig].authentication


def make_authority(settings: Settings, server: Server) -> Authority | None:
    """Who decides on the requests to a server; None if nobody does. Its accounts are still to be loaded."""
    check_access(settings)
    config = settings[AccessConfig]
    if config.acl_enable:
        files = AccountFiles(account_file(settings, server.home))
        return PlainAcl(files, strict=config.acl_strict, only_changes=server.only_changes)
    if settings[UsersConfig].authentication:
        return UserAuthority.of(settings, server.home, only_changes=server.only_changes)
    return None


def check_own_account(settings: Settings, server: Server, rules: Rules) -> None:
    """ConfigError if this server could not sign what others want signed, as far as it can tell by its own accounts.

    The servers of a cluster have the same accounts, unless somebody gave them different files on purpose.
    """
    own = inner_credentials(settings)
    key = "innerClientAuthenticationCredentials"
    if own is None:
        if server.asks and not rules.white:
            raise ConfigError(
                f"aclEnable needs {key}: {server.asks} would refuse requests without a signature",
                settings.origin("aclEnable"),
            )
        return
    account = rules.accounts.get(own.access_key)
    if account is None:
        logger.warning("%s: the accounts of this server do not have %s", key, own.access_key)
        return
    if account.secret_key != own.secret_key:
        raise ConfigError(f"{key}: the accounts have another secretKey for {own.access_key}", settings.origin(key))
    if not account.may_all:
        raise ConfigError(f"{key}: {own.access_key} must be an administrator without limits", settings.origin(key))


def check_own_user(settings: Settings, server: Server, accounts: Accounts) -> None:
    """ConfigError if this server could not sign what others want signed, as far as it can tell by its own users."""
    own = inner_credentials(settings)
    key = "innerClientAuthenticationCredentials"
    if own is None:
        if server.asks:
            raise ConfigError(
                f"authenticationEnabled needs {key}: {server.asks} would refuse requests without a signature",
                settings.origin("authenticationEnabled"),
            )
        return
    user = accounts.users[own.access_key]
    if user.secret != own.secret_key:
        raise ConfigError(f"{key}: user {user.name} has another secret", settings.origin(key))
    if not user.is_super or not user.is_enabled:
        raise ConfigError(f"{key}: {user.name} must be a super user, and enabled", settings.origin(key))
