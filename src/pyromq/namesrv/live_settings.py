"""The settings of a running name server, and their change at run time (UPDATE_NAMESRV_CONFIG)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.remoting.log_levels import KEY as LOG_LEVEL
from pyromq.remoting.log_levels import LogConfig, apply_log_levels, with_levels_of
from pyromq.settings.live import changed_by_request, log_change

from .config import NamesrvConfig, check_settings

if TYPE_CHECKING:
    from pyromq.settings import Settings, Update


class LiveSettings:
    """Settings that can change at run time. Read `config` afresh each time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.config = settings[NamesrvConfig]
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
            check=check_settings,
            file=self.config.config_store_path,
        )

    def apply(self, update: Update, peer: str) -> None:
        """Apply a planned change; nothing else may have changed since it was planned."""
        if any(key.startswith(LOG_LEVEL) for key in update.changed):
            apply_log_levels(update.settings[LogConfig], self.settings[LogConfig])
        self.settings = update.settings
        self.config = update.settings[NamesrvConfig]
        log_change(update, peer)
