"""Replace small files atomically: a reader, or a crash, finds either the old content or the new."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def replace_file(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Make `data` the content of `path`; the old content stays as `<path>.bak`, as in RocketMQ.

    Once this returns, the new content survives a power failure. Creates missing folders. With `mode`, as 0o600, nobody
    else can read it at any time; otherwise the file keeps the mode that it has. Blocking: it waits for the disk, so
    call it in a thread. OSError leaves the old file in place.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)  # it may have another mode
    opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666 if mode is None else mode)
    with os.fdopen(opened, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        if mode is None:
            # A file that only its owner can read must stay that way.
            shutil.copymode(path, temporary)
        else:
            path.chmod(mode)
        shutil.copy(path, path.with_name(path.name + ".bak"))
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power failure, which may otherwise bring the old file back."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def why_not_writable(folder: Path) -> str | None:
    """Why no file can be written to `folder`, which need not exist yet; None if one can."""
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return f"{there} is not a directory"
    if not os.access(there, os.W_OK | os.X_OK):
        owner = there.stat()
        return (
            f"directory {there} belongs to uid {owner.st_uid}, this process runs as uid {os.geteuid()}; "
            f"chown {os.geteuid()}:{os.getegid()} {there} lets it write"
        )
    return None
