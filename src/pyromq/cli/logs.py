"""Logs of the servers: one stream to stderr, a line per event.

    2026-01-31T12:00:00.123+01:00 INFO namesrv: broker registered name=rack1 id=0

The word before the colon is the package that speaks. `json` gives one object per line for log collectors.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime
from enum import StrEnum


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


def set_up(level: LogLevel = LogLevel.info, style: LogFormat = LogFormat.text) -> None:
    """Send what PyroMQ and its libraries log to stderr. For programs; a library never does this."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if style is LogFormat.json else _TextFormatter())
    logging.basicConfig(level=level.value.upper(), handlers=[handler], force=True)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


def _speaker(record: logging.LogRecord) -> str:
    names = record.name.split(".")
    return names[1] if names[0] == "pyromq" and len(names) > 1 else record.name
