"""The app that the verbs of `pyromq message` are added to, by subject: looking, sending, moving."""

from __future__ import annotations

from ...verbs import new_app

app = new_app("Messages: finding, reading, following, sending, exporting and importing them.")
