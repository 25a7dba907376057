"""Which process listens on a port of this machine: /proc/net/tcp lists the sockets, /proc/PID/fd their owners."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LISTENING = "0A"
_LOCAL, _STATE, _INODE = 1, 3, 9  # columns of /proc/net/tcp


def holder_of(port: int, proc: Path = Path("/proc")) -> str | None:
    """`java (pid 4711)`; None if unknown: another user, another container, not Linux."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port, proc)}
    if not sockets:
        return None
    with contextlib.suppress(OSError):
        names = [entry.name for entry in proc.iterdir()]
        for pid in sorted(int(name) for name in names if name.isascii() and name.isdecimal()):
            if not sockets.isdisjoint(_opened(proc / str(pid) / "fd")):
                return f"{_name(proc / str(pid))} (pid {pid})"
    return None


def _listening(port: int, proc: Path) -> Iterator[str]:
    """The inodes of all sockets that listen on the port, on any address."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                words = line.split()
                if len(words) > _INODE and words[_STATE] == _LISTENING and words[_LOCAL].endswith(f":{port:04X}"):
                    yield words[_INODE]


def _opened(folder: Path) -> Iterator[str]:
    # We cannot inspect other users' processes, and any process may end meanwhile.
    with contextlib.suppress(OSError):
        for descriptor in folder.iterdir():
            with contextlib.suppress(OSError):
                yield str(descriptor.readlink())


def _name(process: Path) -> str:
    with contextlib.suppress(OSError):
        return (process / "comm").read_text(errors="replace").strip()
    return "a process"
