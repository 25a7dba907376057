"""Languages: English in the sources, others in gettext's .po files, read at the start.

The files are read as they are: msgid, msgstr and msgid_plural, which is all that ours have, so that nothing has to be
compiled when they change.
"""

from __future__ import annotations

import ast
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LANGUAGES = {"en": "English", "zh": "简体中文"}
LOCALE = Path(__file__).parent.parent / "locale"

current: ContextVar[str] = ContextVar("language", default="en")


def gettext(message: str) -> str:
    return texts(current.get()).get(message) or message


def ngettext(singular: str, plural: str, number: int) -> str:
    """Languages with other plural forms than English and Chinese would need more than this."""
    found = texts(current.get())
    if current.get() == "en" or plural not in found:
        return singular if number == 1 else plural
    return found[plural]


@cache
def texts(language: str) -> Mapping[str, str]:
    path = LOCALE / f"{language}.po"
    return read_po(path.read_text(encoding="utf-8")) if path.exists() else {}


def read_po(text: str) -> dict[str, str]:
    """The translations by msgid; those of plurals by msgid_plural too. Empty ones are left out."""
    found: dict[str, str] = {}
    entry: dict[str, str] = {}
    field = ""
    for line in [*text.splitlines(), ""]:
        line = line.strip()
        if line.startswith("#"):
            continue
        if line.startswith("msgid ") or not line:
            _take(entry, found)
            entry = {}
        if line.startswith('"'):
            entry[field] += ast.literal_eval(line)
        elif line:
            field, _, value = line.partition(" ")
            entry[field] = ast.literal_eval(value)
    return found


def _take(entry: dict[str, str], found: dict[str, str]) -> None:
    translated = entry.get("msgstr") or entry.get("msgstr[0]")
    if translated and entry.get("msgid"):
        found[entry["msgid"]] = translated
        if "msgid_plural" in entry:
            found[entry["msgid_plural"]] = translated


def preferred(chosen: str | None, accepted: str) -> str:
    """The language for a browser: what was chosen before, else the first of its header that we have."""
    if chosen in LANGUAGES:
        return chosen
    ranked = []
    for part in accepted.split(",")[:20]:
        name, _, weight = part.strip().partition(";q=")
        try:
            ranked.append((float(weight or 1), name.split("-")[0].lower()))
        except ValueError:
            continue
    for _, name in sorted(ranked, key=lambda each: -each[0]):
        if name in LANGUAGES:
            return name
    return "en"
