"""The committed samples that mutation starts from: one readable file per target.

    # why the next lines are here
    <label> text {"topicList":["orders"]}
    <label> hex 0000002d0100…

A label says how a target reads the sample, for example as which body; mutation leaves it alone. `text` is UTF-8 up to
the end of the line.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

DIRECTORY = Path(__file__).parent / "corpus"


class Sample(NamedTuple):
    label: str
    data: bytes


def read(target: str) -> list[Sample]:
    """All samples of `target`, in the order of its file."""
    samples = []
    for line in (DIRECTORY / f"{target}.txt").read_text(encoding="utf-8").split("\n"):
        if line and not line.startswith("#"):
            label, form, content = line.split(" ", 2)
            samples.append(Sample(label, bytes.fromhex(content) if form == "hex" else content.encode()))
    return samples


def save(directory: Path, target: str, sample: Sample) -> Path:
    """Keep an input under a name made of its content: the label in the first line, its bytes after that."""
    directory.mkdir(parents=True, exist_ok=True)
    content = sample.label.encode() + b"\n" + sample.data
    path = directory / f"{target}-{hashlib.sha256(content).hexdigest()[:12]}.bin"
    path.write_bytes(content)
    return path


def load(path: Path) -> tuple[str, Sample]:
    """The target and the input of a file made by `save`."""
    label, _, data = path.read_bytes().partition(b"\n")
    return path.stem.partition("-")[0], Sample(label.decode(), data)
