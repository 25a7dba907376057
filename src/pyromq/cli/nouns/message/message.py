"""`pyromq message`: brings the verbs of all modules of this folder together."""

from __future__ import annotations

from ...verbs import run_app
from . import files, reading, sending, single  # noqa: F401 - they add their verbs
from .options import app

_ORDER = ("list", "tail", "get", "find", "count", "send", "consume", "direct", "export", "import")  # of the help

app.registered_commands.sort(key=lambda verb: _ORDER.index(verb.name or ""))


def main(arguments: list[str]) -> int:
    return run_app(app, "message", arguments)
