"""How much memory there is: the machine's, or less where a container has a limit.

The page cache of a container's files counts towards its limit, so that much of the log can be in memory and no more.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_CGROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def available_memory(cgroups: Path = _CGROUPS, own: Path = _OWN) -> int:
    """Bytes that this process and its files may use."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min((physical, *_limits(cgroups, own)))


def _limits(cgroups: Path, own: Path) -> Iterator[int]:
    """The limits of the control groups that this process is in.

    Each line of `own` is `NUMBER:CONTROLLERS:GROUP`, version 2 being number 0 without controllers. A group is limited
    by those above it, too. Within a container its own group may be the only one to be seen, in the place of the root.
    """
    for line in _text(own).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0" and not controllers:
            folder, name = cgroups, "memory.max"
        elif "memory" in controllers.split(","):
            folder, name = cgroups / "memory", "memory.limit_in_bytes"
        else:
            continue
        path = PurePosixPath("/", group)
        for each in (path, *path.parents):
            text = _text(folder / each.relative_to("/") / name).strip()
            if text.isdecimal() and int(text) > 0:  # "max" is no limit
                yield int(text)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):  # not Linux, or not for us to see
        return ""
