"""Settings of users and policies, under RocketMQ 5's own keys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from pyromq.errors import ConfigError
from pyromq.settings import option

from .model import User, UserType

if TYPE_CHECKING:
    from pyromq.settings import Settings

_ALL_IN_MEMORY = "All users and policies are in memory."
_BUILT_IN = "Users and policies are kept by the broker itself."
_STRATEGY = re.compile(r"(.*\.)?Stateful\w*Strategy|(.*\.)?Stateless\w*Strategy|")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsersConfig:
    """Who must say who they are, and whether that decides what they may do."""

    authentication: bool = option(
        "authenticationEnabled", False, "Take only requests that are signed by a user whom this server knows."
    )
    authorization: bool = option(
        "authorizationEnabled",
        False,
        "Let users do only what their policies allow; super users everything. Needs authenticationEnabled.",
    )
    initial_user: str = option(
        "initAuthenticationUser",
        "",
        'A super user to begin with: {"username":"…","password":"…"}. One that is known already stays as it is.',
        secret=True,
    )
    authentication_whitelist: str = option(
        "authenticationWhitelist", "", "Request codes, separated by commas, that are taken without a signature."
    )
    authorization_whitelist: str = option(
        "authorizationWhitelist", "", "Request codes, separated by commas, that every user may send."
    )
    strategy: str = option(
        "authenticationStrategy",
        "",
        "A name that ends in StatefulAuthenticationStrategy: a signature counts for a whole connection, for "
        "statefulAuthenticationCacheExpiredSecond. Otherwise every request is checked.",
    )
    stateful_seconds: int = option(
        "statefulAuthenticationCacheExpiredSecond",
        60,
        "With a stateful strategy: how many seconds a checked signature counts.",
        min=1,
    )
    stateful_most: int = option(
        "statefulAuthenticationCacheMaxNum",
        10_000,
        "With a stateful strategy: how many connections are remembered.",
        min=1,
    )
    migrate: bool = option(
        "migrateAuthFromV1Enabled",
        False,
        "At the start, make users of the accounts in plain_acl.yml. Users that are known stay as they are.",
    )
    folder: str = option(
        "authConfigPath",
        "",
        "Folder of users.json. Default: config in storePathRootDir (a broker), beside kvConfigPath (a name server) or "
        "in controllerStorePath (a controller). These two only read it, also a broker's, and again when it changes.",
    )
    key_file: str = option(
        "authKeyFile",
        "",
        "File with the key that the secrets in users.json are encrypted with; made when it is first needed. "
        "Default: users.key beside it.",
    )

    provider: str = option("authenticationProvider", "", _BUILT_IN, no_effect=True)
    metadata_provider: str = option("authenticationMetadataProvider", "", _BUILT_IN, no_effect=True)
    authorization_provider: str = option("authorizationProvider", "", _BUILT_IN, no_effect=True)
    authorization_metadata_provider: str = option("authorizationMetadataProvider", "", _BUILT_IN, no_effect=True)
    authorization_strategy: str = option(
        "authorizationStrategy", "", "Decisions are remembered until a user or policy changes.", no_effect=True
    )
    stateful_authorization_most: int = option(
        "statefulAuthorizationCacheMaxNum",
        10_000,
        "Decisions are remembered until a user or policy changes.",
        no_effect=True,
    )
    stateful_authorization_seconds: int = option(
        "statefulAuthorizationCacheExpiredSecond",
        60,
        "Decisions are remembered until a user or policy changes.",
        no_effect=True,
    )
    user_cache_most: int = option("userCacheMaxNum", 1000, _ALL_IN_MEMORY, no_effect=True)
    user_cache_expires: int = option("userCacheExpiredSecond", 600, _ALL_IN_MEMORY, no_effect=True)
    user_cache_refreshed: int = option("userCacheRefreshSecond", 60, _ALL_IN_MEMORY, no_effect=True)
    acl_cache_most: int = option("aclCacheMaxNum", 1000, _ALL_IN_MEMORY, no_effect=True)
    acl_cache_expires: int = option("aclCacheExpiredSecond", 600, _ALL_IN_MEMORY, no_effect=True)
    acl_cache_refreshed: int = option("aclCacheRefreshSecond", 60, _ALL_IN_MEMORY, no_effect=True)

    @property
    def is_stateful(self) -> bool:
        return "Stateful" in self.strategy


class _InitialUser(msgspec.Struct, frozen=True):
    username: str
    password: str


def check_users(settings: Settings) -> None:
    """ConfigError for settings that cannot work together, or would let in people who should not be."""
    config = settings[UsersConfig]
    if config.authorization and not config.authentication:
        raise ConfigError(
            "authorizationEnabled needs authenticationEnabled: nobody would have to prove who they are",
            settings.origin("authorizationEnabled"),
        )
    if not _STRATEGY.fullmatch(config.strategy):
        raise ConfigError(
            "authenticationStrategy must end in StatefulAuthenticationStrategy or StatelessAuthenticationStrategy",
            settings.origin("authenticationStrategy"),
        )
    initial_user(settings)


def initial_user(settings: Settings) -> User | None:
    """The user to begin with, if the settings name one. ConfigError for a malformed one."""
    text = settings[UsersConfig].initial_user
    if not text:
        return None
    try:
        found = msgspec.json.decode(text, type=_InitialUser)
    except msgspec.DecodeError:
        found = None
    if found is None or not found.username.strip() or not found.password.strip():
        # The value holds a secret, so it is not repeated.
        raise ConfigError(
            'initAuthenticationUser must be {"username":"…","password":"…"}', settings.origin("initAuthenticationUser")
        )
    return User(found.username, found.password, UserType.SUPER)


def codes_in(whitelist: str) -> frozenset[int]:
    """The request codes in a list. What else stands there is meant for the proxy: names of gRPC requests."""
    return frozenset(int(each) for each in whitelist.replace(" ", "").split(",") if each.isascii() and each.isdecimal())
