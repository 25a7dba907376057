"""Roles: a viewer looks, an operator sends messages and moves groups, an admin changes and deletes anything."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Role(IntEnum):
    """Each may do what those before it may."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks. `csrf` goes into every form; `session` is None for one who has not logged in."""

    name: str
    role: Role | None
    address: str
    csrf: str = ""
    session: str | None = None
    one_time: bool = False

    def may(self, role: Role) -> bool:
        return self.role is not None and self.role >= role
