"""The texts of the dashboard and their translations in src/pyromq/dashboard/locale, gettext's .po files.

python scripts/translations.py           add new texts, drop those that are gone; new ones have to be translated
python scripts/translations.py --check   nothing is missing, left over or untranslated; for `make check`
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import NamedTuple

from pyromq.dashboard import lake
from pyromq.dashboard.web.languages import LANGUAGES, LOCALE, read_po
from pyromq.dashboard.web.rendering import FOLDER, environment

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "pyromq" / "dashboard"
_HEAD = """msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Language: {language}\\n"

"""
_PLACE = re.compile(r"%\((\w+)\)[sd]")


class Text(NamedTuple):
    singular: str
    plural: str | None = None


def texts() -> dict[Text, str]:
    """Every text, and the file where it is first."""
    found: dict[Text, str] = {}
    env = environment()
    for path in sorted(FOLDER.rglob("*.html")):
        name = path.relative_to(SOURCE).as_posix()
        for _, function, message in env.extract_translations(path.read_text(encoding="utf-8")):  # type: ignore[attr-defined]  # of the extension
            words = (message,) if isinstance(message, str) else message
            found.setdefault(Text(*words[:2]) if function == "ngettext" else Text(words[0]), name)
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name("_"), args=[ast.Constant(value=str(message)), *_]):
                    found.setdefault(Text(message), name)
    for message in (lake.NOT_SET, lake.NOT_INSTALLED):
        found.setdefault(Text(message), "lake.py")
    return found


def render(language: str, known: dict[str, str]) -> str:
    parts = [_HEAD.format(language=language)]
    for text, where in sorted(texts().items(), key=lambda item: (item[1], item[0].singular)):
        parts.append(f"#: {where}\nmsgid {_quoted(text.singular)}\n")
        if text.plural is None:
            parts.append(f"msgstr {_quoted(known.get(text.singular, ''))}\n\n")
        else:
            translated = _quoted(known.get(text.plural, ""))
            parts.append(f"msgid_plural {_quoted(text.plural)}\nmsgstr[0] {translated}\n\n")
    return "".join(parts).rstrip("\n") + "\n"


def problems() -> list[str]:
    """What is wrong with the translations."""
    wrong = []
    for language in LANGUAGES:
        if language == "en":
            continue
        path = LOCALE / f"{language}.po"
        known = read_po(path.read_text(encoding="utf-8"))
        if path.read_text(encoding="utf-8") != render(language, known):
            wrong.append(f"{path.name} does not have the texts of the sources: run scripts/translations.py")
        for text in texts():
            message = text.plural or text.singular
            if message not in known:
                wrong.append(f"{path.name}: not translated: {message}")
            elif set(_PLACE.findall(known[message])) != set(_PLACE.findall(message)):
                wrong.append(f"{path.name}: other places than in the original: {known[message]}")
    return wrong


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def main(arguments: list[str]) -> int:
    if "--check" in arguments:
        wrong = problems()
        print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
        return 1 if wrong else 0
    for language in LANGUAGES:
        if language != "en":
            path = LOCALE / f"{language}.po"
            known = read_po(path.read_text(encoding="utf-8")) if path.exists() else {}
            path.write_text(render(language, known), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
