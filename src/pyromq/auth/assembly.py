"""The access control of one server, made from its settings."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pyromq.errors import ConfigError

from .authority import Anyone
from .config import AccessConfig, inner_credentials, signing_hooks
from .guard import RequestGuard
from .refusals import Refusals

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from pyromq.remoting import Rule
    from pyromq.settings import Settings

    from .authority import Authority


@runtime_checkable
class Kept(Protocol):
    """An authority whose accounts are kept in files."""

    def load(self) -> None:
        """Read all files. Blocking. ConfigError for what cannot be used."""

    async def run(self) -> None:
        """Follow changes of the files until cancelled."""


class AccessControl:
    """Made once for a server, whatever role it has: who decides, who guards, and how the server signs requests.

        await asyncio.to_thread(access.load)
        async with access.followed():
            serve(access.guard.over(processors))

    `hooks` belong to the client by which the server asks others.
    """

    def __init__(self, settings: Settings, rules: Mapping[int, Rule], authority: Authority | None = None) -> None:
        """ConfigError for settings that cannot work."""
        self.authority = authority or make_authority(settings)
        self.refusals = Refusals()
        self.guard = RequestGuard(rules, self.authority, self.refusals)
        self.hooks = signing_hooks(settings)

    def load(self) -> None:
        """Read the accounts. Blocking. ConfigError if that fails, since nobody could be let in."""
        if isinstance(self.authority, Kept):
            self.authority.load()

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
    if settings[AccessConfig].acl_enable:
        raise ConfigError("aclEnable is not available yet: requests would not be checked", settings.origin("aclEnable"))


def make_authority(settings: Settings) -> Authority:
    """Who decides on the requests to a server with these settings. Its accounts are still to be loaded."""
    check_access(settings)
    return Anyone()
