"""Bodies of messages as a page shows them: JSON in colour, text, hex; long ones are cut, and say so."""

from __future__ import annotations

import re
from dataclasses import dataclass

from markupsafe import Markup, escape

from pyromq.admin.messages.bodies import hex_lines, indented_json, text_of

SHOWN = 64 * 1024
_HEX_SHOWN = 16 * 1024
_MOST_JSON = 512 * 1024
_TOKEN = re.compile(
    r'(?P<key>"(?:[^"\\]|\\.)*")(?=\s*:)|(?P<str>"(?:[^"\\]|\\.)*")|(?P<num>-?\d[\d.eE+-]*)|(?P<lit>true|false|null)'
)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page shows of a body, by the names of the views. `first` is the best of them."""

    views: dict[str, Markup]
    first: str
    size: int
    cut: bool
    text: str | None


def shown(body: bytes) -> Shown:
    views: dict[str, Markup] = {}
    text = text_of(body)
    if text is not None:
        if len(body) <= _MOST_JSON and (laid_out := indented_json(text.strip())) is not None:
            views["json"] = coloured(laid_out[:SHOWN])
        views["text"] = Markup(escape(text[:SHOWN]))
    views["hex"] = Markup(escape("\n".join(hex_lines(body, at_most=_HEX_SHOWN))))
    cut = len(body) > _HEX_SHOWN if text is None else len(text) > SHOWN
    return Shown(views, next(iter(views)), len(body), cut, text)


def coloured(text: str) -> Markup:
    """JSON with a class for each kind of token. Everything in it is escaped."""
    parts: list[Markup] = []
    end = 0
    for token in _TOKEN.finditer(text):
        parts.append(escape(text[end : token.start()]))
        parts.append(Markup('<span class="{}">{}</span>').format(token.lastgroup, token[0]))
        end = token.end()
    parts.append(escape(text[end:]))
    return Markup("").join(parts)
