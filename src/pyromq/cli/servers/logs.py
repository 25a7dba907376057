"""The servers' logs: one line per event, to stderr or, with `--log-dir`, to files.

    2026-01-31T12:00:00.123+01:00 INFO namesrv: broker registered name=rack1 id=0

The word before the colon is the package that logged it. `json` gives one object per line for log collectors.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError
from pyromq.settings.files import why_not_writable

from .log_files import LogFile
from .log_folding import Folding

if TYPE_CHECKING:
    from pathlib import Path


class LogFormat(StrEnum):
    text = "text"
    json = "json"


class LogLevel(StrEnum):
    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        # A peer chooses parts of some messages; a line break in them must not look like another event.
        message = record.getMessage().replace("\n", "\\n").replace("\r", "\\r")
        line = f"{_time(record)} {record.levelname} {_speaker(record)}: {message}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event = {
            "time": _time(record),
            "level": record.levelname,
            "logger": _speaker(record),
            "message": record.getMessage(),
        }
        if record.exc_info:
            event["error"] = self.formatException(record.exc_info)
        return json.dumps(event, ensure_ascii=False)


def set_up(
    level: LogLevel = LogLevel.info,
    style: LogFormat = LogFormat.text,
    folder: Path | None = None,
    name: str = "pyromq",
) -> None:
    """Send PyroMQ's and its libraries' logs to stderr, or to `<name>.log` in `folder`; repeated lines are folded.

    For programs only, never for a library. ConfigError if the folder cannot be written.
    """
    handler: logging.Handler
    if folder is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        problem = why_not_writable(folder)
        if problem is not None:
            raise ConfigError(f"--log-dir {folder} cannot be written: {problem}")
        try:
            handler = LogFile(folder, name)
        except OSError as exc:
            raise ConfigError(f"--log-dir {folder} cannot be used: {exc.strerror}") from exc
    handler.setFormatter(_JsonFormatter() if style is LogFormat.json else _TextFormatter())
    logging.basicConfig(level=level.value.upper(), handlers=[Folding(handler)], force=True)


def reopen() -> None:
    """Continue in new log files, after someone renamed the open ones. Does nothing when logging to stderr."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, Folding) and isinstance(handler.target, LogFile):
            handler.target.reopen()


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


def _speaker(record: logging.LogRecord) -> str:
    names = record.name.split(".")
    return names[1] if names[0] == "pyromq" and len(names) > 1 else record.name
