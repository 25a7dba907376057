"""Small files with a checksum, written in place: a reader sees whether they are whole.

    8 hexadecimal digits: CRC-32 of the content | 8: its length | line feed | content

Anything else reads as nothing. What older, longer content left after the new one does not count.
"""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from ..disk import Disk

_HEAD = 17


def save(path: Path, content: bytes, disk: Disk) -> None:
    """Return once `content` is on disk. OSError if the disk does not take it; then the file may read as nothing."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        disk.write(fd, b"%08x%08x\n%b" % (zlib.crc32(content), len(content), content), 0)
        disk.sync(fd)
    finally:
        os.close(fd)


def load(path: Path) -> bytes | None:
    """What `save` wrote; None if there is nothing whole."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    try:
        length = int(data[8 : _HEAD - 1], 16)
    except ValueError:
        return None
    content = data[_HEAD : _HEAD + length]
    return content if data[:_HEAD] == b"%08x%08x\n" % (zlib.crc32(content), len(content)) else None
