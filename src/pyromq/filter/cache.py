"""Expressions that were compiled lately: a consumer sends the same one with every pull."""

from __future__ import annotations

import functools

from pyromq.errors import InvalidFilter

from .evaluation import Filter
from .grammar import parse


def compile_filter(text: str) -> Filter:
    """The filter that an expression stands for. InvalidFilter says what is wrong with it, and where."""
    compiled = _compiled(text)
    if isinstance(compiled, Filter):
        return compiled
    raise InvalidFilter(*compiled)


@functools.lru_cache(maxsize=100)
def _compiled(text: str) -> Filter | tuple[str, int]:
    """A filter, or what is wrong: an expression that was refused is most often sent again at once."""
    try:
        return Filter(text, parse(text))
    except InvalidFilter as exc:
        # Not the error itself, which grows with each journey it makes.
        return exc.reason, exc.column
