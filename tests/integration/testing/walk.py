"""Console blocks of a page: commands after `$`, and what they print, with … for what may be anything."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Step:
    command: str
    output: str


def steps(page: Path) -> list[Step]:
    """Every command of a page, in order."""
    found: list[Step] = []
    for block in _BLOCK.findall(page.read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append(Step(command, output))
    return found


def agrees(expected: str, said: str) -> bool:
    """Whether what was printed is what a page says. Blanks at the end of lines and empty lines do not count."""
    pattern = ".*?".join(re.escape(part) for part in _lines(expected).split("…"))
    return re.fullmatch(pattern, _lines(said), re.DOTALL) is not None


def _lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())
