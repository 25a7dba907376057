"""What a user may have meant."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown word: the known one it resembles, or all of them."""
    spelt = {each.lower(): each for each in known}
    near = difflib.get_close_matches(word.lower(), spelt, 1, 0.6)
    return f"; did you mean {spelt[near[0]]}?" if near else f"; known are {', '.join(spelt.values())}"
