"""Log levels as settings: `logLevel` for the whole server, `logLevel.store` for one package.

They can be changed while the server runs, by a request or in its file (SIGHUP). Empty means the command line's level.
A server only sets levels; the program it runs in decides where lines go.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pyromq.settings import Assignment, Settings, option, options_of, read_file

if TYPE_CHECKING:
    from pathlib import Path

KEY = "logLevel"
_ROOT = "pyromq"


class Level(Enum):
    """The levels to choose from."""

    INHERITED = ""
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Levels of the logs."""

    level: Level = option(KEY, Level.INHERITED, "Log level: debug, info, warning or error.", hot=True)
    broker: Level = option("logLevel.broker", Level.INHERITED, "Log level of the broker.", hot=True)
    namesrv: Level = option("logLevel.namesrv", Level.INHERITED, "Log level of the name server.", hot=True)
    controller: Level = option("logLevel.controller", Level.INHERITED, "Log level of the controller.", hot=True)
    store: Level = option("logLevel.store", Level.INHERITED, "Log level of the store.", hot=True)
    remoting: Level = option("logLevel.remoting", Level.INHERITED, "Log level of connections.", hot=True)


def apply_log_levels(config: LogConfig, before: LogConfig | None = None) -> None:
    """Set the loggers' levels. Changes only what differs from `before`: others may have set their own."""
    before = before or LogConfig()
    for declared in options_of(LogConfig):
        level: Level = getattr(config, declared.name)
        if level is not getattr(before, declared.name):
            logger = logging.getLogger(_ROOT + declared.key.removeprefix(KEY))
            logger.setLevel(level.value.upper() or logging.NOTSET)


def with_levels_of(file: Path, settings: Settings) -> Settings:
    """`settings` with the levels from its file. Those from the command line and the environment stay.

    ConfigError if the file cannot be read or is malformed; without a file nothing changes.
    """
    if not file.exists():
        return settings
    keys = {declared.key for declared in options_of(LogConfig)}
    named = {item.key: item for item in read_file(file) if item.key in keys}
    fixed = ("--set", "argument", "environment")
    changes = [
        # A line removed from the file resets its level.
        named.get(key, Assignment(key, "", str(file)))
        for key in keys
        if not settings.origin(key).startswith(fixed) and (key in named or settings.origin(key) != "default")
    ]
    return settings.updated(changes).settings
