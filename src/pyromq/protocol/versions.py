"""Versions of RocketMQ: the `version` of a command is a number, and people want its name.

A version's number is its place in a list that was laid out once for all releases to come: each has two entries, the
snapshot before it and itself. Before 3.0.1 the names are irregular, and two-digit ones exist in 3.0 only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

# From here on a consumer understands 220 and 221, and from there on 307 and 309.
V3_0_7_SNAPSHOT: Final = 28
V3_1_8_SNAPSHOT: Final = 62

_HIGHER = "HIGHER_VERSION"


def _names() -> Iterator[str]:
    yield from (f"V3_0_0_{stage}" for stage in ("SNAPSHOT", "ALPHA1", "BETA1", "BETA2", "BETA3", "BETA4", "BETA5"))
    for beta in range(6, 10):
        yield from (f"V3_0_0_BETA{beta}_SNAPSHOT", f"V3_0_0_BETA{beta}")
    yield "V3_0_0_FINAL"
    for major, minor, patch in _releases():
        yield from (f"V{major}_{minor}_{patch}_SNAPSHOT", f"V{major}_{minor}_{patch}")
    yield _HIGHER


def _releases() -> Iterator[tuple[int, int, int]]:
    for patch in range(1, 16):
        yield 3, 0, patch
    for major, minor in ((major, minor) for major in (3, 4, 5) for minor in range(10) if (major, minor) != (3, 0)):
        first = 1 if major == 3 and minor > 2 else 0
        for patch in range(first, 10):
            yield major, minor, patch


_NAMES = tuple(_names())


def version_name(version: int) -> str:
    """What RocketMQ calls `version`: `V4_9_8` for 409. A number that it does not know is the newest, or the oldest."""
    return _NAMES[max(0, min(version, len(_NAMES) - 1))]
