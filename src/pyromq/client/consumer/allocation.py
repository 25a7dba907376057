"""Allocation strategies: six ways for the members of a group to share the queues of a topic.

Every member computes its own share from the same sorted lists, so all must use the same strategy, in whatever language
they are written: the shares here match the Java client's, queue by queue (docs/spec/client.md 3.4).
"""

from __future__ import annotations

import bisect
import hashlib
from typing import TYPE_CHECKING, Protocol, TypeVar

from pyromq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyromq.protocol.message_queue import MessageQueue

T = TypeVar("T")


class Strategy(Protocol):
    """Pure: the same arguments give the same share, in every member of the group.

    `queues` and `client_ids` are sorted. A member that is not in `client_ids` gets nothing: the others do not know it
    and share everything among themselves. An error leaves the assignment unchanged.
    """

    @property
    def name(self) -> str: ...

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]: ...


class Averagely:
    """Adjacent queues for each member, one more for the first ones. The default."""

    name = "AVG"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        index = client_ids.index(client_id)
        share, left = divmod(len(queues), len(client_ids))
        start = index * share + min(index, left)
        return list(queues[start : start + share + (index < left)])


class AveragelyByCircle:
    """Queues dealt one by one, like cards."""

    name = "AVG_BY_CIRCLE"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


class Config:
    """Always the queues it was made with, whether or not they exist and others read them."""

    name = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self._queues = list(queues)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(self._queues)


class MachineRoom:
    """Only queues of brokers named `room@name` in one of `rooms`; the first members get the remainder."""

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Iterable[str]) -> None:
        self._rooms = frozenset(rooms)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        near = [queue for queue in queues if self._is_near(queue.broker_name)]
        index = client_ids.index(client_id)
        share, left = divmod(len(near), len(client_ids))
        mine = near[share * index : share * (index + 1)]
        if index < left:
            mine.append(near[share * len(client_ids) + index])
        return mine

    def _is_near(self, broker_name: str) -> bool:
        room, _, name = broker_name.partition("@")
        return room in self._rooms and name != "" and "@" not in name


class ConsistentHash:
    """Queues and members on a ring: when a member comes or goes, few queues move.

    Each member stands on the ring `nodes` times; a queue belongs to the first node that follows it.
    """

    name = "CONSISTENT_HASH"

    def __init__(self, nodes: int = 10) -> None:
        if nodes < 1:
            raise ConfigError(f"nodes must be 1 or more, not {nodes}")
        self._nodes = nodes

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        owners = {ring_hash(f"{member}-{node}"): member for member in client_ids for node in range(self._nodes)}
        ring = sorted(owners)
        return [queue for queue in queues if owners[_following(ring, ring_hash(str(queue)))] == client_id]


def ring_hash(key: str) -> int:
    """A place on the ring: the first four bytes of the MD5 of the key."""
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4])


def _following(ring: Sequence[int], place: int) -> int:
    at = bisect.bisect_left(ring, place)
    return ring[at if at < len(ring) else 0]


class MachineRoomNearby:
    """Members read the queues of their own room; all share those of rooms without a member.

    `inner` shares the queues of a room among its members. `broker_room` names the room of a queue's broker,
    `consumer_room` that of a client id; an empty answer is an error.
    """

    def __init__(
        self, inner: Strategy, broker_room: Callable[[MessageQueue], str], consumer_room: Callable[[str], str]
    ) -> None:
        self.name = f"MACHINE_ROOM_NEARBY-{inner.name}"
        self._inner = inner
        self._broker_room = broker_room
        self._consumer_room = consumer_room

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        queues_in = _by_room(queues, self._broker_room)
        members_in = _by_room(client_ids, self._consumer_room)
        home = self._consumer_room(client_id)
        mine = self._inner.allocate(group, client_id, queues_in[home], members_in[home]) if home in queues_in else []
        for room in sorted(queues_in.keys() - members_in.keys()):
            mine += self._inner.allocate(group, client_id, queues_in[room], client_ids)
        return mine


def _by_room(things: Iterable[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    rooms: dict[str, list[T]] = {}
    for thing in things:
        room = room_of(thing)
        if not room:
            raise ConfigError(f"{thing} has no room")
        rooms.setdefault(room, []).append(thing)
    return rooms
