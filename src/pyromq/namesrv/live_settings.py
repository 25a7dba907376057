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
    """Settings that can be exchanged. Read `config` anew each time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.config = settings[NamesrvConfig]
        # Fixed at the start, so that nobody can empty the list first and change the rest then.
        self._black_list = self.config.black_list

    def reload_log_levels(self) -> None:
        """Take over the levels that the file of the settings names now. ConfigError if it is malformed."""
        before = self.settings[LogConfig]
        self.settings = with_levels_of(Path(self.config.config_store_path), self.settings)
        apply_log_levels(self.settings[LogConfig], before)

    def planned(self, text: bytes, peer: str) -> Update:
        """What a properties text would change: all of it, or a BrokerError and none of it."""
        return changed_by_request(
            self.settings,
            text,
            peer,
            black_list=self._black_list,
            check=check_settings,
            file=self.config.config_store_path,
        )

    def apply(self, update: Update, peer: str) -> None:
        """Let a planned change, the first since it was planned, take effect."""
        if any(key.startswith(LOG_LEVEL) for key in update.changed):
            apply_log_levels(update.settings[LogConfig], self.settings[LogConfig])
        self.settings = update.settings
        self.config = update.settings[NamesrvConfig]
        log_change(update, peer)
