"""Change: what a verb that changed something says it did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.admin.listing import Listing

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Change:
    """`name` was `change`d at one server."""

    name: str
    change: str
    where: str


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting of one server, before and after."""

    server: str
    key: str
    before: str | None
    after: str | None


def changes(name: str, change: str, places: Iterable[str]) -> Listing[Change]:
    return Listing.make(Change, (Change(name, change, place) for place in places))
