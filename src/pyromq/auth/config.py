"""Settings of access control that brokers, name servers and controllers share, under RocketMQ's own keys."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pyromq.errors import ConfigError
from pyromq.remoting import SigningHook
from pyromq.settings import option

if TYPE_CHECKING:
    from pyromq.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessConfig:
    """Whether requests must be signed, and how a server signs its own."""

    acl_enable: bool = option(
        "aclEnable",
        False,
        "Set to true to let in only the accounts of RocketMQ 4.x files, each with its own rights.",
    )
    acl_strict: bool = option(
        "aclStrict",
        True,
        "Set to false to check as little as RocketMQ 4.x does: it lets every account send batches, reset offsets and "
        "change accounts.",
    )
    acl_file: str = option(
        "rocketmq.acl.plain.file",
        "conf/plain_acl.yml",
        "File of accounts for aclEnable, with more of them in a folder acl beside it. A relative path is below "
        "ROCKETMQ_HOME; without that, below storePathRootDir (a broker), or beside kvConfigPath (a name server) or in "
        "controllerStorePath (a controller).",
    )
    inner_credentials: str = option(
        "innerClientAuthenticationCredentials",
        "",
        'How this server signs what it asks of other servers: {"accessKey":"…","secretKey":"…"}, an administrator '
        "there. Slaves, and brokers with controllers, need it once access control is on.",
        secret=True,
    )


def account_file(settings: Settings, home: Path) -> Path:
    """The main file of accounts, of a server whose own files are in `home`."""
    config = settings[AccessConfig]
    rocketmq = os.environ.get("ROCKETMQ_HOME")
    if rocketmq:
        home = Path(rocketmq)
        # RocketMQ takes even /conf/plain_acl.yml for a path in there.
        below = home / config.acl_file.lstrip("/")
        if below.exists():
            return below.absolute()
    return (home / config.acl_file).absolute()


class Credentials(msgspec.Struct, frozen=True, rename="camel"):
    """The account of a server, to sign with."""

    access_key: str
    secret_key: str
    security_token: str = ""


def inner_credentials(settings: Settings) -> Credentials | None:
    """The account by which this server signs its requests, if it has one. ConfigError for a malformed one."""
    config = settings[AccessConfig]
    if not config.inner_credentials:
        return None
    try:
        found = msgspec.json.decode(config.inner_credentials, type=Credentials)
    except msgspec.DecodeError:
        found = None
    if found is None or not found.access_key or not found.secret_key:
        # The value holds a secret, so it is not repeated.
        raise ConfigError(
            'innerClientAuthenticationCredentials must be {"accessKey":"…","secretKey":"…"}',
            settings.origin("innerClientAuthenticationCredentials"),
        )
    return found


def signing_hooks(settings: Settings) -> tuple[SigningHook, ...]:
    """The hooks of a client by which this server asks others."""
    found = inner_credentials(settings)
    if found is None:
        return ()
    return (SigningHook(found.access_key, found.secret_key, found.security_token or None),)
