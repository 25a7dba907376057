"""Where decisions are kept: the one interface between a controller and its store.

`journal` keeps them in a file of this machine, for one controller; etcd keeps them for any number. Both promise the
same: a decision is told to nobody before it would survive a crash, and it is made on the state it was computed from.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar
from weakref import WeakValueDictionary

from .replicas import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .replicas import Group

T = TypeVar("T")


class Peer(NamedTuple):
    """A controller: its id, and the address at which brokers reach it."""

    id: str
    address: str


class Decisions(Protocol):
    """The groups as decided so far, and the way to decide more. Belongs to one event loop."""

    # Called, if set, when this controller becomes the leader or stops being it.
    led: Callable[[], None] | None

    @property
    def groups(self) -> Mapping[str, Group]:
        """By broker name; only what is durable."""

    @property
    def is_leader(self) -> bool:
        """Whether `decide` may succeed here now."""

    @property
    def leader(self) -> Peer | None:
        """The controller that decides; None while that is unknown."""

    @property
    def peers(self) -> Sequence[Peer]:
        """All controllers, this one included."""

    async def decide(self, event: Event) -> Group | None:
        """Make `event` durable, apply it to `groups` and return the group that it left, if any.

        The event was computed from `groups` as they are when this is called. NotDecided if the group changed meanwhile,
        also while another decision on it is under way; NotLeader if another controller decides. A cancelled caller
        does not learn how it ended.
        """

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until cancelled. Calls `ready` once `groups` are known; raises if they cannot be."""


class Turns:
    """One decision at a time for each group, computed when its turn comes."""

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions
        # A lock stays as long as somebody holds it or waits for it.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def decide(self, name: str, verdict: Callable[[Group | None], T]) -> tuple[T, Group | None]:
        """Ask for the verdict on a group as it is now, and make it happen if it is an event.

        Returns the verdict, and the group after an event, or as it is without one.
        """
        turn = self._turns.setdefault(name, asyncio.Lock())
        async with turn:
            group = self._decisions.groups.get(name)
            found = verdict(group)
            if isinstance(found, Event):
                group = await self._decisions.decide(found)
            return found, group
