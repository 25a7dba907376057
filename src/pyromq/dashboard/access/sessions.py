"""Who is logged in, and who has tried too often.

A session begins with a new number at each login, so that a number planted before is worth nothing. Forms carry a token
that only pages of the same session have.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .roles import Role  # noqa: TC001 - a field

if TYPE_CHECKING:
    from collections.abc import Callable

IDLE = 12 * 3600.0
LONGEST = 7 * 86400.0
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Session:
    user: str
    role: Role
    one_time: bool
    began: float
    seen: float


class Sessions:
    """In memory: a restart logs everybody out."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._table: OrderedDict[str, Session] = OrderedDict()

    def begin(self, user: str, role: Role, *, one_time: bool = False) -> str:
        """The number of a new session."""
        number = secrets.token_urlsafe(32)
        now = self._clock()
        self._table[number] = Session(user, role, one_time, now, now)
        while len(self._table) > _MOST:
            self._table.popitem(last=False)
        return number

    def get(self, number: str) -> Session | None:
        """The session, which is thereby used."""
        if not self.is_alive(number):
            self._table.pop(number, None)
            return None
        session = self._table[number] = replace(self._table[number], seen=self._clock())
        self._table.move_to_end(number)
        return session

    def is_alive(self, number: str) -> bool:
        """Whether it goes on, without using it: a page left open does not keep its reader logged in."""
        session, now = self._table.get(number), self._clock()
        return session is not None and now - session.seen <= IDLE and now - session.began <= LONGEST

    def end(self, number: str) -> None:
        self._table.pop(number, None)

    def end_all(self, user: str) -> None:
        """After a change of password or role, everybody logs in again."""
        for number in [number for number, session in self._table.items() if session.user == user]:
            del self._table[number]

    def token(self, number: str) -> str:
        """What forms of this session carry."""
        return hmac.new(self._secret, number.encode(), hashlib.sha256).hexdigest()

    def is_token(self, number: str, token: str) -> bool:
        return hmac.compare_digest(self.token(number).encode(), token.encode())


@dataclass(slots=True)
class _Tries:
    failed: int = 0
    wait_until: float = 0.0


class Tries:
    """Failed tries to log in, by address and by user. After some of them each further one has to wait longer."""

    FREE = 6
    FREE_FOR_USER = 30  # from anywhere: nobody may lock others out with a few
    FIRST_WAIT = 15.0
    LONGEST_WAIT = 300.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._table: OrderedDict[str, _Tries] = OrderedDict()

    def wait(self, address: str, user: str) -> float:
        """Seconds until the next try is allowed; 0 if it is now."""
        known = [self._table.get(name) for name in (f"a {address}", f"u {user}")]
        return max(0.0, *(each.wait_until - self._clock() for each in known if each is not None), 0.0)

    def failed(self, address: str, user: str) -> None:
        for name, free in ((f"a {address}", self.FREE), (f"u {user}", self.FREE_FOR_USER)):
            tries = self._table.setdefault(name, _Tries())
            self._table.move_to_end(name)
            tries.failed += 1
            if tries.failed >= free:
                wait = min(self.LONGEST_WAIT, self.FIRST_WAIT * 2 ** (tries.failed - free))
                tries.wait_until = self._clock() + wait
        while len(self._table) > _MOST:
            self._table.popitem(last=False)

    def succeeded(self, address: str, user: str) -> None:
        self._table.pop(f"a {address}", None)
        self._table.pop(f"u {user}", None)
