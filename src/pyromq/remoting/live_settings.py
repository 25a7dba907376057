"""The settings of a running name server or controller, and their change at run time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from pyromq.settings import dump
from pyromq.settings.live import BY_REQUEST, changed_by_request, log_change, remark_on

from .log_levels import KEY as LOG_LEVEL
from .log_levels import LogConfig, apply_log_levels, with_levels_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyromq.protocol.command import Command
    from pyromq.settings import Settings, Update
    from pyromq.settings.saved_file import SavedFile

    from .connection import Connection


class ServerOptions(Protocol):
    """What the config of such a server has in any case."""

    @property
    def config_store_path(self) -> str: ...

    @property
    def black_list(self) -> frozenset[str]: ...


C = TypeVar("C", bound=ServerOptions)


class LiveSettings(Generic[C]):
    """Settings that can change at run time. Read `config` afresh each time."""

    def __init__(self, settings: Settings, kind: type[C], check: Callable[[Settings], None]) -> None:
        self.settings = settings
        self.config = settings[kind]
        self._kind = kind
        self._check = check
        # Fixed at the start, so that a request cannot empty the list first and then change the rest.
        self._black_list = self.config.black_list

    def reload_log_levels(self) -> None:
        """Apply the log levels that the settings file names now. ConfigError if it is malformed."""
        before = self.settings[LogConfig]
        self.settings = with_levels_of(Path(self.config.config_store_path), self.settings)
        apply_log_levels(self.settings[LogConfig], before)

    def planned(self, text: bytes, peer: str) -> Update:
        """Plan the changes of a properties text: all of them, or none with a BrokerError."""
        return changed_by_request(
            self.settings,
            text,
            peer,
            black_list=self._black_list,
            check=self._check,
            file=self.config.config_store_path,
        )

    def apply(self, update: Update, peer: str) -> None:
        """Apply a planned change; nothing else may have changed since it was planned."""
        if any(key.startswith(LOG_LEVEL) for key in update.changed):
            apply_log_levels(update.settings[LogConfig], self.settings[LogConfig])
        self.settings = update.settings
        self.config = update.settings[self._kind]
        log_change(update, peer)


class SettingsProcessors(Generic[C]):
    """The server's own settings. A change is saved in the properties file before it takes effect, or refused.

    With `only_changes` the file gets only what was ever changed so: the rest is in another one.
    """

    def __init__(
        self, settings: LiveSettings[C], file: SavedFile, changed: Callable[[], None], *, only_changes: bool = False
    ) -> None:
        self._settings = settings
        self._file = file
        self._changed = changed
        self._only_changes = only_changes
        self._turn = asyncio.Lock()

    async def update(self, connection: Connection, request: Command) -> Command:
        if request.body is None:
            return request.reply()
        async with self._turn:
            update = self._settings.planned(request.body_bytes, connection.peer)
            await self._file.save(dump(self._kept(update.settings)).encode())
            self._settings.apply(update, connection.peer)
            self._changed()
        return request.reply(remark=remark_on(update))

    def get(self, connection: Connection, request: Command) -> Command:
        return request.reply(body=dump(self._settings.settings.items(reveal=False)).encode())

    def _kept(self, settings: Settings) -> list[tuple[str, str]]:
        items = settings.items()
        if not self._only_changes:
            return items
        now_or_before = (BY_REQUEST, f"{self._file.path}:")
        return [(key, value) for key, value in items if settings.origin(key).startswith(now_or_before)]
