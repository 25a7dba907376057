"""Options that every verb has may also stand before the verb, or before the noun: `pyromq -n mq1:9876 topic list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_WITH_VALUE = ("-n", "--namesrv", "--context", "-o", "--output", "--timeout", "--watch")
_WITHOUT = ("--no-color", "--yes", "-y", "--dry-run")


def common_last(arguments: Sequence[str]) -> list[str]:
    """The arguments with common options that stand in front moved behind everything else."""
    rest = list(arguments)
    moved: list[str] = []
    while rest:
        name, equals, _ = rest[0].partition("=")
        if name in _WITHOUT or (name in _WITH_VALUE and equals):
            count = 1
        elif name in _WITH_VALUE and len(rest) > 1:
            count = 2
        else:
            break
        moved += rest[:count]
        del rest[:count]
    at = rest.index("--") if "--" in rest else len(rest)
    return rest[:at] + moved + rest[at:]
