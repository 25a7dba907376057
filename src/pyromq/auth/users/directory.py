"""All users and policies of a server. A change counts, and is answered, once it is on disk."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError, NotSaved

from .changes import with_user
from .model import Accounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .model import User
    from .users_file import UsersFile

logger = logging.getLogger(__name__)

_LOOK = 1.0  # seconds between two looks whether somebody else changed the file


class UserDirectory:
    """Who there is, and what they may do. `changed` is called after every change.

    `givens` are users that are always there: those of the settings. A server that does not own the file, as a name
    server beside a broker, only reads it.
    """

    def __init__(self, file: UsersFile, givens: Iterable[User] = (), *, owns_file: bool = True) -> None:
        self._file = file
        self._givens = tuple(givens)
        self._owns_file = owns_file
        self._stamp = file.stamp()
        self._look_now = asyncio.Event()
        self._changing = asyncio.Lock()
        self._under_way: set[asyncio.Task[None]] = set()
        self.accounts = Accounts()
        self.changed: Callable[[], None] = lambda: None

    def load(self, migrated: Callable[[Accounts], Accounts] = lambda accounts: accounts) -> None:
        """Read the file, and add whoever it lacks. Blocking. ConfigError if it cannot be used or written."""
        self._stamp = self._file.stamp()
        found = self._file.load()
        wanted = migrated(self._with_givens(found))
        if self._owns_file and wanted != found:
            try:
                self._file.save(wanted)
            except OSError as exc:
                raise ConfigError(f"{self._file.path} cannot be written: {exc.strerror}") from exc
            self._stamp = self._file.stamp()
        self._take(wanted)

    async def change(self, make: Callable[[Accounts], Accounts]) -> None:
        """Make other accounts of those that there are. NotSaved leaves them as they were, as does what `make` raises.

        Who is cancelled only stops waiting.
        """
        task = asyncio.create_task(self._change(make), name="change users")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        await asyncio.shield(task)

    async def take_over(self, accounts: Accounts) -> bool:
        """Have what a master has, and the users of the settings. Whether that was a change."""
        wanted = self._with_givens(accounts)
        if wanted == self.accounts:
            return False
        await self.change(lambda _: wanted)
        return True

    async def run(self) -> None:
        """Read the file again whenever somebody else has changed it, until cancelled. A broken one changes nothing."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await self._look_now.wait()
            self._look_now.clear()
            try:
                await self.look()
            except OSError as exc:
                logger.error("%s cannot be looked at: %s", self._file.path, exc.strerror)

    def look_now(self) -> None:
        """Somebody says that the file has changed."""
        self._look_now.set()

    async def look(self) -> None:
        """Read the file again if somebody else has changed it."""
        async with self._changing:
            if await asyncio.to_thread(self._file.stamp) == self._stamp:
                return
            self._stamp = await asyncio.to_thread(self._file.stamp)
            try:
                found = await asyncio.to_thread(self._file.load)
            except ConfigError as exc:
                logger.error("%s; users and policies stay as they were", exc)
                return
            self._take(self._with_givens(found))
        logger.info("%s read again: %d users", self._file.path, len(self.accounts.users))

    async def close(self) -> None:
        """Wait for changes that are being written."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _change(self, make: Callable[[Accounts], Accounts]) -> None:
        async with self._changing:
            accounts = make(self.accounts)
            if accounts == self.accounts:
                return
            try:
                await asyncio.to_thread(self._file.save, accounts)
            except OSError as exc:
                logger.error("%s not written: %s", self._file.path, exc.strerror)
                raise NotSaved(self._file.path.name, exc) from exc
            self._stamp = await asyncio.to_thread(self._file.stamp)
            self._take(accounts)

    def _take(self, accounts: Accounts) -> None:
        self.accounts = accounts
        self.changed()

    def _with_givens(self, accounts: Accounts) -> Accounts:
        for user in self._givens:
            if user.name not in accounts.users:
                accounts = with_user(accounts, user)
        return accounts
