"""How much each part of a server logs, as settings: `logLevel` for all of it, `logLevel.store` for one package.

They can be changed while the server runs, by a request or in its file (SIGHUP). Empty means what the command line said.
A server only sets levels. Where lines go is the business of the program that it runs in.
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
    """What can be asked for."""

    INHERITED = ""
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Levels of the logs."""

    level: Level = option(KEY, Level.INHERITED, "How much to log: debug, info, warning or error.", hot=True)
    broker: Level = option("logLevel.broker", Level.INHERITED, "The same for what the broker says.", hot=True)
    namesrv: Level = option("logLevel.namesrv", Level.INHERITED, "The same for the name server.", hot=True)
    store: Level = option("logLevel.store", Level.INHERITED, "The same for the store.", hot=True)
    remoting: Level = option("logLevel.remoting", Level.INHERITED, "The same for connections.", hot=True)


def apply_log_levels(config: LogConfig, before: LogConfig | None = None) -> None:
    """Let the loggers follow. Touches only what differs from `before`: others may have set levels of their own."""
    before = before or LogConfig()
    for declared in options_of(LogConfig):
        level: Level = getattr(config, declared.name)
        if level is not getattr(before, declared.name):
            logger = logging.getLogger(_ROOT + declared.key.removeprefix(KEY))
            logger.setLevel(level.value.upper() or logging.NOTSET)


def with_levels_of(file: Path, settings: Settings) -> Settings:
    """`settings` with the levels that its file names now. Those of the command line and the environment stay.

    ConfigError when the file cannot be read or is malformed; without the file nothing changes.
    """
    if not file.exists():
        return settings
    keys = {declared.key for declared in options_of(LogConfig)}
    named = {item.key: item for item in read_file(file) if item.key in keys}
    fixed = ("--set", "argument", "environment")
    changes = [
        # Who takes a line out of the file wants the level gone.
        named.get(key, Assignment(key, "", str(file)))
        for key in keys
        if not settings.origin(key).startswith(fixed) and (key in named or settings.origin(key) != "default")
    ]
    return settings.updated(changes).settings
