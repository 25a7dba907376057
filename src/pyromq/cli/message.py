"""`pyromq message`: finding, reading, following, sending, exporting and importing messages."""

from __future__ import annotations

from . import message_files, message_looking, message_reading, message_sending  # noqa: F401 - they add their verbs
from .frame import run_app
from .message_app import app

_ORDER = ("list", "tail", "get", "find", "count", "send", "consume", "direct", "export", "import")  # of the help

app.registered_commands.sort(key=lambda verb: _ORDER.index(verb.name or ""))


def main(arguments: list[str]) -> int:
    return run_app(app, "message", arguments)
