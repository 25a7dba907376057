"""The settings of a running name server, and their change at run time (UPDATE_NAMESRV_CONFIG)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError, NoPermission, ServerError
from pyromq.remoting.log_levels import KEY as LOG_LEVEL
from pyromq.remoting.log_levels import LogConfig, apply_log_levels, with_levels_of
from pyromq.settings import Assignment, parse
from pyromq.settings.properties import decode

from .config import NamesrvConfig

if TYPE_CHECKING:
    from pyromq.settings import Settings

logger = logging.getLogger(__name__)


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

    def update(self, text: bytes, peer: str) -> None:
        """Apply a properties text: all of it, or a BrokerError and none of it."""
        try:
            entries = parse(decode(text))
        except ConfigError as exc:
            raise ServerError("string2Properties error") from exc
        if not self._black_list.isdisjoint(entry.key for entry in entries):
            raise NoPermission("Can not update config in black list.")
        try:
            update = self.settings.updated(Assignment(key, value, f"request from {peer}") for key, value, _ in entries)
        except ConfigError as exc:
            raise ServerError(exc.reason) from exc
        if any(key.startswith(LOG_LEVEL) for key in update.changed):
            apply_log_levels(update.settings[LogConfig], self.settings[LogConfig])
        self.settings = update.settings
        self.config = update.settings[NamesrvConfig]
        for key in update.changed:
            when = "; takes effect at the next start" if key in update.at_restart else ""
            logger.info("setting %s changed by %s%s", key, peer, when)
        if update.ignored:
            logger.warning("%s tried to change %d unknown settings: %s", peer, len(update.ignored), update.ignored[:3])
